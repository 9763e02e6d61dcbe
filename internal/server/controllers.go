package server

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"plinth/internal/authz"
	"plinth/internal/controller"
	"plinth/internal/features"
	"plinth/internal/pki"
)

// controllerRow is one of kube-controller-manager's controllers that this server can run.
type controllerRow struct {
	name  string // as kube-controller-manager names it
	alias string // its name before 1.28, which --controllers accepts, too
	does  string // what it does, for the documentation of --controllers
	make  func(*Server) func(context.Context)
}

// legacyTokenPeriod is how long a generated token of a ServiceAccount may be unused: kube-controller-manager's default
// of --legacy-service-account-token-clean-up-period.
const legacyTokenPeriod = 365 * 24 * time.Hour

// controllerTable lists them. make returns a function that runs the controller until its context is cancelled.
var controllerTable = []controllerRow{
	{"namespace-controller", "namespace", "empties namespaces that are being deleted",
		func(s *Server) func(context.Context) {
			return (&controller.Namespaces{Engine: s.engine, Registry: s.registry, Logger: s.config.Logger,
				Now: s.config.Now, Busy: &s.busy, AtOthers: s.aggregator.Empty,
				StaleAtOthers: s.aggregator.Stale}).Run
		}},
	{"garbage-collector-controller", "garbagecollector", "deletes objects whose owners are gone",
		func(s *Server) func(context.Context) {
			return (&controller.Garbage{Engine: s.engine, Registry: s.registry, Logger: s.config.Logger, Now: s.config.Now,
				Busy: &s.busy, Aggregator: s.aggregator}).Run
		}},
	{"service-cidr-controller", "service-cidr-controller", "keeps ServiceCIDRs whose addresses are in use",
		func(s *Server) func(context.Context) {
			c := &controller.ServiceCIDRs{Engine: s.engine, Registry: s.registry, Logger: s.config.Logger, Now: s.config.Now}
			if s.storage.OnEtcd() {
				c.Grace = controller.AllocatorsLag
			}
			return c.Run
		}},
	{"clusterrole-aggregation-controller", "clusterrole-aggregation", "gives aggregated cluster roles their rules",
		func(s *Server) func(context.Context) {
			return (&controller.Aggregation{Engine: s.engine, Registry: s.registry, Logger: s.config.Logger}).Run
		}},
	{"serviceaccount-controller", "serviceaccount", "makes a ServiceAccount default in every namespace",
		func(s *Server) func(context.Context) {
			return (&controller.ServiceAccounts{Engine: s.engine, Registry: s.registry, Logger: s.config.Logger}).Run
		}},
	{"serviceaccount-token-controller", "serviceaccount-token", "fills Secrets with tokens of ServiceAccounts",
		func(s *Server) func(context.Context) {
			// As kube-controller-manager, which then gets no private key, it does nothing beside an external signer.
			if static := s.accountKeys.static; static != nil && static.Signs() {
				return (&controller.AccountTokens{Engine: s.engine, Registry: s.registry, Logger: s.config.Logger,
					Certificate: s.authority, Token: static.Legacy}).Run
			}
			return func(context.Context) {}
		}},
	{"legacy-serviceaccount-token-cleaner-controller", "legacy-service-account-token-cleaner",
		"deletes generated Secrets with tokens of ServiceAccounts that nobody uses",
		func(s *Server) func(context.Context) {
			return (&controller.TokenCleaner{Engine: s.engine, Registry: s.registry, Logger: s.config.Logger,
				Now: s.config.Now, Period: legacyTokenPeriod, PodSecrets: authz.PodSecrets}).Run
		}},
	{"root-ca-certificate-publisher-controller", "root-ca-cert-publisher",
		"publishes the server's authority in every namespace",
		func(s *Server) func(context.Context) {
			return (&controller.RootCA{Engine: s.engine, Registry: s.registry, Logger: s.config.Logger,
				Certificate: s.authority}).Run
		}},
	{"kube-apiserver-serving-clustertrustbundle-publisher-controller",
		"kube-apiserver-serving-clustertrustbundle-publisher-controller",
		"publishes the server's authority in a ClusterTrustBundle", func(s *Server) func(context.Context) {
			return (&controller.TrustBundles{Engine: s.engine, Registry: s.registry, Logger: s.config.Logger,
				Certificate: s.authority}).Run
		}},
	{"certificatesigningrequest-signing-controller", "csrsigning", "signs certificates that are approved",
		func(s *Server) func(context.Context) {
			return s.certificateRequests().Sign
		}},
	{"certificatesigningrequest-approving-controller", "csrapproving", "approves certificates of nodes",
		func(s *Server) func(context.Context) {
			return s.certificateRequests().Approve
		}},
	{"certificatesigningrequest-cleaner-controller", "csrcleaner", "deletes old requests for certificates",
		func(s *Server) func(context.Context) {
			return s.certificateRequests().Clean
		}},
	{"podcertificaterequest-cleaner-controller", "podcertificaterequest-cleaner-controller",
		"deletes old PodCertificateRequests", func(s *Server) func(context.Context) {
			return (&controller.PodCertificates{Engine: s.engine, Registry: s.registry, Logger: s.config.Logger,
				Now: s.config.Now}).Run
		}},
	{quotaController, "resourcequota", "publishes what ResourceQuotas count", func(s *Server) func(context.Context) {
		return s.quotas.Run
	}},
	{"validatingadmissionpolicy-status-controller", "validatingadmissionpolicy-status-controller",
		"checks the expressions of ValidatingAdmissionPolicies against the types that they are about",
		func(s *Server) func(context.Context) {
			return (&controller.PolicyStatus{Engine: s.engine, Registry: s.registry, Logger: s.config.Logger}).Run
		}},
	{"storage-version-migrator-controller", "svm", "stores objects again for StorageVersionMigrations",
		func(s *Server) func(context.Context) {
			return (&controller.Migrations{Engine: s.engine, Registry: s.registry, Logger: s.config.Logger,
				Aggregator: s.aggregator, Now: s.config.Now, Busy: &s.busy}).Run
		}},
	{"storageversion-garbage-collector-controller", "storage-version-gc",
		"removes what API servers that are gone have said about how they store objects",
		func(s *Server) func(context.Context) {
			return s.storageVersions().Run
		}},
	{"persistentvolumeclaim-protection-controller", "pvc-protection",
		"keeps claims that Pods use, and says since when none does", func(s *Server) func(context.Context) {
			return (&controller.Claims{Engine: s.engine, Registry: s.registry, Logger: s.config.Logger, Now: s.config.Now,
				Unused: s.features.On(features.PersistentVolumeClaimUnusedSinceTime)}).Run
		}},
	protectionRow(controller.ProtectedVolumes, "persistentvolume-protection-controller", "pv-protection",
		"keeps volumes that are bound"),
	protectionRow(controller.ProtectedAttributesClasses, "volumeattributesclass-protection-controller",
		"volumeattributesclass-protection-controller", "keeps VolumeAttributesClasses that claims or volumes have"),
	protectionRow(controller.ProtectedPodGroups, "podgroup-protection-controller", "podgroup-protection-controller",
		"keeps PodGroups that have Pods which have not ended"),
}

// quotaController is the controller that counts what ResourceQuotas limit.
const quotaController = "resourcequota-controller"

// countQuotas is builtin.Config.CountQuotas. s.quotas is set before the first request.
func (s *Server) countQuotas(ctx context.Context, namespace string) { s.quotas.Refresh(ctx, namespace) }

// protectionRow is the row of a controller that protects a kind of objects.
func protectionRow(kind controller.ProtectedKind, name, alias, does string) controllerRow {
	return controllerRow{name, alias, does, func(s *Server) func(context.Context) {
		return (&controller.Protection{Engine: s.engine, Registry: s.registry, Logger: s.config.Logger, Kind: kind}).Run
	}}
}

// storageVersions configures the records of how servers store objects. Without the feature gate there are none.
func (s *Server) storageVersions() *controller.StorageVersions {
	return &controller.StorageVersions{Engine: s.engine, Registry: s.registry, Logger: s.config.Logger, Now: s.clock}
}

// certificateRequests configures the controllers of CertificateSigningRequests. A certificate is valid for a year at
// most, as in kube-controller-manager.
func (s *Server) certificateRequests() *controller.Certificates {
	return &controller.Certificates{
		Engine: s.engine, Registry: s.registry, Logger: s.config.Logger, Now: s.config.Now,
		Authority: s.pki.Certificate, PrivateKey: s.pki.Key, Life: pki.LeafLife, Authorizer: s.policy,
	}
}

// KnownControllers lists the controllers, each with what it does, for the documentation of --controllers.
func KnownControllers() []string {
	var list []string
	for _, row := range controllerTable {
		list = append(list, row.name+" "+row.does)
	}
	return list
}

// runs says whether the list enables the controller. As in kube-controller-manager the first entry with its name (or
// "-" and its name) decides, and "*" enables those that have no entry.
func (r *controllerRow) runs(controllers []string) bool {
	all := false
	for _, c := range controllers {
		name, disabled := strings.CutPrefix(c, "-")
		if name == r.name || name == r.alias {
			return !disabled
		}
		all = all || c == "*"
	}
	return all
}

// Runs says whether the server runs a controller, which is called by one of its names.
func (c *Config) Runs(name string) bool {
	for _, row := range controllerTable {
		if name == row.name || name == row.alias {
			return row.runs(c.Controllers)
		}
	}
	return false
}

// validateControllers refuses names of controllers that this server does not have.
func (c *Config) validateControllers(refuse func(format string, args ...any)) {
	for _, entry := range c.Controllers {
		name := strings.TrimPrefix(entry, "-")
		known := entry == "*"
		for _, row := range controllerTable {
			known = known || name == row.name || name == row.alias
		}
		if !known {
			refuse("--controllers: %w", fmt.Errorf("%q is not in the list of known controllers", name))
		}
	}
}

// claimTable lists the controllers that repair claims of Services which other servers on the same etcd have left
// behind. In the reference they are a part of kube-apiserver, by these names, so --controllers does not disable them.
// Without etcd there is nothing to repair.
var claimTable = []controllerRow{
	{"portallocator-repair-controller", "", "reserves the node ports that Services have", func(
		s *Server) func(context.Context) {
		return s.servicePorts().Run
	}},
	{"ipallocator-repair-controller", "", "makes an IPAddress of every address that a Service has", func(
		s *Server) func(context.Context) {
		return s.serviceAddresses().Run
	}},
}

// enabledControllers are the controllers that this server runs.
func (s *Server) enabledControllers() (rows []controllerRow) {
	for _, row := range controllerTable {
		if row.runs(s.config.Controllers) {
			rows = append(rows, row)
		}
	}
	if s.storage.OnEtcd() {
		rows = append(rows, claimTable...)
	}
	return rows
}

// ownControllers are parts of the API server in the reference, too, so --controllers does not disable them (RUN-8).
func (s *Server) ownControllers(definitions *controller.Definitions) []func(context.Context) {
	registration := &controller.Registration{Engine: s.engine, Registry: s.registry, Logger: s.config.Logger,
		Busy: &s.busy}
	availability := &controller.Availability{Engine: s.engine, Registry: s.registry, Logger: s.config.Logger,
		Now: s.config.Now, Service: s.findService, Slices: s.endpointSlices, Check: s.aggregator.Check, Busy: &s.busy,
		Lost: s.aggregationMetrics.Unavailable}
	all := []func(context.Context){definitions.Run, registration.Run, availability.Run}
	if s.quotas.Admitted && !s.storage.OnEtcd() {
		// On etcd requests record what they use themselves (engine.Limits).
		all = append(all, s.quotas.Run)
	}
	return all
}

// control starts the enabled controllers, and the one of definitions, which is a part of the API server. On etcd they
// run in one of all servers: the elected one.
func (s *Server) control(definitions *controller.Definitions) {
	s.run(func() {
		controller.Follow(s.closing, s.engine, s.config.Logger, s.registry.Builtin().Find("apiregistration.k8s.io", "v1",
			"apiservices"), func() { s.aggregator.Changed(s.closing) })
		s.aggregator.Wait()
	})
	if s.storage.OnEtcd() {
		s.run(func() { definitions.Follow(s.closing) })
		s.run(func() {
			s.peers.Elect(s.leaving, func(ctx context.Context) {
				var work sync.WaitGroup
				for _, run := range append(s.controllers(), s.ownControllers(definitions)...) {
					work.Go(func() { run(ctx) })
				}
				work.Wait()
			})
		})
		return
	}
	for _, run := range append(s.controllers(), s.ownControllers(definitions)...) {
		s.run(func() { run(s.closing) })
	}
}

// controllers makes the enabled controllers.
func (s *Server) controllers() (all []func(context.Context)) {
	for _, row := range s.enabledControllers() {
		all = append(all, row.make(s))
	}
	return all
}
