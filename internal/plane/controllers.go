package plane

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"plinth/internal/authz"
	"plinth/internal/controller"
	"plinth/internal/controller/garbage"
	"plinth/internal/controller/steps"
	"plinth/internal/features"
	"plinth/internal/pki"
)

// controllerRow is one of kube-controller-manager's controllers that a plane can run.
type controllerRow struct {
	name  string // as kube-controller-manager names it
	alias string // its name before 1.28, which --controllers accepts, too
	does  string // what it does, for the documentation of --controllers
	make  func(*Plane) func(*steps.Group)
}

// named says whether a name is one of the controller's.
func (r *controllerRow) named(name string) bool { return name == r.name || name == r.alias }

// legacyTokenPeriod is how long a generated token of a ServiceAccount may be unused: kube-controller-manager's default
// of --legacy-service-account-token-clean-up-period.
const legacyTokenPeriod = 365 * 24 * time.Hour

// controllerTable lists them. make returns a function that begins the loops of the controller.
var controllerTable = []controllerRow{
	{"namespace-controller", "namespace", "empties namespaces that are being deleted",
		func(p *Plane) func(*steps.Group) {
			return (&controller.Namespaces{Engine: p.Engine, Registry: p.Registry, Logger: p.config.Logger,
				Now: p.config.Now, Busy: &p.busy, AtOthers: p.emptyAtOthers,
				StaleAtOthers: p.Aggregator.Stale}).Start
		}},
	{"garbage-collector-controller", "garbagecollector", "deletes objects whose owners are gone",
		func(p *Plane) func(*steps.Group) {
			return (&garbage.Controller{Engine: p.Engine, Registry: p.Registry, Logger: p.config.Logger, Now: p.config.Now,
				Busy: &p.busy, Observe: p.config.Worklists, Aggregator: p.Aggregator}).Start
		}},
	{"service-cidr-controller", "service-cidr-controller", "keeps ServiceCIDRs whose addresses are in use",
		func(p *Plane) func(*steps.Group) {
			c := &controller.ServiceCIDRs{Engine: p.Engine, Registry: p.Registry, Logger: p.config.Logger, Now: p.config.Now}
			if p.Storage.OnEtcd() {
				c.Grace = controller.AllocatorsLag
			}
			return c.Start
		}},
	{"clusterrole-aggregation-controller", "clusterrole-aggregation", "gives aggregated cluster roles their rules",
		func(p *Plane) func(*steps.Group) {
			return (&controller.Aggregation{Engine: p.Engine, Registry: p.Registry, Logger: p.config.Logger}).Start
		}},
	{"serviceaccount-controller", "serviceaccount", "makes a ServiceAccount default in every namespace",
		func(p *Plane) func(*steps.Group) {
			return (&controller.ServiceAccounts{Engine: p.Engine, Registry: p.Registry, Logger: p.config.Logger}).Start
		}},
	{"serviceaccount-token-controller", "serviceaccount-token", "fills Secrets with tokens of ServiceAccounts",
		func(p *Plane) func(*steps.Group) {
			// As kube-controller-manager, which then gets no private key, it does nothing beside an external signer.
			if static := p.config.Accounts.Static; static != nil && static.Signs() {
				return (&controller.AccountTokens{Engine: p.Engine, Registry: p.Registry, Logger: p.config.Logger,
					Certificate: p.config.Signer.Bundle, Token: static.Legacy}).Start
			}
			return func(*steps.Group) {}
		}},
	{"legacy-serviceaccount-token-cleaner-controller", "legacy-service-account-token-cleaner",
		"deletes generated Secrets with tokens of ServiceAccounts that nobody uses",
		func(p *Plane) func(*steps.Group) {
			return (&controller.TokenCleaner{Engine: p.Engine, Registry: p.Registry, Logger: p.config.Logger,
				Now: p.config.Now, Period: legacyTokenPeriod, PodSecrets: authz.PodSecrets}).Start
		}},
	{"root-ca-certificate-publisher-controller", "root-ca-cert-publisher",
		"publishes the server's authority in every namespace",
		func(p *Plane) func(*steps.Group) {
			return (&controller.RootCA{Engine: p.Engine, Registry: p.Registry, Logger: p.config.Logger,
				Certificate: p.config.Signer.Bundle}).Start
		}},
	{"kube-apiserver-serving-clustertrustbundle-publisher-controller",
		"kube-apiserver-serving-clustertrustbundle-publisher-controller",
		"publishes the server's authority in a ClusterTrustBundle", func(p *Plane) func(*steps.Group) {
			return (&controller.TrustBundles{Engine: p.Engine, Registry: p.Registry, Logger: p.config.Logger,
				Certificate: p.config.Signer.Bundle}).Start
		}},
	{"certificatesigningrequest-signing-controller", "csrsigning", "signs certificates that are approved",
		func(p *Plane) func(*steps.Group) {
			if p.config.Signer.Key == nil { // as in kube-controller-manager without --cluster-signing-key-file
				return func(*steps.Group) {}
			}
			return p.certificateRequests().Sign
		}},
	{"certificatesigningrequest-approving-controller", "csrapproving", "approves certificates of nodes",
		func(p *Plane) func(*steps.Group) {
			return p.certificateRequests().Approve
		}},
	{"certificatesigningrequest-cleaner-controller", "csrcleaner", "deletes old requests for certificates",
		func(p *Plane) func(*steps.Group) {
			return p.certificateRequests().Clean
		}},
	{"podcertificaterequest-cleaner-controller", "podcertificaterequest-cleaner-controller",
		"deletes old PodCertificateRequests", func(p *Plane) func(*steps.Group) {
			return (&controller.PodCertificates{Engine: p.Engine, Registry: p.Registry, Logger: p.config.Logger,
				Now: p.config.Now}).Start
		}},
	{quotaController, "resourcequota", "publishes what ResourceQuotas count", func(p *Plane) func(*steps.Group) {
		return p.quotas.Start
	}},
	{"validatingadmissionpolicy-status-controller", "validatingadmissionpolicy-status-controller",
		"checks the expressions of ValidatingAdmissionPolicies against the types that they are about",
		func(p *Plane) func(*steps.Group) {
			return (&controller.PolicyStatus{Engine: p.Engine, Registry: p.Registry, Logger: p.config.Logger}).Start
		}},
	{"storage-version-migrator-controller", "svm", "stores objects again for StorageVersionMigrations",
		func(p *Plane) func(*steps.Group) {
			return (&controller.Migrations{Engine: p.Engine, Registry: p.Registry, Logger: p.config.Logger,
				Aggregator: p.Aggregator, Now: p.config.Now, Busy: &p.busy,
				Observe: p.config.Worklists}).Start
		}},
	{"storageversion-garbage-collector-controller", "storage-version-gc",
		"removes what API servers that are gone have said about how they store objects",
		func(p *Plane) func(*steps.Group) {
			return (&controller.StorageVersions{Engine: p.Engine, Registry: p.Registry, Logger: p.config.Logger,
				Now: p.clock}).Start
		}},
	{"persistentvolumeclaim-protection-controller", "pvc-protection",
		"keeps claims that Pods use, and says since when none does", func(p *Plane) func(*steps.Group) {
			return (&controller.Claims{Engine: p.Engine, Registry: p.Registry, Logger: p.config.Logger, Now: p.config.Now,
				Unused: p.config.Features.On(features.PersistentVolumeClaimUnusedSinceTime)}).Start
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

// countQuotas is builtin.Config.CountQuotas. p.quotas is set before the first request.
func (p *Plane) countQuotas(ctx context.Context, namespace string) { p.quotas.Refresh(ctx, namespace) }

// protectionRow is the row of a controller that protects a kind of objects.
func protectionRow(kind controller.ProtectedKind, name, alias, does string) controllerRow {
	return controllerRow{name, alias, does, func(p *Plane) func(*steps.Group) {
		return (&controller.Protection{Engine: p.Engine, Registry: p.Registry, Logger: p.config.Logger, Kind: kind}).Start
	}}
}

// certificateRequests configures the controllers of CertificateSigningRequests. A certificate is valid for a year at
// most, as in kube-controller-manager.
func (p *Plane) certificateRequests() *controller.Certificates {
	return &controller.Certificates{
		Engine: p.Engine, Registry: p.Registry, Logger: p.config.Logger, Now: p.config.Now,
		Authority: p.config.Signer.Certificate, PrivateKey: p.config.Signer.Key, Life: pki.LeafLife,
		Authorizer: p.config.Authority,
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

// Controllers selects which of kube-controller-manager's controllers run, in the syntax of its flag --controllers: "*"
// is all, NAME is one, -NAME is all but this one.
type Controllers []string

// run says whether the list enables a controller. As in kube-controller-manager the first entry with its name (or "-"
// and its name) decides, and "*" enables those that have no entry.
func (c Controllers) run(r *controllerRow) bool {
	all := false
	for _, entry := range c {
		name, disabled := strings.CutPrefix(entry, "-")
		if r.named(name) {
			return !disabled
		}
		all = all || entry == "*"
	}
	return all
}

// Run says whether a controller runs, which is called by one of its names.
func (c Controllers) Run(name string) bool {
	for _, row := range controllerTable {
		if row.named(name) {
			return c.run(&row)
		}
	}
	return false
}

// Selected are the names of the controllers that run.
func (c Controllers) Selected() (names []string) {
	for i := range controllerTable {
		if r := &controllerTable[i]; c.run(r) {
			names = append(names, r.name)
		}
	}
	return names
}

// Validate refuses names of controllers that are not there.
func (c Controllers) Validate(refuse func(format string, args ...any)) {
	for _, entry := range c {
		name := strings.TrimPrefix(entry, "-")
		known := entry == "*" || slices.ContainsFunc(controllerTable, func(r controllerRow) bool { return r.named(name) })
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
		p *Plane) func(*steps.Group) {
		return p.servicePorts().Start
	}},
	{"ipallocator-repair-controller", "", "makes an IPAddress of every address that a Service has", func(
		p *Plane) func(*steps.Group) {
		return p.serviceAddresses().Start
	}},
}

// controllers makes the enabled controllers, and those that are a part of the API server.
func (p *Plane) controllers() (all []func(*steps.Group)) {
	for _, row := range controllerTable {
		if p.config.Controllers.run(&row) {
			all = append(all, row.make(p))
		}
	}
	if p.Storage.OnEtcd() {
		for _, row := range claimTable {
			all = append(all, row.make(p))
		}
	}
	return append(all, p.ownControllers()...)
}

// ownControllers are parts of the API server in the reference, too, so --controllers does not disable them (RUN-8).
func (p *Plane) ownControllers() []func(*steps.Group) {
	registration := &controller.Registration{Engine: p.Engine, Registry: p.Registry, Logger: p.config.Logger}
	all := []func(*steps.Group){p.definitions.Start, registration.Start}
	if p.quotas.Admitted && !p.Storage.OnEtcd() {
		// On etcd requests record what they use themselves (engine.Limits).
		all = append(all, p.quotas.Start)
	}
	return all
}

// availability asks the servers of APIServices. It is a part of the API server, too.
func (p *Plane) availability() *controller.Availability {
	return &controller.Availability{Engine: p.Engine, Registry: p.Registry, Logger: p.config.Logger,
		Now: p.config.Now, Service: p.findService, Slices: p.endpointSlices, Check: p.Aggregator.Check,
		Lost: p.config.Unavailable}
}

// control starts the enabled controllers, and those that are parts of the API server. With elect they run in one of all
// servers: the elected one.
func (p *Plane) control(elect func(lead func(context.Context))) {
	controller.Follow(p.upkeep, p.Engine, p.config.Logger, p.Registry.Builtin().Find("apiregistration.k8s.io", "v1",
		"apiservices"), func() { p.Aggregator.Changed(p.closing) })
	if elect == nil {
		p.availability().Start(p.upkeep)
		for _, start := range p.controllers() {
			start(p.loops)
		}
		return
	}
	p.definitions.Follow(p.loops)
	p.run(func() {
		elect(func(ctx context.Context) {
			p.config.Steps.Run(ctx, p.config.StepShare, func(g *steps.Group) {
				p.availability().Start(g)
				for _, start := range p.controllers() {
					start(g)
				}
			})
		})
	})
}
