package main

import (
	"errors"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"plinth/internal/plane"
	"plinth/internal/server"
)

// settings are the settings that the flags of the server set.
type settings struct {
	server.Config
	logLevel   string // the lowest level that is logged
	verbosity  string // klog's level
	logFormat  string
	configFile string
	version    string // the value of --version; "false" if it was not given
}

// serveFlags lists all flags of kube-apiserver 1.37 in the sections of its help, and the flags that only Plinth has.
func serveFlags(c *settings) table {
	return table{
		{"Plinth", plinthFlags(c)},
		{"Generic", genericFlags(c)},
		{"Etcd", etcdFlags(c)},
		{"Secure serving", servingFlags(c)},
		{"Auditing", auditFlags(c)},
		{"Features", featureFlags(c)},
		{"Authentication", authenticationFlags(c)},
		{"Authorization", authorizationFlags(c)},
		{"API enablement", []row{
			{"runtime-config", mapping(&c.Versions.Pairs), works, "versions of the API to turn on or off: " +
				"GROUP/VERSION=true|false, GROUP/VERSION/RESOURCE=true|false, api/all, api/ga, api/beta, " +
				"api/alpha; " +
				"versions that this server does not have are named in the log", ""},
		}},
		{"Egress selector", []row{
			{"egress-selector-config-file", text(new(string)), refused, "a proxy for outgoing connections", ""},
		}},
		{"Admission", admissionFlags(c)},
		{"Metrics", metricFlags(c)},
		{"Logs", logFlags(c)},
		{"Traces", []row{
			{"tracing-config-file", text(new(string)), ignored, "there is no tracing", ""},
		}},
		{"Misc", miscFlags(c)},
		{"Global", []row{
			{"version", version(&c.version), works, "print the version of Kubernetes that is served, and exit", ""},
		}},
	}
}

const setCurrentContext = "set-current-context"

func plinthFlags(c *settings) []row {
	return []row{
		{configFlag, text(&c.configFile), plinthOnly,
			"a file of YAML with the names of flags as keys; what the command line gives wins", ""},
		{"data-dir", text(&c.DataDir), plinthOnly,
			"the directory of certificates, the kubeconfig and all objects, unless --etcd-servers names another " +
				"one", ""},
		{"storage", oneOf(&c.Storage, "embedded", "memory"), plinthOnly,
			"embedded: on disk, in the data directory; memory: lost when the server ends", ""},
		{"write-kubeconfig", text(&c.WriteKubeconfig), plinthOnly,
			"the kubeconfig to add the administrator's access to, as the context of --context-name; what else is in the file " +
				"stays; by default kubeconfig in the data directory", ""},
		{"context-name", text(&c.ContextName), plinthOnly,
			"the name of the cluster and the context in the kubeconfig; the user is NAME-admin", ""},
		{setCurrentContext, boolean(&c.SetCurrentContext), plinthOnly,
			"make it the current context of a kubeconfig that exists, too; in a new one it is", ""},
		{"watch-history-bytes", integer64(&c.WatchHistoryBytes), plinthOnly,
			"the size of the history on disk, from which watches that are slow or reconnect continue", ""},
		{"history-retention", duration(&c.Past.Retention), plinthOnly,
			"for how long the past of objects is kept: what they were at a resourceVersion, and who changed what; 0: not at " +
				"all", ""},
		{"history-bytes", integer64(&c.Past.Bytes), plinthOnly,
			"how much room the past of objects takes on disk; what is older is removed; 0: nothing is kept", ""},
		{"history-without", list(&c.Past.Without), plinthOnly,
			"types whose past is not kept: RESOURCE, or RESOURCE.GROUP", ""},
		{"backup-url", text(&c.Backup.URL), plinthOnly,
			"where all objects are copied to, each second: file:///DIRECTORY, which may be of a mounted file system, or " +
				"s3://BUCKET/PATH, gs:// or azblob://, for which the program plinth-cloud is needed; plinth restore makes a " +
				"data directory of it", ""},
		{"backup-retention", duration(&c.Backup.Retention), plinthOnly,
			"for how long back a state can be restored from --backup-url", ""},
		{"cluster-signing-cert-file", text(&c.SigningCertFile), plinthOnly,
			"a PEM file of the authority that signs the server's certificates, those of its administrator, and those of " +
				"CertificateSigningRequests, as kube-controller-manager's flag; by default one is made in the data directory. " +
				"Servers with --etcd-servers need the same, and sign no requests without it", ""},
		{"cluster-signing-key-file", text(&c.SigningKeyFile), plinthOnly,
			"the private key of --cluster-signing-cert-file", ""},
		{"controllers", list((*[]string)(&c.Controllers)), plinthOnly,
			"the controllers of kube-controller-manager that the server runs itself: * is all, NAME is one, -NAME is " +
				"all but one (" + strings.Join(plane.KnownControllers(), ", ") + "); started as kube-apiserver, none", ""},
		{"console", boolean(&c.Console), plinthOnly,
			"serve the console, a page for browsers, at /console; started as kube-apiserver, it is off", ""},
		{"console-oidc-client-secret-file", assignments(&c.ConsoleSecrets), plinthOnly,
			"ISSUER=FILE: a file with the secret of the console as a client of an OpenID Connect issuer that requires one; for " +
				"each such issuer once; it is read when a user signs in", ""},
		{"planes", boolean(&c.Planes), plinthOnly,
			"serve control planes besides this one, as objects of the type Plane: each is a whole API of its own at " +
				"/clusters/NAME", ""},
		{"planes-egress", list(&c.PlanesEgress), plinthOnly,
			"addresses to which planes may connect although they are of this machine or of its network alone (loopback, " +
				"link-local), as prefixes: 127.0.0.1/32; planes may connect to all others", ""},
		{"planes-domain", text(&c.PlanesDomain), plinthOnly,
			"the domain in which planes have host names: with planes.example.com, the plane a is at a.planes.example.com, " +
				"too; the server's own certificate is for these names", ""},
		{"log-level", oneOf(&c.logLevel, "debug", "info", "warn", "error"), plinthOnly,
			"the lowest level to log: debug, info, warn or error", ""},
	}
}

func genericFlags(c *settings) []row {
	return []row{
		{"advertise-address", address(&c.AdvertiseAddress), works,
			"the server's IP address in discovery documents and in the endpoints of the Service kubernetes; " +
				"" +
				"by default the one that it listens on", ""},
		{"cors-allowed-origins", list(&c.CORSAllowedOrigins), works,
			"regular expressions for the origins of web pages that may send requests (CORS)", ""},
		{"emulated-version", list(&c.EmulatedVersion), works,
			"the release to behave like, 1.34 to 1.37: what is served, and the defaults of feature gates", ""},
		{"emulation-forward-compatible", boolean(&c.Versions.EmulationForward), works,
			"serve versions of types that came after the emulated release, if a lower one is served, except alpha ones", ""},
		{"external-hostname", text(&c.ExternalHostname), works,
			"the server's host in discovery documents, in its certificate and in the kubeconfig", ""},
		{"feature-gates", list(&c.FeatureGates), works,
			"feature gates of kube-apiserver, comma-separated: NAME=true|false", ""},
		{"goaway-chance", float(&c.GoawayChance), works,
			"the share of HTTP/2 requests after which the connection is closed, so that clients spread over " +
				"several servers: 0 to 0.02", ""},
		{"livez-grace-period", duration(new(time.Duration)), ignored, "a server that answers has started", ""},
		{"max-mutating-requests-inflight", integer(&c.MaxMutatingInflight), works,
			"this and --max-requests-inflight are added up to the seats that priority and fairness divides; if " +
				"--enable-priority-and-fairness is false, the limit for writing requests alone (0: no limit)", ""},
		{"max-requests-inflight", integer(&c.MaxRequestsInflight), works,
			"this and --max-mutating-requests-inflight are added up to the seats that priority and fairness divides; if " +
				"--enable-priority-and-fairness is false, the limit for reading requests alone (0: no limit)", ""},
		{"min-compatibility-version", list(&c.MinCompatibilityVersion), works,
			"the oldest release that has to be able to read what is stored; by default the one before the emulated one", ""},
		{"min-request-timeout", integer(&c.MinRequestTimeout), works,
			"the shortest time of a watch without timeoutSeconds, in seconds; such a watch ends at a random time " +
				"between this and twice this", ""},
		{"request-timeout", duration(&c.RequestTimeout), works, "the time limit of a request other than a watch", ""},
		{"runtime-config-emulation-forward-compatible", boolean(&c.Versions.Forward), works,
			"serve what --runtime-config names, also if it came after the emulated release", ""},
		{"shutdown-delay-duration", duration(&c.ShutdownDelay), works,
			"how long the server still serves after it is told to end; /readyz fails in that time", ""},
		{"shutdown-send-retry-after", boolean(&c.ShutdownRetryAfter), works,
			"after --shutdown-delay-duration, keep the port open until the requests under way are finished, and answer others " +
				"with 429, so that clients repeat them; otherwise the port is closed at once", ""},
		{"shutdown-watch-termination-grace-period", duration(&c.ShutdownWatches), works,
			"over which time watches end after --shutdown-delay-duration, so that clients do not all come back at once " +
				"(200 watches in a second at least); 0: all end at once, and clients continue them from their last resourceVersion", ""},
		{"storage-initialization-timeout", duration(&c.Etcd.Timeout), works,
			"how long to wait for an answer of --etcd-servers", ""},
		{"strict-transport-security-directives", list(&c.StrictTransport), works,
			"directives of the Strict-Transport-Security header, comma-separated: max-age=SECONDS, " +
				"includeSubDomains, preload; empty: the header is not sent", ""},
	}
}

func etcdFlags(c *settings) []row {
	const memory = "all reads are from memory"
	return []row{
		{"delete-collection-workers", integer(new(1)), ignored, "a collection is deleted in batches", ""},
		{"enable-garbage-collector", boolean(&c.GarbageCollection), works,
			"deletes add the finalizers foregroundDeletion and orphan; --controllers says whether this server collects garbage itself", ""},
		{"encryption-provider-config", text(&c.Encryption.ConfigFile), works,
			"a file that says which resources are encrypted on disk, and how: an EncryptionConfiguration of " +
				"apiserver.config.k8s.io (docs/encryption.md)", ""},
		{"encryption-provider-config-automatic-reload", boolean(&c.Encryption.Reload), works,
			"reload the file of --encryption-provider-config when it changes", ""},
		{"etcd-cafile", text(&c.Etcd.CAFile), works, "the authority of an https:// URL in --etcd-servers", ""},
		{"etcd-certfile", text(&c.Etcd.CertFile), works,
			"the client certificate for an https:// URL in --etcd-servers; it is read again when it changes", ""},
		{"etcd-compaction-interval", duration(&c.Etcd.CompactionInterval), works,
			"how often the history of etcd is compacted; 0: never, by this server", ""},
		{"etcd-count-metric-poll-period", duration(new(time.Minute)), ignored,
			"objects are counted when /metrics is read", ""},
		{"etcd-db-metric-poll-interval", duration(&c.Etcd.SizeInterval), works,
			"how often etcd is asked for its size, when /metrics is read; the embedded store is always asked", ""},
		{"etcd-healthcheck-timeout", duration(&c.Etcd.HealthTimeout), works,
			"how long the health check etcd waits for an answer of etcd", ""},
		{"etcd-keyfile", text(&c.Etcd.KeyFile), works, "the private key of --etcd-certfile", ""},
		{"etcd-prefix", text(&c.Etcd.Prefix), works,
			"the prefix of all keys in etcd; with the etcd stub, the folder in its data directory", ""},
		{"etcd-readycheck-timeout", duration(&c.Etcd.ReadyTimeout), works,
			"how long the health check etcd-readiness waits for an answer of etcd", ""},
		{"etcd-servers", list(&c.Etcd.Servers), works,
			"the URLs of an etcd in which all objects are stored, comma-separated; or the URL of the etcd stub " +
				"(docs/envtest.md), which names a data directory", ""},
		{"etcd-servers-overrides", list(&c.Etcd.Overrides), works,
			"another etcd for Events: /events#URL;URL", ""},
		{"lease-reuse-duration-seconds", integer64(&c.Etcd.LeaseReuseSeconds), works,
			"how long objects that expire share a lease of etcd", ""},
		{"storage-backend", oneOf(new(string), "", "etcd3"), ignored, "there is one kind of etcd", ""},
		{"storage-media-type", oneOf(&c.Etcd.MediaType, "application/json", "application/yaml",
			"application/vnd.kubernetes.protobuf"), works, "the form of built-in objects in etcd; YAML is not supported", ""},
		{"watch-cache", boolean(new(true)), ignored, memory, ""},
		{"watch-cache-sizes", list(new([]string)), ignored, memory, ""},
	}
}

func servingFlags(c *settings) []row {
	return []row{
		{"bind-address", text(&c.BindAddress), works, "the IP address to listen on; 0.0.0.0 and :: are all addresses",
			"a server that is tried out should not be reachable from other machines; as kube-apiserver it is 0.0.0.0"},
		{"cert-dir", text(&c.CertDir), works,
			"the directory of the server's certificate, apiserver.crt and apiserver.key, which are created if missing",
			"pki in the data directory; as kube-apiserver it is the reference's"},
		{"disable-http2-serving", boolean(&c.DisableHTTP2), works, "serve HTTP/1.1 only", ""},
		{"http2-max-streams-per-connection", integer(&c.HTTP2MaxStreams), works,
			"the limit of requests at the same time on one HTTP/2 connection; 0: 1000", ""},
		{"permit-address-sharing", boolean(&c.PermitAddressSharing), works, "listen with SO_REUSEADDR", ""},
		{"permit-port-sharing", boolean(&c.PermitPortSharing), works, "listen with SO_REUSEPORT", ""},
		{"secure-port", integer(&c.SecurePort), works, "the port to listen on with TLS; 0 picks a free one", ""},
		{"tls-cert-file", text(&c.TLSCertFile), works,
			"the server's certificate; by default it is in --cert-dir. It is read again when it changes", ""},
		{"tls-cipher-suites", list(&c.TLSCipherSuites), works,
			"the cipher suites of TLS 1.2 that may be used, by the names of Go and of kube-apiserver; empty: Go's choice", ""},
		{"tls-curve-preferences", integers(&c.TLSCurves), works,
			"the key exchanges that may be used, by the numbers of Go's crypto/tls; empty: Go's choice", ""},
		{"tls-min-version", text(&c.TLSMinVersion), works,
			"the lowest TLS version that is accepted: VersionTLS10, VersionTLS11, VersionTLS12 or VersionTLS13; empty: " +
				"VersionTLS12", ""},
		{"tls-private-key-file", text(&c.TLSKeyFile), works, "the private key of --tls-cert-file", ""},
		{"tls-sni-cert-key", array(&c.TLSNamed), works,
			"CERT,KEY or CERT,KEY:NAME,NAME: another certificate, for clients that ask for one of these server names, or " +
				"for one in the certificate; the files are read again when they change", ""},
	}
}

func auditFlags(c *settings) []row {
	log, hook := &c.Audit.Log, &c.Audit.Webhook
	const (
		buffered  = "in mode batch: how many events may wait; further ones are dropped and counted"
		together  = "in mode batch: how many events one batch may have"
		waiting   = "in mode batch: how long a batch waits for more events"
		burst     = "in mode batch: how many batches may be delivered without the limit per second"
		throttled = "in mode batch: limit the batches per second"
		rate      = "in mode batch: how many batches are delivered per second"
		mode      = "batch: events wait in a queue; blocking: they are delivered before the request goes on; " +
			"blocking-strict: a request whose event cannot be delivered is refused"
		truncated = "truncate events that are too large, and split batches that are too large"
		batchMax  = "largest size of a batch in bytes, if --%s is set"
		eventMax  = "largest size of an event in bytes: a larger one loses its bodies, and is dropped if it is still too large"
		versions  = "the version of the events: audit.k8s.io/v1"
	)
	return []row{
		{"audit-log-batch-buffer-size", integer(&log.BufferSize), works, buffered, ""},
		{"audit-log-batch-max-size", integer(&log.BatchSize), works, together, ""},
		{"audit-log-batch-max-wait", duration(&log.BatchWait), works, waiting, ""},
		{"audit-log-batch-throttle-burst", integer(&log.Burst), works, burst, ""},
		{"audit-log-batch-throttle-enable", boolean(&log.Throttle), works, throttled, ""},
		{"audit-log-batch-throttle-qps", float(&log.QPS), works, rate, ""},
		{"audit-log-compress", boolean(&log.Compress), works, "compress old files of the audit log by gzip", ""},
		{"audit-log-format", text(&log.Format), works, "json, or legacy: a line of text for each event", ""},
		{"audit-log-maxage", integer(&log.MaxAge), works, "how many days an old file of the audit log is kept; 0: forever",
			""},
		{"audit-log-maxbackup", integer(&log.MaxBackup), works, "how many old files of the audit log are kept; 0: all", ""},
		{"audit-log-maxsize", integer(&log.MaxSize), works,
			"the size in megabytes at which the audit log is renamed and a new one is begun; 0: no limit", ""},
		{"audit-log-mode", text(&log.Mode), works, mode, ""},
		{"audit-log-path", text(&log.Path), works,
			"the file of the audit log, - for standard output; --audit-policy-file says what is written to it", ""},
		{"audit-log-truncate-enabled", boolean(&log.Truncate), works, truncated, ""},
		{"audit-log-truncate-max-batch-size", integer64(&log.MaxBatchBytes), works,
			strings.Replace(batchMax, "%s", "audit-log-truncate-enabled", 1), ""},
		{"audit-log-truncate-max-event-size", integer64(&log.MaxEventBytes), works, eventMax, ""},
		{"audit-log-version", text(&log.Version), works, versions, ""},
		{"audit-policy-file", text(&c.Audit.PolicyFile), works,
			"which requests are recorded, and how much of them: a Policy of audit.k8s.io/v1", ""},
		{"audit-webhook-batch-buffer-size", integer(&hook.BufferSize), works, buffered, ""},
		{"audit-webhook-batch-max-size", integer(&hook.BatchSize), works, together, ""},
		{"audit-webhook-batch-max-wait", duration(&hook.BatchWait), works, waiting, ""},
		{"audit-webhook-batch-throttle-burst", integer(&hook.Burst), works, burst, ""},
		{"audit-webhook-batch-throttle-enable", boolean(&hook.Throttle), works, throttled, ""},
		{"audit-webhook-batch-throttle-qps", float(&hook.QPS), works, rate, ""},
		{"audit-webhook-config-file", text(&c.Audit.Webhook.ConfigFile), works,
			"a kubeconfig: the URL that audit events are sent to, and the credentials", ""},
		{"audit-webhook-initial-backoff", duration(&hook.InitialBackoff), works,
			"how long to wait after the first failure; each further wait is 1.5 times as long; five attempts in all", ""},
		{"audit-webhook-mode", text(&hook.Mode), works, mode, ""},
		{"audit-webhook-truncate-enabled", boolean(&hook.Truncate), works, truncated, ""},
		{"audit-webhook-truncate-max-batch-size", integer64(&hook.MaxBatchBytes), works,
			strings.Replace(batchMax, "%s", "audit-webhook-truncate-enabled", 1), ""},
		{"audit-webhook-truncate-max-event-size", integer64(&hook.MaxEventBytes), works, eventMax, ""},
		{"audit-webhook-version", text(&hook.Version), works, versions, ""},
	}
}

func featureFlags(c *settings) []row {
	return []row{
		{"contention-profiling", boolean(&c.ContentionProfiling), works,
			"record block profiles, if --profiling is on", ""},
		{"debug-socket-path", text(&c.DebugSocket), works,
			"a Unix socket that serves /debug/pprof to every process that may open it", ""},
		{"enable-priority-and-fairness", boolean(&c.PriorityAndFairness), works,
			"divide the sum of both --max-…-inflight among priority levels, in which requests wait for their turn; false: " +
				"each of the two is a limit, and further requests are refused at once", ""},
		{"profiling", boolean(&c.Profiling), works,
			"serve /debug/pprof to users whom authorization allows it", "off unless it is asked for"},
	}
}

func authenticationFlags(c *settings) []row {
	return []row{
		{"anonymous-auth", boolean(&c.AnonymousAuth), works,
			"requests without credentials are from system:anonymous; if false they are refused", ""},
		{"api-audiences", list(&c.APIAudiences), works,
			"the audiences of this API: a token has to be for one of them; by default the issuers of service account tokens", ""},
		{"authentication-config", text(&c.AuthenticationConfig), works,
			"an AuthenticationConfiguration: OpenID Connect issuers and anonymous requests; reloaded when it changes", ""},
		{"authentication-token-webhook-cache-ttl", duration(&c.TokenWebhook.CacheTTL), works,
			"how long the webhook's answer about a token is cached", ""},
		{"authentication-token-webhook-config-file", text(&c.TokenWebhook.ConfigFile), works,
			"a kubeconfig: the URL and credentials of a webhook that identifies the users of tokens", ""},
		{"authentication-token-webhook-version", text(&c.TokenWebhook.Version), works,
			"the version of the TokenReviews that the webhook gets: v1 or v1beta1", ""},
		{"client-ca-file", text(&c.ClientCAFile), works,
			"a PEM file of authorities whose client certificates are trusted, besides the server's own; it is read again when it " +
				"changes", ""},
		{"enable-bootstrap-token-auth", boolean(&c.BootstrapTokens), works,
			"accept the tokens in Secrets of type bootstrap.kubernetes.io/token in kube-system, by which nodes join", ""},
		{"oidc-ca-file", text(&c.OIDC.CAFile), works,
			"a PEM file of the authorities that verify the issuer's certificate; by default the system's", ""},
		{"oidc-client-id", text(&c.OIDC.ClientID), works, "the audience that tokens of the issuer must have", ""},
		{"oidc-groups-claim", text(&c.OIDC.GroupsClaim), works, "the claim with the user's groups", ""},
		{"oidc-groups-prefix", text(&c.OIDC.GroupsPrefix), works, "what is put before names of groups", ""},
		{"oidc-issuer-url", text(&c.OIDC.IssuerURL), works,
			"an OpenID Connect issuer whose tokens authenticate users; --authentication-config can name several", ""},
		{"oidc-required-claim", assignments(&c.OIDC.RequiredClaims), works,
			"a claim that tokens must have, with its value", ""},
		{"oidc-signing-algs", list(&c.OIDC.SigningAlgs), works, "the signature algorithms that are accepted", ""},
		{"oidc-username-claim", text(&c.OIDC.UsernameClaim), works, "the claim that is the user's name", ""},
		{"oidc-username-prefix", text(&c.OIDC.UsernamePrefix), works,
			"what is put before names of users; by default the issuer and #, unless the claim is email; - means no prefix", ""},
		{"requestheader-allowed-names", list(&c.FrontProxy.AllowedNames), works,
			"the common names of trusted proxies; empty: any name that --requestheader-client-ca-file has signed", ""},
		{"requestheader-client-ca-file", text(&c.FrontProxy.CAFile), works,
			"a PEM file of the authorities of authenticating proxies, which name the user in headers; " +
				"empty: no proxy is trusted. It is read again when it changes", ""},
		{"requestheader-extra-headers-prefix", list(&c.FrontProxy.ExtraPrefixes), works,
			"prefixes of the headers that hold extra attributes of the user", ""},
		{"requestheader-group-headers", list(&c.FrontProxy.GroupHeaders), works, "the headers that name groups of the user",
			""},
		{"requestheader-uid-headers", list(&c.FrontProxy.UIDHeaders), works, "the headers that name the UID of the user", ""},
		{"requestheader-username-headers", list(&c.FrontProxy.UserHeaders), works, "the headers that name the user", ""},
		{"service-account-extend-token-expiration", boolean(&c.ServiceAccounts.Extend), works,
			"tokens of Pods are valid for a year; the use of one after its intended hour is recorded in the " +
				"audit log", ""},
		{"service-account-issuer", array(&c.ServiceAccounts.Issuers), works,
			"the issuer of service account tokens, a URL; new tokens name the first of several, and tokens of all are accepted; by " +
				"default https://kubernetes.default.svc.cluster.local", ""},
		{"service-account-jwks-uri", text(&c.ServiceAccounts.JWKSURI), works,
			"the URL of the public keys in /.well-known/openid-configuration; by default this server's", ""},
		{"service-account-key-file", array(&c.ServiceAccounts.KeyFiles), works,
			"a PEM file of keys, public or private, that verify tokens of service accounts; by default the signing key. It is " +
				"read again when it changes", ""},
		{"service-account-lookup", boolean(&c.ServiceAccounts.Lookup), works,
			"tokens from Secrets are valid only while the Secret exists", ""},
		{"service-account-max-token-expiration", duration(&c.ServiceAccounts.MaxExpiration), works,
			"the longest validity of a service account token; 0: no limit", ""},
		{"token-auth-file", text(&c.TokenAuthFile), works,
			`a CSV file of bearer tokens: token,user,uid,"group,group"; it is read again when it changes`, ""},
	}
}

func authorizationFlags(c *settings) []row {
	hook := &c.AuthorizationWebhook
	return []row{
		{authorizationConfig, text(&c.AuthorizationConfig), works,
			"a file with the authorizers in their order: an AuthorizationConfiguration of apiserver.config.k8s.io; " +
				"it is reloaded when it changes, and replaces the other flags of this section", ""},
		{"authorization-mode", list(&c.AuthorizationModes), works,
			"the authorizers, asked in this order: ABAC, AlwaysAllow, AlwaysDeny, Node, RBAC, Webhook; the group system:masters " +
				"may do everything, Node is for kubelets",
			"with AlwaysAllow every user with credentials may do everything"},
		{"authorization-policy-file", text(&c.AuthorizationPolicyFile), works,
			"for --authorization-mode=ABAC: a file with a policy in JSON in each line", ""},
		{"authorization-webhook-cache-authorized-ttl", duration(&hook.AuthorizedTTL), works,
			"how long a webhook's answer that allows a request is cached", ""},
		{"authorization-webhook-cache-unauthorized-ttl", duration(&hook.UnauthorizedTTL), works,
			"how long a webhook's answer that does not allow a request is cached", ""},
		{"authorization-webhook-config-file", text(&hook.ConfigFile), works,
			"for --authorization-mode=Webhook: a kubeconfig: the URL that SubjectAccessReviews are sent to, and the credentials", ""},
		{"authorization-webhook-version", text(&hook.Version), works,
			"the version of these SubjectAccessReviews: v1 or v1beta1", ""},
	}
}

// authorizationConfig names the flag that replaces other flags of its section.
const authorizationConfig = "authorization-config"

// conflict returns the reference's error if --authorization-config is given with a flag that it replaces.
func conflict(flags *pflag.FlagSet) error {
	if f := flags.Lookup(authorizationConfig); f.Value.String() == "" {
		return nil
	}
	for _, name := range []string{
		"mode", "webhook-config-file", "webhook-version", "webhook-cache-authorized-ttl", "webhook-cache-unauthorized-ttl",
	} {
		if flags.Changed("authorization-" + name) {
			return errors.New(
				"--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags are defined")
		}
	}
	return nil
}

func admissionFlags(c *settings) []row {
	const tolerations = "the seconds for which a Pod that does not say so itself stays on a node that is "
	return []row{
		{"admission-control", list(&c.AdmissionControl), works,
			"the only admission plugins that are on", ""},
		{"admission-control-config-file", text(&c.AdmissionConfig), works,
			"the configurations of admission plugins: an AdmissionConfiguration", ""},
		{"default-not-ready-toleration-seconds", integer64(&c.NotReadyTolerationSeconds), works,
			tolerations + "not ready", ""},
		{"default-unreachable-toleration-seconds", integer64(&c.UnreachableTolerationSeconds), works,
			tolerations + "not reachable", ""},
		{"disable-admission-plugins", list(&c.DisableAdmission), works,
			"admission plugins that are off", ""},
		{"enable-admission-plugins", list(&c.EnableAdmission), works,
			"admission plugins that are on", ""},
	}
}

func metricFlags(c *settings) []row {
	return []row{
		{"allow-metric-labels", stringMap(&c.Metrics.Labels), works,
			"the values that a label of a metric may have, as METRIC,LABEL='VALUE,VALUE'; others are served as unexpected", ""},
		{"allow-metric-labels-manifest", text(&c.Metrics.LabelsFile), works,
			"a YAML file with the same content: \"METRIC,LABEL\": \"VALUE,VALUE\"", ""},
		{"disabled-metrics", list(&c.Metrics.Disabled), works, "names of metrics that are not served", ""},
		{"show-hidden-metrics-for-version", text(&c.Metrics.ShowHidden), works,
			"the release whose hidden metrics are shown, which may be the previous one; none are hidden", ""},
	}
}

func logFlags(c *settings) []row {
	const direct = "every message is written at once, to standard error"
	return []row{
		{"log-flush-frequency", duration(new(5 * time.Second)), ignored, direct, ""},
		{"log-json-info-buffer-size", text(new(string)), ignored, direct, ""},
		{"log-json-split-stream", boolean(new(bool)), ignored, direct, ""},
		{"log-text-info-buffer-size", text(new(string)), ignored, direct, ""},
		{"log-text-split-stream", boolean(new(bool)), ignored, direct, ""},
		{"logging-format", oneOf(&c.logFormat, "text", "json"), works, "text or json", ""},
		{"v", verbosity(&c.verbosity), works, "klog's verbosity; from 4 on, messages of level debug are logged", ""},
		{"vmodule", text(new(string)), ignored, "there is one verbosity for all files", ""},
	}
}

func miscFlags(c *settings) []row {
	const election = "there is no coordinated leader election"
	return []row{
		{"aggregator-reject-forwarding-redirect", boolean(&c.Aggregation.RejectRedirects), works,
			"redirects of aggregated API servers are answered with 502 and not passed on", ""},
		{"allow-privileged", boolean(&c.AllowPrivileged), works,
			"privileged containers are allowed; false is an error: they cannot be refused yet",
			"nothing here runs containers"},
		{"apiserver-count", integer(&c.APIServerCount), plinthOnly,
			"how many servers share an etcd, for --endpoint-reconciler-type=master-count; the reference has it, too, and does " +
				"not list it, as it is deprecated", ""},
		{"coordinated-leadership-lease-duration", duration(new(15 * time.Second)), ignored, election, ""},
		{"coordinated-leadership-renew-deadline", duration(new(10 * time.Second)), ignored, election, ""},
		{"coordinated-leadership-retry-period", duration(new(2 * time.Second)), ignored, election, ""},
		{"enable-aggregator-routing", boolean(&c.Aggregation.EndpointsOnly), works,
			"requests to aggregated API servers never go to the cluster IP of a Service; without it, they go there if the " +
				"Service has no EndpointSlices, and otherwise to its endpoints, too", ""},
		{"enable-logs-handler", boolean(new(bool)), ignored, "the log goes to standard error and is not served", ""},
		{"endpoint-reconciler-type", oneOf(&c.EndpointReconciler, "master-count", "lease", "none"), works,
			"how the Service kubernetes gets its endpoints: none: not at all; on the embedded store the other two mean this " +
				"server; on etcd, lease: all servers that renew their keys, and master-count: as many as --apiserver-count", ""},
		{"event-ttl", duration(&c.EventTTL), works, "how long Events are kept", ""},
		{"kubelet-certificate-authority", text(&c.Kubelets.CAFile), works,
			"the authorities of kubelets' certificates; \"\": these certificates are not verified. It is read again when it " +
				"changes", ""},
		{"kubelet-client-certificate", text(&c.Kubelets.CertFile), works,
			"the client certificate for kubelets; it is read again when it changes", ""},
		{"kubelet-client-key", text(&c.Kubelets.KeyFile), works, "its key", ""},
		{"kubelet-port", integer(&c.Kubelets.Port), plinthOnly,
			"the port of kubelets whose Node names none; the reference has it, too, and does not list it, as it is deprecated", ""},
		{"kubelet-preferred-address-types", list(&c.Kubelets.AddressTypes), works,
			"by which of its addresses a kubelet is reached: the first of these types that its Node has", ""},
		{"kubelet-timeout", duration(new(5 * time.Second)), ignored, "the reference does not use it either", ""},
		{"kubernetes-service-node-port", integer(&c.Services.NodePort), works,
			"the node port of the Service kubernetes; 0: none", ""},
		{"max-connection-bytes-per-sec", integer64(&c.ConnectionBytesPerSecond), works,
			"the limit of an upgraded connection to a kubelet, a Pod or a Service, in each direction; 0: none", ""},
		{"peer-advertise-ip", address(&c.PeerAdvertiseIP), works,
			"where other servers reach this one; \"\": --advertise-address", ""},
		{"peer-advertise-port", text(&c.PeerAdvertisePort), works, "the port of --peer-advertise-ip", ""},
		{"peer-ca-file", text(&c.PeerCAFile), works,
			"a PEM file of authorities by which the other servers on the same etcd are verified; with it, requests for resources " +
				"that are not served here go to one that serves them, and it is read again when it changes", ""},
		{"proxy-client-cert-file", text(&c.Aggregation.ClientCertFile), works,
			"the client certificate by which aggregated API servers know this one; it is read again when it changes. By " +
				"default one is made in the data directory, unless --requestheader-client-ca-file is set; started as " +
				"kube-apiserver, none", ""},
		{"proxy-client-key-file", text(&c.Aggregation.ClientKeyFile), works, "the key of that certificate", ""},
		{"service-account-signing-endpoint", text(&c.ServiceAccounts.SigningEndpoint), works,
			"the Unix socket of an external signer, which has the keys of service account tokens: a path, or @NAME in the " +
				"abstract namespace; it excludes --service-account-signing-key-file and --service-account-key-file. The start " +
				"waits up to a minute for the signer. Secrets get no tokens then", ""},
		{"service-account-signing-key-file", text(&c.ServiceAccounts.SigningKeyFile), works,
			"the private key that signs tokens of service accounts; by default one is generated in the data directory, unless " +
				"--service-account-key-file is set. Needed with --etcd-servers. It is read again when it changes", ""},
		{"service-cluster-ip-range", text(&c.Services.ClusterIPRange), works,
			"the range of cluster IPs of Services, or two of different families; empty: 10.0.0.0/24",
			""},
		{"service-node-port-range", ports(&c.Services.NodePortRange), works, "the range of node ports of Services",
			""},
	}
}
