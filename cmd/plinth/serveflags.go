package main

import (
	"errors"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"plinth/internal/server"
)

// settings are what the flags of the server become.
type settings struct {
	server.Config
	logLevel  string // the least important messages that are logged
	verbosity string // klog's levels
	logFormat string
	version   string // what --version asks for; "false": nothing
}

// serveFlags are all flags of kube-apiserver 1.37, in the sections of its help, and those that only this server has.
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
			{"runtime-config", mapping(&c.RuntimeConfig), works, "versions of the API that are served or not: " +
				"GROUP/VERSION=true|false, GROUP/VERSION/RESOURCE=true|false, api/all, api/ga, api/beta, " +
				"api/alpha; " +
				"the log says which of those that are asked for this server does not have", ""},
		}},
		{"Egress selector", []row{
			{"egress-selector-config-file", text(new(string)), refused, "a proxy for outgoing connections", ""},
		}},
		{"Admission", admissionFlags(c)},
		{"Metrics", metricFlags()},
		{"Logs", logFlags(c)},
		{"Traces", []row{
			{"tracing-config-file", text(new(string)), ignored, "there are no traces", ""},
		}},
		{"Misc", miscFlags(c)},
		{"Global", []row{
			{"version", version(&c.version), works, "print the version of Kubernetes that is served, and end", ""},
		}},
	}
}

func plinthFlags(c *settings) []row {
	return []row{
		{"data-dir", text(&c.DataDir), plinthOnly,
			"where certificates, the kubeconfig and all objects are kept, where --etcd-servers names no other " +
				"place", ""},
		{"storage", text(&c.Storage), plinthOnly,
			"embedded: durable, in the data directory; memory: gone when the server ends", ""},
		{"write-kubeconfig", text(&c.WriteKubeconfig), plinthOnly,
			"where to write the administrator's kubeconfig; by default kubeconfig in the data directory", ""},
		{"watch-history-bytes", integer64(&c.WatchHistoryBytes), plinthOnly,
			"how many bytes of history are kept on disk for watches that fall behind or come back", ""},
		{"controllers", list(&c.Controllers), plinthOnly,
			"which controllers of kube-controller-manager the server runs itself: * is all, NAME is one, -NAME is " +
				"without it (" + strings.Join(server.KnownControllers(), ", ") + "); started as kube-apiserver, none", ""},
		{"log-level", oneOf(&c.logLevel, "debug", "info", "warn", "error"), plinthOnly,
			"the least important messages to log: debug, info, warn or error", ""},
	}
}

func genericFlags(c *settings) []row {
	const compatible = "this server emulates no release but its own, 1.37"
	return []row{
		{"advertise-address", address(&c.AdvertiseAddress), works,
			"the IP address in discovery documents, and in the endpoints of the Service kubernetes, at which the " +
				"server is found; " +
				"by default the one that it listens on", ""},
		{"cors-allowed-origins", list(&c.CORSAllowedOrigins), works,
			"regular expressions of the origins of web pages that may send requests; none: there is no CORS", ""},
		{"emulated-version", list(new([]string)), ignored, compatible, ""},
		{"emulation-forward-compatible", boolean(new(bool)), ignored, compatible, ""},
		{"external-hostname", text(&c.ExternalHostname), works,
			"the host in discovery documents at which the server is found", ""},
		{"feature-gates", list(&c.FeatureGates), works,
			"feature gates of kube-apiserver, comma-separated: NAME=true|false", ""},
		{"goaway-chance", float(&c.GoawayChance), works,
			"the share of HTTP/2 requests whose connection is closed behind them, so that clients spread over " +
				"several servers: 0 to 0.02", ""},
		{"livez-grace-period", duration(new(time.Duration)), ignored, "a server that answers has started", ""},
		{"max-mutating-requests-inflight", integer(&c.MaxMutatingInflight), works,
			"with --max-requests-inflight the limit of requests under way; a limit of its own if " +
				"--enable-priority-and-fairness is false, 0: none", ""},
		{"max-requests-inflight", integer(&c.MaxRequestsInflight), works,
			"with --max-mutating-requests-inflight the limit of requests under way other than watches; " +
				"a limit for reading ones if --enable-priority-and-fairness is false, 0: none", ""},
		{"min-compatibility-version", list(new([]string)), ignored, compatible, ""},
		{"min-request-timeout", integer(&c.MinRequestTimeout), works,
			"how many seconds a watch that names no timeoutSeconds lasts at least; it ends at a random moment " +
				"before twice that", ""},
		{"request-timeout", duration(&c.RequestTimeout), works, "how long a request other than a watch may take", ""},
		{"runtime-config-emulation-forward-compatible", boolean(new(bool)), ignored, compatible, ""},
		{"shutdown-delay-duration", duration(&c.ShutdownDelay), works,
			"how long the server goes on serving when it is told to end; /readyz fails in that time", ""},
		{"shutdown-send-retry-after", boolean(new(bool)), ignored,
			"the listener is closed at once, and requests under way are finished", ""},
		{"shutdown-watch-termination-grace-period", duration(new(time.Duration)), ignored,
			"watches are ended at once, and go on from their last version at another server", ""},
		{"storage-initialization-timeout", duration(&c.StorageTimeout), works,
			"how long to wait for the answer of --etcd-servers", ""},
		{"strict-transport-security-directives", list(&c.StrictTransport), works,
			"directives of the Strict-Transport-Security header, comma-separated: max-age=SECONDS, " +
				"includeSubDomains, preload; none: there is no header", ""},
	}
}

func etcdFlags(c *settings) []row {
	const memory = "everything is read from memory"
	return []row{
		{"delete-collection-workers", integer(new(1)), ignored, "a collection is deleted in batches", ""},
		{"enable-garbage-collector", boolean(&c.GarbageCollection), works,
			"deletes add the finalizers foregroundDeletion and orphan; --controllers says whether this server collects garbage itself", ""},
		{"encryption-provider-config", text(new(string)), refused, "encryption of what is stored", ""},
		{"encryption-provider-config-automatic-reload", boolean(new(bool)), ignored,
			"there is no encryption of what is stored yet", ""},
		{"etcd-cafile", text(&c.EtcdCAFile), works, "the authority of an https:// URL in --etcd-servers", ""},
		{"etcd-certfile", text(&c.EtcdCertFile), works,
			"the client certificate for an https:// URL in --etcd-servers", ""},
		{"etcd-compaction-interval", duration(new(5 * time.Minute)), ignored, "the log compacts itself", ""},
		{"etcd-count-metric-poll-period", duration(new(time.Minute)), ignored,
			"objects are counted when /metrics is read", ""},
		{"etcd-db-metric-poll-interval", duration(new(30 * time.Second)), ignored,
			"sizes are told when /metrics is read", ""},
		{"etcd-healthcheck-timeout", duration(new(2 * time.Second)), ignored,
			"the health of the store is known without asking", ""},
		{"etcd-keyfile", text(&c.EtcdKeyFile), works, "the private key of --etcd-certfile", ""},
		{"etcd-prefix", text(&c.EtcdPrefix), works,
			"the folder for everything in the data directory that --etcd-servers names", ""},
		{"etcd-readycheck-timeout", duration(new(2 * time.Second)), ignored,
			"the health of the store is known without asking", ""},
		{"etcd-servers", list(&c.EtcdServers), works,
			"the URL of the stub of etcd (docs/envtest.md), which says where the data directory is; a real etcd " +
				"is an error", ""},
		{"etcd-servers-overrides", list(new([]string)), refused, "another store for some types", ""},
		{"lease-reuse-duration-seconds", integer64(new(int64(60))), ignored,
			"there are no leases: what expires carries its time", ""},
		{"storage-backend", oneOf(new(string), "", "etcd3"), ignored, "the store is --storage", ""},
		{"storage-media-type", oneOf(new("application/vnd.kubernetes.protobuf"), "application/json", "application/yaml",
			"application/vnd.kubernetes.protobuf"), ignored, "objects are stored in one form (docs/formats.md)", ""},
		{"watch-cache", boolean(new(true)), ignored, memory, ""},
		{"watch-cache-sizes", list(new([]string)), ignored, memory, ""},
	}
}

func servingFlags(c *settings) []row {
	return []row{
		{"bind-address", text(&c.BindAddress), works, "the IP address to listen on; 0.0.0.0 and :: are all",
			"a server that is tried out is not for others; started as kube-apiserver it is the reference's, 0.0.0.0"},
		{"cert-dir", text(&c.CertDir), works,
			"where the server's certificate is, apiserver.crt with apiserver.key; one is made if it is not there",
			"pki in the data directory; started as kube-apiserver it is the reference's"},
		{"disable-http2-serving", boolean(&c.DisableHTTP2), works, "speak HTTP/1.1 alone", ""},
		{"http2-max-streams-per-connection", integer(&c.HTTP2MaxStreams), works,
			"how many requests one HTTP/2 connection carries at once; 0: 1000", ""},
		{"permit-address-sharing", boolean(&c.PermitAddressSharing), works, "listen with SO_REUSEADDR", ""},
		{"permit-port-sharing", boolean(&c.PermitPortSharing), works, "listen with SO_REUSEPORT", ""},
		{"secure-port", integer(&c.SecurePort), works, "the port to listen on with TLS; 0 picks a free one", ""},
		{"tls-cert-file", text(&c.TLSCertFile), works,
			"the server's certificate; by default it is in --cert-dir", ""},
		{"tls-cipher-suites", list(&c.TLSCipherSuites), works,
			"the cipher suites of TLS 1.2 that may be used, by Go's names; none: Go's choice", ""},
		{"tls-curve-preferences", integers(&c.TLSCurves), works,
			"the key exchanges that may be used, by the numbers of Go's crypto/tls; none: Go's choice", ""},
		{"tls-min-version", text(&c.TLSMinVersion), works,
			"the oldest TLS that is spoken: VersionTLS10, VersionTLS11, VersionTLS12 or VersionTLS13; none: " +
				"VersionTLS12", ""},
		{"tls-private-key-file", text(&c.TLSKeyFile), works, "the private key of --tls-cert-file", ""},
		{"tls-sni-cert-key", array(&c.TLSNamed), works,
			"CERT,KEY or CERT,KEY:NAME,NAME: another certificate for clients that ask for one of these names, or " +
				"of its own", ""},
	}
}

func auditFlags(c *settings) []row {
	log, hook := &c.Audit.Log, &c.Audit.Webhook
	const (
		buffered  = "in mode batch: how many events wait; those that come on top are dropped, which is counted"
		together  = "in mode batch: how many events are delivered together"
		waiting   = "in mode batch: how long a batch waits for more events"
		burst     = "in mode batch: how many batches may be delivered at once"
		throttled = "in mode batch: limit the batches a second"
		rate      = "in mode batch: how many batches are delivered a second"
		mode      = "batch: events wait in a queue; blocking: they are delivered before the request goes on; " +
			"blocking-strict: a request that cannot be told of is refused"
		truncated = "cut events that are too large, and split batches that are"
		batchMax  = "bytes of a batch, if --%s is set"
		eventMax  = "bytes of an event: a larger one is told of without its bodies, or dropped if that is too large, too"
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
		{"audit-log-maxage", integer(&log.MaxAge), works, "how many days an old file of the audit log is kept; 0: for ever",
			""},
		{"audit-log-maxbackup", integer(&log.MaxBackup), works, "how many old files of the audit log are kept; 0: all", ""},
		{"audit-log-maxsize", integer(&log.MaxSize), works,
			"how many megabytes the audit log may have before it is renamed and another one begun; 0: any number", ""},
		{"audit-log-mode", text(&log.Mode), works, mode, ""},
		{"audit-log-path", text(&log.Path), works,
			"the file of the audit log, - for standard output; what is written to it is what --audit-policy-file says", ""},
		{"audit-log-truncate-enabled", boolean(&log.Truncate), works, truncated, ""},
		{"audit-log-truncate-max-batch-size", integer64(&log.MaxBatchBytes), works,
			strings.Replace(batchMax, "%s", "audit-log-truncate-enabled", 1), ""},
		{"audit-log-truncate-max-event-size", integer64(&log.MaxEventBytes), works, eventMax, ""},
		{"audit-log-version", text(&log.Version), works, versions, ""},
		{"audit-policy-file", text(&c.Audit.PolicyFile), works,
			"which requests are written down, and how much of them: a Policy of audit.k8s.io/v1", ""},
		{"audit-webhook-batch-buffer-size", integer(&hook.BufferSize), works, buffered, ""},
		{"audit-webhook-batch-max-size", integer(&hook.BatchSize), works, together, ""},
		{"audit-webhook-batch-max-wait", duration(&hook.BatchWait), works, waiting, ""},
		{"audit-webhook-batch-throttle-burst", integer(&hook.Burst), works, burst, ""},
		{"audit-webhook-batch-throttle-enable", boolean(&hook.Throttle), works, throttled, ""},
		{"audit-webhook-batch-throttle-qps", float(&hook.QPS), works, rate, ""},
		{"audit-webhook-config-file", text(&c.Audit.Webhook.ConfigFile), works,
			"a kubeconfig that says where audit events are posted, and as whom", ""},
		{"audit-webhook-initial-backoff", duration(&hook.InitialBackoff), works,
			"how long to wait after the first failure; half as long again after each further one, five attempts in all", ""},
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
			"profile what goroutines wait for, if --profiling is on", ""},
		{"debug-socket-path", text(&c.DebugSocket), works,
			"a Unix socket that serves /debug/pprof to whoever may open it", ""},
		{"enable-priority-and-fairness", boolean(&c.PriorityAndFairness), works,
			"one limit for all requests, the sum of both --max-…-inflight; what is over it is turned away: there " +
				"are no queues yet", ""},
		{"profiling", boolean(&c.Profiling), works,
			"serve /debug/pprof to those who may do everything", "what nobody asked for is off"},
	}
}

func authenticationFlags(c *settings) []row {
	return []row{
		{"anonymous-auth", boolean(&c.AnonymousAuth), works,
			"who shows no credentials is system:anonymous; else such requests are refused", ""},
		{"api-audiences", list(&c.APIAudiences), works,
			"what tokens of service accounts have to be for, one of them; by default the issuers", ""},
		{"authentication-config", text(&c.AuthenticationConfig), works,
			"an AuthenticationConfiguration: OpenID Connect issuers, and who is let in without credentials; read again when it changes", ""},
		{"authentication-token-webhook-cache-ttl", duration(&c.TokenWebhook.CacheTTL), works,
			"how long what the webhook has said of a token is remembered", ""},
		{"authentication-token-webhook-config-file", text(&c.TokenWebhook.ConfigFile), works,
			"a kubeconfig that says which webhook is asked whose a token is that nobody here knows", ""},
		{"authentication-token-webhook-version", text(&c.TokenWebhook.Version), works,
			"the version of the TokenReviews that the webhook is asked by: v1 or v1beta1", ""},
		{"client-ca-file", text(&c.ClientCAFile), works,
			"a PEM file of authorities whose client certificates are trusted, besides the server's own", ""},
		{"enable-bootstrap-token-auth", boolean(&c.BootstrapTokens), works,
			"Secrets of type bootstrap.kubernetes.io/token in kube-system are tokens of new nodes", ""},
		{"oidc-ca-file", text(&c.OIDC.CAFile), works,
			"a PEM file of the authorities that the issuer's certificate is verified by; by default those of the system", ""},
		{"oidc-client-id", text(&c.OIDC.ClientID), works, "what tokens of the issuer have to be for", ""},
		{"oidc-groups-claim", text(&c.OIDC.GroupsClaim), works, "the claim with the user's groups", ""},
		{"oidc-groups-prefix", text(&c.OIDC.GroupsPrefix), works, "what is put before names of groups", ""},
		{"oidc-issuer-url", text(&c.OIDC.IssuerURL), works,
			"an OpenID Connect issuer whose tokens say who a user is; --authentication-config has several", ""},
		{"oidc-required-claim", assignments(&c.OIDC.RequiredClaims), works,
			"a claim that tokens must have, with its value", ""},
		{"oidc-signing-algs", list(&c.OIDC.SigningAlgs), works, "the algorithms of signatures that are taken", ""},
		{"oidc-username-claim", text(&c.OIDC.UsernameClaim), works, "the claim that is the user's name", ""},
		{"oidc-username-prefix", text(&c.OIDC.UsernamePrefix), works,
			"what is put before names of users; by default the issuer and #, unless the claim is email; -: nothing", ""},
		{"requestheader-allowed-names", list(&c.FrontProxy.AllowedNames), works,
			"the common names of proxies that are believed; none: any of --requestheader-client-ca-file", ""},
		{"requestheader-client-ca-file", text(&c.FrontProxy.CAFile), works,
			"a PEM file of authorities that sign the certificates of proxies, which say in headers whom a request is from; " +
				"none: nobody is believed", ""},
		{"requestheader-extra-headers-prefix", list(&c.FrontProxy.ExtraPrefixes), works,
			"what the headers begin with that name extra attributes of the user", ""},
		{"requestheader-group-headers", list(&c.FrontProxy.GroupHeaders), works, "the headers that name groups of the user",
			""},
		{"requestheader-uid-headers", list(&c.FrontProxy.UIDHeaders), works, "the headers that name the UID of the user", ""},
		{"requestheader-username-headers", list(&c.FrontProxy.UserHeaders), works, "the headers that name the user", ""},
		{"service-account-extend-token-expiration", boolean(&c.ServiceAccounts.Extend), works,
			"tokens that Pods are given last a year, and whoever uses one after the hour that it was meant for stands in the " +
				"audit log", ""},
		{"service-account-issuer", array(&c.ServiceAccounts.Issuers), works,
			"who issues tokens of service accounts, a URL; the first of several issues them, and those of all are taken; by " +
				"default https://kubernetes.default.svc.cluster.local", ""},
		{"service-account-jwks-uri", text(&c.ServiceAccounts.JWKSURI), works,
			"where /.well-known/openid-configuration says that the public keys are; by default at this server", ""},
		{"service-account-key-file", array(&c.ServiceAccounts.KeyFiles), works,
			"a PEM file of keys, public or private, that verify tokens of service accounts; by default the signing key", ""},
		{"service-account-lookup", boolean(&c.ServiceAccounts.Lookup), works,
			"tokens in Secrets are valid only as long as these are there", ""},
		{"service-account-max-token-expiration", duration(&c.ServiceAccounts.MaxExpiration), works,
			"how long a token of a service account lasts at most; 0: as long as somebody asks for", ""},
		{"token-auth-file", text(&c.TokenAuthFile), works, `a CSV file of bearer tokens: token,user,uid,"group,group"`, ""},
	}
}

func authorizationFlags(c *settings) []row {
	hook := &c.AuthorizationWebhook
	return []row{
		{authorizationConfig, text(&c.AuthorizationConfig), works,
			"a file that says who is asked what somebody may do, in which order: an AuthorizationConfiguration of apiserver.config.k8s.io; " +
				"it is read again when it changes, and takes the place of the other flags of this section", ""},
		{"authorization-mode", list(&c.AuthorizationModes), works,
			"who is asked what somebody may do, in this order: AlwaysAllow, AlwaysDeny, Node, RBAC, Webhook; the group system:masters may do " +
				"everything, Node is for kubelets; ABAC is an error",
			"whoever has a token or a certificate may not do everything unless somebody says so"},
		{"authorization-policy-file", text(new(string)), refused, "authorization by a policy file", ""},
		{"authorization-webhook-cache-authorized-ttl", duration(&hook.AuthorizedTTL), works,
			"how long an answer of the webhook that allows something is remembered", ""},
		{"authorization-webhook-cache-unauthorized-ttl", duration(&hook.UnauthorizedTTL), works,
			"how long an answer of the webhook that does not is remembered", ""},
		{"authorization-webhook-config-file", text(&hook.ConfigFile), works,
			"for --authorization-mode=Webhook: a kubeconfig that says where SubjectAccessReviews are posted, and as whom", ""},
		{"authorization-webhook-version", text(&hook.Version), works,
			"the version of these SubjectAccessReviews: v1 or v1beta1", ""},
	}
}

// authorizationConfig takes the place of other flags of its section.
const authorizationConfig = "authorization-config"

// conflict is what the reference says of --authorization-config beside what it takes the place of.
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
	const tolerations = "Pods are given no tolerations yet"
	return []row{
		{"admission-control", list(&c.AdmissionControl), works,
			"the admission plugins, and no others; those that are not there yet are errors", ""},
		{"admission-control-config-file", text(new(string)), refused, "the configuration of admission plugins", ""},
		{"default-not-ready-toleration-seconds", integer64(new(int64(300))), ignored, tolerations, ""},
		{"default-unreachable-toleration-seconds", integer64(new(int64(300))), ignored, tolerations, ""},
		{"disable-admission-plugins", list(&c.DisableAdmission), works,
			"admission plugins that are off, of NamespaceLifecycle, CertificateApproval, CertificateSigning and CertificateSubjectRestriction, " +
				"which are there", ""},
		{"enable-admission-plugins", list(&c.EnableAdmission), works,
			"admission plugins that are on; those that are not there yet are errors", ""},
	}
}

func metricFlags() []row {
	const all = "all metrics are served as they are"
	return []row{
		{"allow-metric-labels", mapping(new([]string)), ignored, all, ""},
		{"allow-metric-labels-manifest", text(new(string)), ignored, all, ""},
		{"disabled-metrics", list(new([]string)), ignored, all, ""},
		{"show-hidden-metrics-for-version", text(new(string)), ignored, "no metrics are hidden", ""},
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
	const (
		aggregator = "there is no aggregation of other API servers yet"
		election   = "there is no coordinated leader election"
		kubelets   = "kubelets are not talked to yet"
		peers      = "servers do not talk to each other"
	)
	return []row{
		{"aggregator-reject-forwarding-redirect", boolean(new(true)), ignored, aggregator, ""},
		{"allow-privileged", boolean(&c.AllowPrivileged), works,
			"privileged containers are allowed; false is an error: they cannot be refused yet",
			"nothing here runs containers"},
		{"coordinated-leadership-lease-duration", duration(new(15 * time.Second)), ignored, election, ""},
		{"coordinated-leadership-renew-deadline", duration(new(10 * time.Second)), ignored, election, ""},
		{"coordinated-leadership-retry-period", duration(new(2 * time.Second)), ignored, election, ""},
		{"enable-aggregator-routing", boolean(new(bool)), ignored, aggregator, ""},
		{"enable-logs-handler", boolean(new(bool)), ignored, "the log goes to standard error and is not served", ""},
		{"endpoint-reconciler-type", oneOf(&c.EndpointReconciler, "master-count", "lease", "none"), works,
			"none: the Service kubernetes has no endpoints; else it has one, this server", ""},
		{"event-ttl", duration(&c.EventTTL), works, "how long Events are kept", ""},
		{"kubelet-certificate-authority", text(new(string)), ignored, kubelets, ""},
		{"kubelet-client-certificate", text(new(string)), ignored, kubelets, ""},
		{"kubelet-client-key", text(new(string)), ignored, kubelets, ""},
		{"kubelet-preferred-address-types", list(new([]string{
			"Hostname", "InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP",
		})),
			ignored, kubelets, ""},
		{"kubelet-timeout", duration(new(5 * time.Second)), ignored, kubelets, ""},
		{"kubernetes-service-node-port", integer(&c.ServiceNodePort), works,
			"the port of the Service kubernetes on nodes; 0: none", ""},
		{"max-connection-bytes-per-sec", integer64(new(int64)), ignored,
			"connections to nodes are not there yet", ""},
		{"peer-advertise-ip", address(new(string)), ignored, peers, ""},
		{"peer-advertise-port", text(new(string)), ignored, peers, ""},
		{"peer-ca-file", text(new(string)), ignored, peers, ""},
		{"proxy-client-cert-file", text(new(string)), ignored, aggregator, ""},
		{"proxy-client-key-file", text(new(string)), ignored, aggregator, ""},
		{"service-account-signing-endpoint", text(new(string)), refused, "tokens that somebody else signs", ""},
		{"service-account-signing-key-file", text(&c.ServiceAccounts.SigningKeyFile), works,
			"the private key that signs tokens of service accounts; by default one is made in the data directory, unless " +
				"--service-account-key-file is set", ""},
		{"service-cluster-ip-range", text(&c.ServiceClusterIPRange), works,
			"where the addresses of Services come from: one range, or two of different families; 10.0.0.0/24 if it is empty",
			""},
		{"service-node-port-range", ports(&c.ServiceNodePortRange), works, "where the ports of Services on nodes come from",
			""},
	}
}
