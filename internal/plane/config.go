package plane

import (
	"context"
	"crypto"
	"crypto/x509"
	"log/slog"
	"net/http"
	"time"

	"plinth/internal/addresses"
	"plinth/internal/admission"
	"plinth/internal/aggregation"
	"plinth/internal/auth"
	"plinth/internal/auth/oidc"
	"plinth/internal/auth/serviceaccount"
	"plinth/internal/authz"
	"plinth/internal/builtin"
	"plinth/internal/cel"
	"plinth/internal/console"
	"plinth/internal/controller/steps"
	"plinth/internal/controller/worklist"
	"plinth/internal/crd"
	"plinth/internal/egress"
	"plinth/internal/engine"
	"plinth/internal/fairness"
	"plinth/internal/features"
	"plinth/internal/httpapi"
	"plinth/internal/initial"
	"plinth/internal/nodes"
	"plinth/internal/peerproxy"
	"plinth/internal/planes/kind"
	"plinth/internal/storage"
	"plinth/internal/webhook"
)

// Config is what a plane is made of. Some of its fields are the Config of a part. In these the caller sets what is
// named here, and the plane sets what leads to its other parts, the feature gates, the clock and the logger.
type Config struct {
	Features features.Set
	Releases features.Versions     // that it behaves like
	Versions builtin.RuntimeConfig // which versions of the API are served
	EventTTL time.Duration         // how long Events are kept; 0: one hour
	// Types are the built-in types of a plane with the same Features, Releases, Versions, EventTTL, Now and Issued, to be
	// there once; nil: they are made.
	Types  *builtin.Types
	Now    engine.Clock // nil: time.Now
	Logger *slog.Logger

	// Storage opens the store of the objects, whose types are in the registry, and those that objects define are made by
	// define. The plane closes it.
	Storage func(ctx context.Context, types *engine.Registry, define engine.Define) (*storage.Storage, error)
	// Image is what the storage begins with, the objects included that a plane makes when it begins: it is from a plane
	// with the same settings. Nil: these objects are made, and kept up.
	Image *Image

	// Begin says which objects are made when the plane begins, without an Image.
	Begin Begin

	Addresses addresses.Config // of Services
	// NodePort is the node port of the Service kubernetes; 0: none.
	NodePort int
	Self     initial.Self // what objects say of how the plane is reached
	// Address is HOST:PORT of the plane in discovery documents.
	Address string

	// Authority decides what users may do. The plane opens it with its roles.
	Authority *authz.Authority
	// Authentication has the Clients, the Proxy, the Audiences, and who may be anonymous. Its Tokens are asked first,
	// then the plane's own, at last LaterTokens.
	Authentication auth.Config
	LaterTokens    []auth.Tokens
	Accounts       Accounts
	Signer         Signer
	// Admission has the Selection, Configurations, both TolerationSeconds and Metrics.
	Admission admission.Config
	Webhooks  webhook.InProcess // finds webhooks in this process; nil: all are in the network
	// Egress says to which addresses the plane may open connections: to webhooks, aggregated API servers, nodes, Pods and
	// Services. One that restricts does so whatever Nodes.Dial and Aggregation.Dial are.
	Egress egress.Policy

	// GarbageCollection says whether deletes add and remove the finalizers foregroundDeletion and orphan. Controllers
	// decides whether there is a garbage collector.
	GarbageCollection bool
	Controllers       Controllers
	// Steps runs the steps of the controllers of all planes of a process, StepShare of this plane's at a time. Nil: the
	// plane has its own pool.
	Steps     *steps.Pool
	StepShare int
	// Issued is told of certificates (builtin.Config), and Unavailable of APIServices that are not available any more.
	// Nil functions are not called.
	Issued      func(signer string, honored bool)
	Unavailable func(name, reason string)
	Worklists   worklist.Observe // is told what controllers have to do
	Expressions cel.Observe      // is told of expressions that are compiled, and evaluated
	// Definitions has what the definitions of all planes of the process have in common, and their compiled expressions;
	// nil: the plane has its own.
	Definitions *crd.Shared

	Nodes nodes.Config // has Kubelets, BytesPerSecond and Metrics
	// Aggregation has the Certificate and FollowRedirects. With EndpointsOnly the cluster IP of a Service is never used,
	// even if the Service has no EndpointSlices.
	Aggregation   aggregation.Config
	EndpointsOnly bool
	// Peers are other servers of the same objects, to which requests for resources go that the plane does not serve. The
	// plane sets Shared. Nil: there are none.
	Peers *peerproxy.Proxy

	Limits Limits
	// HTTP has the Auditor, Flagz, the times, StrictTransport, Origins, Goaway and Metrics.
	HTTP httpapi.Config
	// Handlers makes the pages beside the API, when the plane's parts are there; nil: there are none.
	Handlers func(*Plane) (map[string]http.Handler, error)
	Console  bool // serve the console, and what it asks (packages console and reviews)
	// Sessions are those of the console, if other planes have them, too; nil: it has its own.
	Sessions *console.Sessions
	// Planes connects the type Plane with the planes beside this one; nil: the type is not served.
	Planes *kind.Config
	// Issuers are those at which users of the console can sign in; nil if there are none.
	Issuers *oidc.Reloader
	// Certificate returns why clients cannot trust the certificate of the server, and Serving why it should get no
	// requests. Nil functions are checks that succeed.
	Certificate, Serving func(context.Context) error
}

// StepShare is how many steps of controllers run at a time in a plane that has a process for itself.
const StepShare = 64

// Begin says which of the objects that every plane has are made, or brought up to date, when a plane begins.
type Begin int

const (
	BeginAll  Begin = iota // all
	BeginSelf              // those that say how to reach the plane, and whom it trusts; the others are there
	BeginNone              // none: they are there
)

// Accounts says how the tokens of service accounts are signed and verified.
type Accounts struct {
	Keys serviceaccount.Keys
	// Static are the same keys; nil if an external signer has them.
	Static          *serviceaccount.StaticKeys
	Issuers         []string // the first one is in new tokens, all are accepted
	KeysURL         string   // of the public keys in the discovery document of the issuer; "": that at Config.Address
	Lookup          bool     // legacy tokens are valid only while their Secrets exist
	Extend          bool     // tokens of Pods are valid for a year, see serviceaccount.Issuer
	MaxSeconds      int64    // see serviceaccount.Issuer
	ExtendedSeconds int64
	BootstrapTokens bool // accept tokens in Secrets of type bootstrap.kubernetes.io/token
	// BootstrapAfter is when the plane has begun with the Secrets of another one, see serviceaccount.BootstrapTokens;
	// zero: it has not.
	BootstrapAfter time.Time
}

// sign says whether tokens can be issued.
func (a *Accounts) sign() bool { return a.Static == nil || a.Static.Signs() }

// Signer is the authority that signs the certificates of clients, and what clients need to know of the server's.
type Signer struct {
	Certificate *x509.Certificate
	Key         crypto.Signer // nil: requests for certificates are not signed
	Bundle      []byte        // the authorities by which clients verify the server, as PEM
}

// Limits bound the requests that are served at the same time.
type Limits struct {
	Fairness bool // the two limits are added up, and divided by priority and fairness; false: each counts separately
	Reading  int  // 0: no limit
	Writing  int
	Places   int // in which requests execute; 0: by the number of processors
	// Share is what the plane has of the seats and places of a process with several planes. It bounds the requests of
	// the plane, and with Fairness it is in the place of Places and of the sum of the two limits. The process divides
	// the seats (fairness.Capacity.Run). Nil: the plane has its own.
	Share *fairness.Share
}
