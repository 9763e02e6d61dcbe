package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"plinth/internal/addresses"
	"plinth/internal/audit"
	"plinth/internal/authz"
	"plinth/internal/builtin"
	"plinth/internal/features"
	"plinth/internal/metrics"
	"plinth/internal/nodes"
	"plinth/internal/pki"
	"plinth/internal/plane"
	"plinth/internal/storage"
	"plinth/internal/store"
	"plinth/internal/webhook"
)

// DefaultContext is the name of the cluster and the context in a kubeconfig.
const DefaultContext = "plinth"

// Config holds all settings of a server, in groups. Fields are named after the flags, and flags after kube-apiserver's
// where it has the same setting.
type Config struct {
	Data
	Access
	Serving
	Authentication
	Authorization
	Admission
	Reached
	Release
	Requests
	Insight

	Aggregation Aggregation // how group versions are forwarded to other API servers
	// Kubelets says how kubelets are reached. ConnectionBytesPerSecond limits an upgraded connection to a kubelet, a
	// Pod or a Service in each direction; 0: there is no limit.
	Kubelets                 nodes.Kubelets
	ConnectionBytesPerSecond int64
	// GarbageCollection says whether deletes add and remove the finalizers foregroundDeletion and orphan. Whether this
	// server runs a garbage collector is decided by Controllers.
	GarbageCollection bool
	Controllers       plane.Controllers
	Services          addresses.Flags // their addresses and ports
	// Now is the clock for timestamps, certificates and expiry; nil: time.Now. Waiting is by the clock of the process.
	Now func() time.Time
}

// Data is where the server keeps its files and objects.
type Data struct {
	DataDir      string // certificates, kubeconfig and, with embedded storage, all objects
	DataDirGiven bool   // it is no default: the etcd stub, which names another one, is refused
	Storage      string // "embedded" or "memory"
	// Etcd is the etcd that has all objects, if Etcd.Servers are given; or they are the one URL of the etcd stub
	// (internal/etcdstub). The stub answers with a directory, and DataDir becomes the folder Etcd.Prefix in it.
	Etcd   storage.Etcd
	onEtcd bool // Etcd.Servers is a real etcd; set by locate
	// Encryption says which objects are encrypted on disk.
	Encryption        storage.Encryption
	WatchHistoryBytes int64          // size of the watch history on disk
	Past              storage.Past   // what is kept for longer
	Backup            storage.Backup // where it is copied to, continuously
	EventTTL          time.Duration  // how long Events are kept
	Log               store.Log      // has the commits of the store; Close closes it. Nil: the one that Storage selects
	noSync            bool           // no fsync: a power cut may lose objects; set by the etcd stub
}

// Access is the kubeconfig that the server writes for its administrator.
type Access struct {
	WriteKubeconfig   string // default: DataDir/kubeconfig
	ContextName       string // of the cluster and the context in it
	SetCurrentContext bool   // also in a kubeconfig that exists: its current context becomes that of this server
}

// Serving is the port, and the certificates of the server.
type Serving struct {
	BindAddress string
	SecurePort  int // 0 lets the system choose
	// Listener serves the API, over TLS, and Close closes it. Nil: one at BindAddress and SecurePort. With Listener,
	// Authority and Data.Log, and neither DataDir nor WriteKubeconfig, a server writes nothing.
	Listener    net.Listener
	TLSCertFile string // "": the pair in CertDir
	TLSKeyFile  string
	// CertDir holds apiserver.crt and apiserver.key. They are created if missing. "": a pair below DataDir is used.
	CertDir              string
	TLSNamed             []string // certificates by server name (SNI): CERT,KEY or CERT,KEY:NAME,NAME
	TLSMinVersion        string   // Go's name of the version; "": VersionTLS12
	TLSCipherSuites      []string // names of Go or of the reference; empty: Go's choice
	TLSCurves            []int32  // Go's numbers; empty: Go's choice
	DisableHTTP2         bool
	HTTP2MaxStreams      int      // on one connection; 0: 1000
	PermitAddressSharing bool     // SO_REUSEADDR
	PermitPortSharing    bool     // SO_REUSEPORT
	Authority            pki.Pair // signs the server's certificates; the zero Pair: SigningCertFile, or that in DataDir
	// SigningCertFile and SigningKeyFile are PEM files with the Authority; both are "" or none. Servers on one etcd need
	// the same.
	SigningCertFile, SigningKeyFile string
	// Planes serves planes besides the first one (package planes), as objects of the type Plane.
	Planes bool
	// PlanesEgress are addresses, as prefixes, that are refused to planes otherwise (package egress), and to which they
	// may connect.
	PlanesEgress []string
	planeIdle    time.Duration // after which a plane is closed that nobody uses; 0: that of package planes
	// PlanesDomain has the host names of planes, NAME.PlanesDomain (package route). "": they have none.
	PlanesDomain string
}

// Authentication says who may send requests, and by which credentials.
type Authentication struct {
	TokenAuthFile        string // "": no static tokens
	ClientCAFile         string // authorities of client certificates besides the server's own; "": no others
	FrontProxy           FrontProxy
	BootstrapTokens      bool // accept tokens in Secrets of type bootstrap.kubernetes.io/token
	ServiceAccounts      ServiceAccounts
	APIAudiences         []string // a token has to be for one of these; empty: the issuers of ServiceAccounts
	AuthenticationConfig string   // a file: OpenID Connect issuers, and anonymous requests; "": none
	OIDC                 OIDC
	TokenWebhook         TokenWebhook
	AnonymousAuth        bool // requests without credentials are from system:anonymous; false: they are refused
	AnonymousAuthGiven   bool // whether AnonymousAuth was set explicitly
	// AdministratorToken is a bearer token of the user that Server.Administrator has a certificate of; "": none.
	AdministratorToken string
}

// Authorization says what users may do.
type Authorization struct {
	AuthorizationModes []string // ABAC, AlwaysAllow, AlwaysDeny, Node, RBAC, Webhook: the authorizers, in order
	// AuthorizationPolicyFile has the policies of the mode ABAC.
	AuthorizationPolicyFile string
	// AuthorizationWebhook configures the mode Webhook. AuthorizationConfig is a file that replaces AuthorizationModes
	// and AuthorizationWebhook. It is reloaded when it changes.
	AuthorizationWebhook AuthorizationWebhook
	AuthorizationConfig  string
}

// Admission says which admission plugins are on, and how they are configured.
type Admission struct {
	AdmissionControl []string // the only enabled admission plugins; empty: the default ones
	EnableAdmission  []string
	DisableAdmission []string
	AdmissionConfig  string // a file with the configurations of admission plugins
	// How long a Pod stays on a node that is not ready or not reachable, unless it says so itself.
	NotReadyTolerationSeconds, UnreachableTolerationSeconds int64
	AllowPrivileged                                         bool
	// Webhooks finds webhooks in this process; nil: all are in the network.
	Webhooks webhook.InProcess
}

// Reached is what the server says of how it is reached.
type Reached struct {
	AdvertiseAddress string // the server's address in discovery documents and endpoints; "": the one it listens on
	// PeerAdvertiseIP and PeerAdvertisePort are where other servers reach this one, if both are set; else it is
	// AdvertiseAddress.
	PeerAdvertiseIP, PeerAdvertisePort string
	// PeerCAFile has the authorities by which this server verifies the other ones on its etcd, to which it forwards
	// requests for resources that it does not serve. "": none are forwarded.
	PeerCAFile string
	// ExternalHostname is the server's host in discovery documents; it takes precedence over AdvertiseAddress.
	ExternalHostname string
	// EndpointReconciler says how servers on one etcd know which endpoints the Service kubernetes has: by keys that each
	// renews ("lease"), or by their number, APIServerCount ("master-count"). With "none" it has no endpoints.
	EndpointReconciler string
	APIServerCount     int
}

// Release is the release that the server behaves like, and what of it is served.
type Release struct {
	// EmulatedVersion and MinCompatibilityVersion are the releases that the server behaves like: "1.36", "kube=1.36".
	EmulatedVersion, MinCompatibilityVersion []string
	FeatureGates                             []string // "A=true", "B=false"
	// Versions says which versions of the API are served.
	Versions builtin.RuntimeConfig
}

// Requests says how requests are served, and how many at the same time.
type Requests struct {
	RequestTimeout      time.Duration // of requests other than watches
	MinRequestTimeout   int           // shortest time of a watch without timeoutSeconds, in seconds
	PriorityAndFairness bool          // the two limits below are added up to one; false: each counts separately
	MaxRequestsInflight int           // reading requests at the same time; 0: no limit
	MaxMutatingInflight int           // writing requests at the same time; 0: no limit
	places              int           // in which requests execute, in tests; 0: by the number of processors
	GoawayChance        float64       // the share of HTTP/2 requests after which the connection is closed
	StrictTransport     []string      // directives of the Strict-Transport-Security header; empty: no header is sent
	CORSAllowedOrigins  []string      // regular expressions; empty: no CORS headers are sent
	ShutdownDelay       time.Duration // how long the server still serves after it is asked to stop
	ShutdownRetryAfter  bool          // requests get 429 then, and the port stays open, until all others are finished
	ShutdownWatches     time.Duration // over which watches end then; 0: all at once
}

// Insight is what the server shows of itself.
type Insight struct {
	Audit               audit.Options     // which requests are recorded, and where
	Metrics             metrics.Limits    // which metrics are served, and with which labels
	Profiling           bool              // serve /debug/pprof, to users who are authorized to get it
	ContentionProfiling bool              // record blocking profiles, if Profiling is on
	DebugSocket         string            // a Unix socket that serves /debug/pprof; "": none
	Flags               map[string]string // all flags with their values, for /flagz; nil: the page is not served
	Console             bool              // serve the console, a page for browsers
	// ConsoleSecrets are ISSUER=FILE: the secrets by which this server shows issuers which client it is.
	ConsoleSecrets []string
	Logger         *slog.Logger
}

// Defaults returns the default settings.
func Defaults() Config {
	var c Config
	c.DataDir, c.ContextName, c.Storage = "plinth-data", DefaultContext, "embedded"
	c.Etcd = storage.Etcd{Prefix: "/registry", Timeout: time.Minute, CompactionInterval: 5 * time.Minute,
		HealthTimeout: 2 * time.Second, ReadyTimeout: 2 * time.Second, SizeInterval: 30 * time.Second,
		LeaseReuseSeconds: 60, MediaType: "application/vnd.kubernetes.protobuf"}
	c.WatchHistoryBytes, c.EventTTL = 512<<20, time.Hour
	c.Past = storage.Past{Retention: 24 * time.Hour, Bytes: 256 << 20,
		Without: []string{"events", "leases.coordination.k8s.io"}}
	c.Backup.Retention = c.Past.Retention
	c.BindAddress, c.SecurePort = "127.0.0.1", 6443
	c.ServiceAccounts = ServiceAccounts{Lookup: true, Extend: true}
	c.TokenWebhook = TokenWebhook{Version: "v1beta1", CacheTTL: 2 * time.Minute}
	c.OIDC = OIDC{UsernameClaim: "sub", SigningAlgs: []string{"RS256"}}
	c.AnonymousAuth = true
	c.AuthorizationModes = []string{"RBAC"}
	c.AuthorizationWebhook = AuthorizationWebhook{
		Version: "v1beta1", AuthorizedTTL: authz.AuthorizedTTL, UnauthorizedTTL: authz.UnauthorizedTTL,
	}
	c.AllowPrivileged, c.NotReadyTolerationSeconds, c.UnreachableTolerationSeconds = true, 300, 300
	c.EndpointReconciler, c.APIServerCount = "lease", 1
	c.RequestTimeout, c.MinRequestTimeout = time.Minute, 1800
	c.PriorityAndFairness, c.MaxRequestsInflight, c.MaxMutatingInflight = true, 400, 200
	c.Audit, c.Logger = audit.Defaults(), slog.Default()
	c.Aggregation = Aggregation{OwnAuthority: true, RejectRedirects: true}
	c.Kubelets = nodes.DefaultKubelets()
	c.GarbageCollection, c.Controllers = true, plane.Controllers{"*"}
	c.Services = addresses.Flags{NodePortRange: "30000-32767"}
	return c
}

// features returns the feature gates, and the names of gates that were set but have no effect in this server.
func (c *Config) features() (set features.Set, ignored []string, err error) {
	v, err := c.releases()
	if err != nil {
		return set, nil, err
	}
	return v.Parse(strings.Join(c.FeatureGates, ","))
}

// releases are the releases that the server behaves like.
func (c *Config) releases() (features.Versions, error) {
	return features.ParseVersions(c.EmulatedVersion, c.MinCompatibilityVersion)
}

// validate returns all errors of the configuration, joined.
func (c *Config) validate() error {
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Storage != "embedded" && c.Storage != "memory" {
		refuse("--storage: %q is neither embedded nor memory", c.Storage)
	}
	switch {
	case len(c.Etcd.Servers) > 0 && c.Storage != "embedded":
		refuse("--storage: %s cannot be combined with --etcd-servers, which is the place of the objects", c.Storage)
	case len(c.Etcd.Servers) == 0 && c.DataDir == "" && c.Storage != "memory" && c.Log == nil:
		refuse("--etcd-servers or --data-dir: one of them is needed, as the place of the objects")
	}
	c.Etcd.Validate(refuse)
	c.Encryption.Validate(refuse)
	if c.SecurePort < 0 || c.SecurePort > 65535 {
		refuse("--secure-port: %d is not between 0 and 65535", c.SecurePort)
	}
	c.validatePlanes(refuse)
	c.validatePlanesDomain(refuse)
	if (c.TLSCertFile == "") != (c.TLSKeyFile == "") {
		refuse("--tls-cert-file and --tls-private-key-file go together")
	}
	if _, err := c.tls(); err != nil {
		refuse("%w", err)
	}
	for _, directive := range c.StrictTransport {
		name, value, more := strings.Cut(directive, "=")
		if directive != "includeSubDomains" && directive != "preload" &&
			(name != "max-age" || !more || strings.Contains(value, "=")) {
			refuse("--strict-transport-security-directives: %q is none of max-age=SECONDS, includeSubDomains, preload",
				directive)
		}
	}
	if v, err := c.releases(); err != nil {
		refuse("--emulated-version, --min-compatibility-version: %w", err)
	} else if _, _, err := c.features(); err != nil {
		refuse("--feature-gates: %w", err)
	} else if v.Emulated == features.Current.Emulated && (c.Versions.EmulationForward || c.Versions.Forward) {
		refuse("--emulation-forward-compatible and --runtime-config-emulation-forward-compatible cannot be set to true if " +
			"the emulation version is the same as the binary version")
	}
	c.Versions.Validate(refuse)
	if err := c.Metrics.Validate(); err != nil {
		refuse("%w", err)
	}
	c.Controllers.Validate(refuse)
	c.validateAggregation(refuse)
	c.validatePeers(refuse)
	if _, err := c.Services.Config(); err != nil {
		refuse("%w", err)
	}
	if _, err := c.origins(); err != nil {
		refuse("%w", err)
	}
	errs = append(errs, c.validateNumbers(), c.Audit.Validate(), c.validateAccess(), c.validateAuthentication())
	c.complete()
	return errors.Join(errs...)
}

// inDataDir is the path of something in the data directory; "" if there is no such directory.
func (c *Config) inDataDir(elements ...string) string {
	if c.DataDir == "" {
		return ""
	}
	return filepath.Join(append([]string{c.DataDir}, elements...)...)
}

// complete sets the defaults that depend on the data directory.
func (c *Config) complete() {
	if c.WriteKubeconfig == "" {
		c.WriteKubeconfig = c.inDataDir("kubeconfig")
	}
}

func (c *Config) validateNumbers() error {
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for flag, address := range map[string]string{"--bind-address": c.BindAddress,
		"--advertise-address": c.AdvertiseAddress} {
		if net.ParseIP(address) == nil && (address != "" || flag == "--bind-address") {
			refuse("%s: %q is no IP address", flag, address)
		}
	}
	for flag, d := range map[string]time.Duration{
		"--request-timeout": c.RequestTimeout, "--event-ttl": c.EventTTL,
	} {
		if d <= 0 {
			refuse("%s: %s is not positive", flag, d)
		}
	}
	if (c.SigningCertFile == "") != (c.SigningKeyFile == "") {
		refuse("--cluster-signing-cert-file and --cluster-signing-key-file: one is set without the other")
	}
	if c.ShutdownDelay < 0 {
		refuse("--shutdown-delay-duration: %s is negative", c.ShutdownDelay)
	}
	if c.ShutdownWatches < 0 {
		refuse("--shutdown-watch-termination-grace-period: %s is negative", c.ShutdownWatches)
	}
	for flag, n := range map[string]int{
		"--min-request-timeout": c.MinRequestTimeout, "--max-requests-inflight": c.MaxRequestsInflight,
		"--kubernetes-service-node-port":   c.Services.NodePort,
		"--max-mutating-requests-inflight": c.MaxMutatingInflight, "--http2-max-streams-per-connection": c.HTTP2MaxStreams,
	} {
		if n < 0 {
			refuse("%s: %d is negative", flag, n)
		}
	}
	if c.PriorityAndFairness && c.MaxRequestsInflight+c.MaxMutatingInflight == 0 {
		refuse("--max-requests-inflight and --max-mutating-requests-inflight: their sum has to be positive, " +
			"as long as --enable-priority-and-fairness is true")
	}
	if port := c.PeerAdvertisePort; port != "" {
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			refuse("--peer-advertise-port: %q is no port", port)
		}
	}
	if c.APIServerCount <= 0 {
		refuse("--apiserver-count should be a positive number, but value '%d' provided", c.APIServerCount)
	}
	if c.WatchHistoryBytes <= 0 {
		refuse("--watch-history-bytes: %d is not positive", c.WatchHistoryBytes)
	}
	c.Past.Validate(refuse)
	c.Backup.Validate(refuse)
	if c.Backup.URL != "" && c.Storage != embedded {
		refuse("--backup-url: there is nothing to back up with --storage=%s", c.Storage)
	}
	if c.GoawayChance < 0 || c.GoawayChance > 0.02 {
		refuse("--goaway-chance: %g is not between 0 and 0.02", c.GoawayChance)
	}
	return errors.Join(errs...)
}

// origins compiles CORSAllowedOrigins. As in the reference each expression has to say where the host begins and ends:
// example\.com alone would also match evil-example.com.evil.org.
func (c *Config) origins() ([]*regexp.Regexp, error) {
	var all []*regexp.Regexp
	for _, text := range c.CORSAllowedOrigins {
		if !strings.Contains(text, "^") && !strings.Contains(text, "//") || !strings.ContainsAny(text, "$:") {
			return nil, fmt.Errorf("--cors-allowed-origins: %q does not say, with ^ or //, where a host begins, "+
				"and with $ or a colon where it ends", text)
		}
		compiled, err := regexp.Compile(text)
		if err != nil {
			return nil, fmt.Errorf("--cors-allowed-origins: %w", err)
		}
		all = append(all, compiled)
	}
	return all, nil
}
