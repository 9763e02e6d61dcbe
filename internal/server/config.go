package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"plinth/internal/audit"
	"plinth/internal/authz"
	"plinth/internal/features"
)

// Config is everything that a server can be told. The names are those of the flags; where kube-apiserver has the same
// thing, it has the same name.
type Config struct {
	DataDir         string // certificates, kubeconfig and, with embedded storage, all objects
	Storage         string // "embedded" or "memory"
	BindAddress     string
	SecurePort      int    // 0 lets the system choose
	WriteKubeconfig string // "": DataDir/kubeconfig

	// EtcdServers is the URL of a stub of etcd, which says where DataDir is, in place of DataDir itself: the folder
	// EtcdPrefix of what the stub names. The files are for a URL with TLS. StorageTimeout is how long the stub may take to
	// answer.
	EtcdServers               []string
	EtcdPrefix                string
	EtcdCAFile                string
	EtcdCertFile, EtcdKeyFile string
	StorageTimeout            time.Duration

	TokenAuthFile string // "": no tokens
	ClientCAFile  string // certificates of further authorities for clients; "": the server's own alone
	TLSCertFile   string // "": the one in CertDir
	TLSKeyFile    string
	// holds apiserver.crt and apiserver.key, and is given them; "": a pair of the server's own authority
	CertDir  string
	TLSNamed []string // CERT,KEY or CERT,KEY:NAME,NAME: further certificates, for clients that ask for these names

	TLSMinVersion        string   // Go's name of it; "": VersionTLS12
	TLSCipherSuites      []string // Go's names; none: Go's choice
	TLSCurves            []int32  // Go's numbers; none: Go's choice
	DisableHTTP2         bool
	HTTP2MaxStreams      int  // on one connection; 0: 1000
	PermitAddressSharing bool // SO_REUSEADDR
	PermitPortSharing    bool // SO_REUSEPORT

	Audit           audit.Options // what is written down of requests, and where
	FrontProxy      FrontProxy
	BootstrapTokens bool // Secrets of type bootstrap.kubernetes.io/token let nodes in
	ServiceAccounts ServiceAccounts
	APIAudiences    []string // what tokens have to be for; none: the issuers of ServiceAccounts

	AuthenticationConfig string // a file with OpenID Connect issuers and with who is let in without credentials; "": none
	OIDC                 OIDC
	TokenWebhook         TokenWebhook

	AnonymousAuth      bool     // who shows no credentials is somebody; false: is refused
	AnonymousAuthGiven bool     // whether that was said
	AuthorizationModes []string // AlwaysAllow, AlwaysDeny, Node, RBAC, Webhook: who is asked what somebody may do
	// AuthorizationWebhook is for the mode Webhook. AuthorizationConfig is a file that takes the place of both; it is
	// followed.
	AuthorizationWebhook AuthorizationWebhook
	AuthorizationConfig  string

	AdmissionControl []string // admission plugins, and no others; none: as it comes
	EnableAdmission  []string
	DisableAdmission []string
	AllowPrivileged  bool

	// GarbageCollection has deletes add and remove the finalizers by which a garbage collector knows what is to become of
	// dependents. Whether this server runs one is for Controllers to say.
	GarbageCollection bool

	// Controllers are those of kube-controller-manager that the server runs itself, as its --controllers has them: "*" is
	// all, NAME is one, -NAME is without it.
	Controllers []string

	AdvertiseAddress string // where discovery documents say that the server is; "": where it listens
	ExternalHostname string // likewise; goes before AdvertiseAddress
	// ServiceClusterIPRange is where the addresses of Services come from: one range, or two of different families,
	// separated by a comma; "": 10.0.0.0/24. The Service kubernetes has the first address. ServiceNodePortRange is where
	// their ports on nodes come from; "": 30000-32767. ServiceNodePort is that of the Service kubernetes; 0: none.
	// EndpointReconciler "none" leaves the Service without endpoints.
	ServiceClusterIPRange string
	ServiceNodePortRange  string
	ServiceNodePort       int
	EndpointReconciler    string

	CORSAllowedOrigins []string // regular expressions; none: there is no CORS
	RuntimeConfig      []string // "GROUP/VERSION=true", "api/beta=false"

	FeatureGates        []string      // "A=true", "B=false"
	StrictTransport     []string      // directives of the Strict-Transport-Security header; none: there is no header
	RequestTimeout      time.Duration // of requests other than watches
	MinRequestTimeout   int           // seconds that a watch lasts at least, if it does not say how long
	PriorityAndFairness bool          // one limit on requests under way, the sum of the following; else each has its own
	MaxRequestsInflight int           // of those that read; 0: none
	MaxMutatingInflight int           // of those that write; 0: none
	GoawayChance        float64       // the share of HTTP/2 requests that end their connection
	ShutdownDelay       time.Duration // how long the server goes on when it is told to end
	EventTTL            time.Duration // how long Events live
	WatchHistoryBytes   int64         // of history kept on disk
	Profiling           bool          // /debug/pprof is served to those who may do everything
	ContentionProfiling bool          // with Profiling: blocking is profiled, too
	DebugSocket         string        // a Unix socket that serves /debug/pprof; "": none

	noSync bool // what is stored need not survive a loss of power: the stub of EtcdServers says so

	Flags map[string]string // the flags that all this was made of and their values, for /flagz; nil: there is no such page

	Logger *slog.Logger
	Now    func() time.Time // the clock by which objects and history age; nil: time.Now. Tests make it jump.
}

// Defaults are the settings of a server that is told nothing.
func Defaults() Config {
	return Config{
		DataDir: "plinth-data", Storage: "embedded", BindAddress: "127.0.0.1", SecurePort: 6443,
		EndpointReconciler: "lease", ServiceNodePortRange: "30000-32767", GarbageCollection: true, Controllers: []string{"*"},
		EtcdPrefix: "/registry", StorageTimeout: time.Minute,
		Audit:           audit.Defaults(),
		ServiceAccounts: ServiceAccounts{Lookup: true, Extend: true},
		TokenWebhook:    TokenWebhook{Version: "v1beta1", CacheTTL: 2 * time.Minute},
		OIDC:            OIDC{UsernameClaim: "sub", SigningAlgs: []string{"RS256"}},
		AnonymousAuth:   true, AuthorizationModes: []string{"RBAC"}, AllowPrivileged: true,
		AuthorizationWebhook: AuthorizationWebhook{
			Version: "v1beta1", AuthorizedTTL: authz.AuthorizedTTL, UnauthorizedTTL: authz.UnauthorizedTTL,
		},
		RequestTimeout: time.Minute, MinRequestTimeout: 1800, EventTTL: time.Hour,
		PriorityAndFairness: true, MaxRequestsInflight: 400, MaxMutatingInflight: 200,
		WatchHistoryBytes: 512 << 20,
		Logger:            slog.Default(),
	}
}

// features are the feature gates, and the names of those that were set and mean nothing here.
func (c *Config) features() (set features.Set, ignored []string, err error) {
	return features.Parse(strings.Join(c.FeatureGates, ","))
}

// validate names everything that is wrong.
func (c *Config) validate() error {
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Storage != "embedded" && c.Storage != "memory" {
		refuse("--storage: %q is none of embedded, memory", c.Storage)
	}
	switch {
	case len(c.EtcdServers) > 1:
		refuse("--etcd-servers: %d are one too many for a stub, and etcd as the store is not there yet", len(c.EtcdServers))
	case len(c.EtcdServers) == 1 && c.Storage != "embedded":
		refuse("--storage: %s keeps nothing where --etcd-servers says", c.Storage)
	case len(c.EtcdServers) == 0 && c.DataDir == "":
		refuse("--etcd-servers or --data-dir: a place for the objects is needed")
	}
	if (c.EtcdCertFile == "") != (c.EtcdKeyFile == "") {
		refuse("--etcd-certfile and --etcd-keyfile go together")
	}
	if c.SecurePort < 0 || c.SecurePort > 65535 {
		refuse("--secure-port: %d is not between 0 and 65535", c.SecurePort)
	}
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
	if _, _, err := c.features(); err != nil {
		refuse("--feature-gates: %w", err)
	}
	if _, err := c.versions(); err != nil {
		refuse("%w", err)
	}
	c.validateControllers(refuse)
	if _, err := c.allocator(); err != nil {
		refuse("%w", err)
	}
	if _, err := c.origins(); err != nil {
		refuse("%w", err)
	}
	errs = append(errs, c.validateNumbers(), c.Audit.Validate(), c.validateAccess(), c.validateAuthentication())
	c.complete()
	return errors.Join(errs...)
}

// complete fills in what follows from the data directory.
func (c *Config) complete() {
	if c.WriteKubeconfig == "" && c.DataDir != "" {
		c.WriteKubeconfig = filepath.Join(c.DataDir, "kubeconfig")
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
		"--storage-initialization-timeout": c.StorageTimeout,
	} {
		if d <= 0 {
			refuse("%s: %s is not positive", flag, d)
		}
	}
	if c.ShutdownDelay < 0 {
		refuse("--shutdown-delay-duration: %s is negative", c.ShutdownDelay)
	}
	for flag, n := range map[string]int{
		"--min-request-timeout": c.MinRequestTimeout, "--max-requests-inflight": c.MaxRequestsInflight,
		"--kubernetes-service-node-port":   c.ServiceNodePort,
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
	if c.WatchHistoryBytes <= 0 {
		refuse("--watch-history-bytes: %d is not positive", c.WatchHistoryBytes)
	}
	if c.GoawayChance < 0 || c.GoawayChance > 0.02 {
		refuse("--goaway-chance: %g is not between 0 and 0.02", c.GoawayChance)
	}
	return errors.Join(errs...)
}

// origins are those of CORSAllowedOrigins. As in the reference each has to say where a host begins and ends: otherwise
// example\.com would let evil-example.com.evil.org in.
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
