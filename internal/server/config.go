package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"time"

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

	TokenAuthFile string // "": no tokens
	ClientCAFile  string // certificates of further authorities for clients; "": the server's own alone
	TLSCertFile   string // "": signed by the server's own authority
	TLSKeyFile    string

	FeatureGates        []string      // "A=true", "B=false"
	StrictTransport     []string      // directives of the Strict-Transport-Security header; none: there is no header
	RequestTimeout      time.Duration // of requests other than watches
	MinRequestTimeout   int           // seconds that a watch lasts at least, if it does not say how long
	MaxRequestsInflight int           // 0: no limit
	EventTTL            time.Duration // how long Events live
	WatchHistoryBytes   int64         // of history kept on disk
	Profiling           bool          // /debug/pprof is served to those who may do everything

	Flags map[string]string // the flags that all this was made of and their values, for /flagz; nil: there is no such page

	Logger *slog.Logger
	Now    func() time.Time // the clock by which objects and history age; nil: time.Now. Tests make it jump.
}

// Defaults are the settings of a server that is told nothing.
func Defaults() Config {
	return Config{
		DataDir: "plinth-data", Storage: "embedded", BindAddress: "127.0.0.1", SecurePort: 6443,
		RequestTimeout: time.Minute, MinRequestTimeout: 1800, MaxRequestsInflight: 400, EventTTL: time.Hour,
		WatchHistoryBytes: 512 << 20,
		Logger:            slog.Default(),
	}
}

// features are the feature gates, and the names of those that were set and mean nothing here.
func (c *Config) features() (set features.Set, ignored []string, err error) {
	return features.Parse(strings.Join(c.FeatureGates, ","))
}

func (c *Config) validate() error {
	var faults []error
	refuse := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if c.DataDir == "" {
		refuse("--data-dir: a directory is needed")
	}
	if c.Storage != "embedded" && c.Storage != "memory" {
		refuse("--storage: %q is none of embedded, memory", c.Storage)
	}
	if net.ParseIP(c.BindAddress) == nil {
		refuse("--bind-address: %q is no IP address", c.BindAddress)
	}
	if c.SecurePort < 0 || c.SecurePort > 65535 {
		refuse("--secure-port: %d is not between 0 and 65535", c.SecurePort)
	}
	if (c.TLSCertFile == "") != (c.TLSKeyFile == "") {
		refuse("--tls-cert-file and --tls-private-key-file go together")
	}
	if c.RequestTimeout <= 0 {
		refuse("--request-timeout: %s is not positive", c.RequestTimeout)
	}
	if c.MinRequestTimeout < 0 {
		refuse("--min-request-timeout: %d is negative", c.MinRequestTimeout)
	}
	for _, directive := range c.StrictTransport {
		name, value, more := strings.Cut(directive, "=")
		if directive != "includeSubDomains" && directive != "preload" && (name != "max-age" || !more || strings.Contains(value, "=")) {
			refuse("--strict-transport-security-directives: %q is none of max-age=SECONDS, includeSubDomains, preload", directive)
		}
	}
	if c.MaxRequestsInflight < 0 {
		refuse("--max-requests-inflight: %d is negative", c.MaxRequestsInflight)
	}
	if c.EventTTL <= 0 {
		refuse("--event-ttl: %s is not positive", c.EventTTL)
	}
	if c.WatchHistoryBytes <= 0 {
		refuse("--watch-history-bytes: %d is not positive", c.WatchHistoryBytes)
	}
	if _, _, err := c.features(); err != nil {
		refuse("--feature-gates: %w", err)
	}
	if c.WriteKubeconfig == "" {
		c.WriteKubeconfig = filepath.Join(c.DataDir, "kubeconfig")
	}
	return errors.Join(faults...)
}
