package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"time"

	"plinth/internal/access"
	"plinth/internal/audit"
	"plinth/internal/discovery"
	"plinth/internal/engine"
	"plinth/internal/fairness"
	"plinth/internal/features"
)

// Config has the parts that a Handler connects, and its limits.
type Config struct {
	Engine   *engine.Engine
	Registry *engine.Registry
	// Documents are the discovery and OpenAPI documents and /version.
	Documents *discovery.Documents

	// Authenticate returns the identity of the sender of a request; an error is 401. A user with neither a name nor
	// groups is anonymous.
	Authenticate func(context.Context, *http.Request) (*access.Identity, error)
	// Impersonate returns the user as whom the request continues. wanted is the user whom its headers name.
	Impersonate func(ctx context.Context, wanted access.User, asked *access.Attributes) (user access.User,
		constraint string, err error)
	// Authorizer decides whether a user may do something.
	Authorizer access.Authorizer
	// Auditor records requests; nil disables it.
	Auditor *audit.Auditor
	// Acquire takes the slot of a request, for which it may wait, or refuses the request. A request that needs no slot
	// gets a nil release. It is called before authorization, but after the body has been read if a verb reads it. Nil:
	// there is no limit on requests under way.
	Acquire func(ctx context.Context, class Class, asked *access.Attributes) (release func(), err error)
	// Fairness decides instead of Acquire which requests are served, which wait and which are refused. Nil: there is no
	// priority and fairness.
	Fairness *fairness.Fairness
	// Stats returns the figures of the objects of a type, by which Fairness knows what a list costs; nil if they are not
	// objects of this server.
	Stats func(group, version, resource string) *fairness.Stats
	// Backends finds who answers the requests to a group version, or to some of its resources or subresources. A
	// resource of "" is the path of the group version itself. Nil, and a nil result: the engine answers.
	Backends func(group, version, resource, subresource string) Backend
	// Peers finds another server of the same objects that answers the requests for a resource, if this one does not serve
	// it. Those that such a server has forwarded itself are not forwarded again. Nil: there is none.
	Peers func(group, version, resource string) Backend

	// Handlers serve paths outside of the API, and take precedence over this package: "/metrics", or "/console/" for
	// everything below it. They are authorized by path. A LastingHandler has no deadline.
	Handlers map[string]http.Handler
	// Pages are further documents by their paths.
	Pages map[string]Page
	// Statusz is the content of /statusz, and Flagz has the flags and their values for /flagz. Without it, the page does
	// not exist.
	Statusz *Statusz
	Flagz   map[string]string
	// Checks are run by /healthz, /livez and /readyz.
	Checks []Check

	RequestTimeout time.Duration // of requests other than watches; 0: one minute
	// MinRequestTimeout is the shortest duration of a watch without timeoutSeconds, which gets a random duration between
	// this and twice this, so that clients that connected together do not reconnect together. 0: 30 minutes.
	MinRequestTimeout time.Duration
	// StrictTransport is the value of the Strict-Transport-Security header of every answer. "" omits the header.
	StrictTransport string
	// Origins are the origins of web pages that may send requests. An empty list disables CORS.
	Origins []*regexp.Regexp
	// Console answers the requests to /console, and to everything below it: a page that has sessions (package console).
	// With it, what other servers answer to a browser is a page of another origin, and a page of another site cannot use
	// a browser's certificate. Nil: there is no console.
	Console http.Handler
	// Goaway is the share of HTTP/2 requests after which the server closes the connection with a GOAWAY frame, so that
	// the client opens another one. Without it, the long-lived connections of clients behind a load balancer would all
	// end up at the server that was started first.
	Goaway           float64
	BodyLimit        int64         // bytes; 0: 3 MiB
	BodyMemory       int64         // bytes of the bodies of all requests that hold no slot; 0: 256 MiB
	BodyGrace        time.Duration // how long a body may take, in addition to its length divided by bodyRate; 0: 10 s
	BookmarkInterval time.Duration // of watches with bookmarks; 0: one minute
	StallTimeout     time.Duration // how long a write of an answer may wait for its client; 0: 30 seconds
	StallMemory      int64         // bytes of answers that wait for their clients, shared ones aside; 0: 256 MiB
	EncodedBytes     int64         // memory of the cache of encoded objects; 0: 32 MiB
	Features         features.Set

	// Closing ends when the server is about to close: watches end with it, other requests are finished. Nil: it never
	// ends.
	Closing context.Context
	// Draining, if not nil, is told how the server ends.
	Draining *Draining

	Logger  *slog.Logger // nil: slog.Default
	Metrics Metrics
}

// Page is a document beside the API.
type Page struct {
	Type    string        // the media type
	Caching func() string // the Cache-Control header
	Body    func() ([]byte, error)
}

// LastingHandler is a handler whose answers take as long as their clients read: they have neither a deadline nor a
// slot, as watches have none. It has to end those whose clients have stopped.
type LastingHandler struct{ http.Handler }

// Check is one health check.
type Check struct {
	Name string
	Run  func(context.Context) error
	// ReadyOnly leaves it out of /healthz and /livez: the server is alive, but must not get requests.
	ReadyOnly bool
	// NotLive leaves it out of /livez: a restart does not help.
	NotLive bool
	// LiveOnly leaves it out of /readyz: only a restart helps.
	LiveOnly bool
}

// Metrics are callbacks on the goroutine of the request. Nil functions are not called.
type Metrics struct {
	// Request is called for every request after its answer.
	Request func(Observation)
	// InFlight is called when the number of requests under way changes, other than that of class LongRunning.
	InFlight func(class Class, delta int)
	// LongRunning is called when a request of this class is routed, and when it has ended. The Code, Took and Bytes of
	// the Observation mean nothing.
	LongRunning func(of Observation, delta int)
	// Listed is called when a watch has sent its initial events.
	Listed func(group, version, resource, scope string, took time.Duration)
	// EventSizes returns what is told the bytes of each event of a watch; nil: nobody is.
	EventSizes func(group, version, resource string, custom bool) interface{ Observe(bytes float64) }
	// Authenticated is called with the result of authentication: "success", or "error" for invalid credentials.
	Authenticated func(result string, user *access.User, took time.Duration)
	// Authorized is called with the decision of the authorizer: "allowed", "denied", "no-opinion" or "error".
	Authorized func(result string, took time.Duration)
	// Checked is called with the result of a health check. endpoint is "healthz", "livez" or "readyz".
	Checked func(check, endpoint string, healthy bool)
	// Events is called when a watch has written events, with their number and their size in bytes.
	Events func(group, version, resource string, events, bytes int)
}

// Class is the kind of a request for the limits on how many are under way.
type Class uint8

// The classes.
const (
	ReadOnly Class = iota
	Mutating
	LongRunning // watches, connections and purges: outside of the limits and without a deadline
)

var classNames = [...]string{"readOnly", "mutating", "longRunning"}

// String is the class as the reference's metrics name it.
func (c Class) String() string { return classNames[c] }

// Observation is one answered request.
type Observation struct {
	Verb                                  string // in upper case, as the reference's metrics have it: "LIST"
	Custom                                bool   // of a custom type, of which there may be thousands
	Group, Version, Resource, Subresource string
	Scope                                 string // "cluster", "namespace", "resource" or ""
	DryRun                                bool
	Code                                  int
	Class                                 Class
	Deprecated                            string // the warning that the resource is; "": it is not
	Took                                  time.Duration
	Waited                                time.Duration // of Took: for seats, and for webhooks
	Bytes                                 int64         // of the body
	Rejected                              bool          // by the limit on requests under way
}

func (c *Config) validate() error {
	var errs []error
	need := func(ok bool, what string) {
		if !ok {
			errs = append(errs, errors.New("httpapi: "+what+" is needed"))
		}
	}
	need(c.Engine != nil, "Engine")
	need(c.Registry != nil, "Registry")
	need(c.Documents != nil, "Documents")
	need(c.Authenticate != nil, "Authenticate")
	need(c.Impersonate != nil, "Impersonate")
	need(c.Authorizer != nil, "Authorizer")
	for _, d := range []struct {
		name      string
		value     *time.Duration
		otherwise time.Duration
	}{
		{"RequestTimeout", &c.RequestTimeout, time.Minute},
		{"MinRequestTimeout", &c.MinRequestTimeout, 30 * time.Minute},
		{"BookmarkInterval", &c.BookmarkInterval, time.Minute},
		{"StallTimeout", &c.StallTimeout, 30 * time.Second},
		{"BodyGrace", &c.BodyGrace, 10 * time.Second},
	} {
		if *d.value < 0 {
			errs = append(errs, fmt.Errorf("httpapi: %s is %s, which is negative", d.name, *d.value))
		}
		if *d.value == 0 {
			*d.value = d.otherwise
		}
	}
	if c.BodyLimit == 0 {
		c.BodyLimit = 3 << 20
	}
	if c.BodyMemory == 0 {
		c.BodyMemory = 256 << 20
	}
	if c.StallMemory == 0 {
		c.StallMemory = 256 << 20
	}
	if c.EncodedBytes == 0 {
		c.EncodedBytes = 32 << 20
	}
	if c.BodyLimit < 0 || c.BodyMemory < 0 || c.EncodedBytes < 0 {
		errs = append(errs, fmt.Errorf("httpapi: BodyLimit is %d, BodyMemory %d and EncodedBytes %d; none may be negative",
			c.BodyLimit, c.BodyMemory, c.EncodedBytes))
	}
	if c.StallMemory < 0 {
		errs = append(errs, fmt.Errorf("httpapi: StallMemory is %d, which is negative", c.StallMemory))
	}
	if c.Acquire == nil {
		c.Acquire = NewSlots(0, nil, nil).Acquire
	}
	if c.Closing == nil {
		c.Closing = context.Background()
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return errors.Join(errs...)
}
