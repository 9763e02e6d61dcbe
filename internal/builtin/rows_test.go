package builtin

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"
)

// withoutDefaults are the served kinds without defaults in the reference.
var withoutDefaults = []string{
	"Binding", "ComponentStatus", "ConfigMap", "Event",
	"ServiceAccount",
	"apps ControllerRevision",
	"authentication.k8s.io SelfSubjectReview", "authentication.k8s.io TokenReview",
	"authorization.k8s.io LocalSubjectAccessReview",
	"authorization.k8s.io SelfSubjectAccessReview",
	"authorization.k8s.io SelfSubjectRulesReview",
	"authorization.k8s.io SubjectAccessReview",
	"certificates.k8s.io CertificateSigningRequest",
	"certificates.k8s.io ClusterTrustBundle",
	"coordination.k8s.io Lease", "coordination.k8s.io LeaseCandidate",
	"events.k8s.io Event",
	"internal.apiserver.k8s.io StorageVersion",
	"lifecycle.k8s.io Eviction", "lifecycle.k8s.io EvictionRequest",
	"networking.k8s.io IPAddress", "networking.k8s.io Ingress",
	"networking.k8s.io ServiceCIDR",
	"node.k8s.io RuntimeClass",
	"policy PodDisruptionBudget",
	"rbac.authorization.k8s.io ClusterRole", "rbac.authorization.k8s.io Role",
	"resource.k8s.io DeviceClass",
	"scheduling.k8s.io Workload",
	"storage.k8s.io CSINode", "storage.k8s.io CSIStorageCapacity",
	"storage.k8s.io VolumeAttributesClass",
	"storagemigration.k8s.io StorageVersionMigration",
}

// withoutRules are the served kinds of which only the metadata is validated here.
var withoutRules = []string{
	"ComponentStatus", // read only
	"apiextensions.k8s.io CustomResourceDefinition", // in a separate package: crd/validation
	// Objects that represent an operation are validated by the operation.
	"Binding", "authentication.k8s.io SelfSubjectReview", "authentication.k8s.io TokenReview",
	"authorization.k8s.io LocalSubjectAccessReview", "authorization.k8s.io SelfSubjectAccessReview",
	"authorization.k8s.io SelfSubjectRulesReview", "authorization.k8s.io SubjectAccessReview",
}

// withoutWarnings are the served kinds whose writers the reference never warns.
var withoutWarnings = []string{
	"Binding", "ComponentStatus", "ConfigMap", "Event", "LimitRange",
	"Namespace",
	"apiextensions.k8s.io CustomResourceDefinition", "apiregistration.k8s.io APIService",
	"apps ControllerRevision",
	"authentication.k8s.io SelfSubjectReview", "authentication.k8s.io TokenReview",
	"authorization.k8s.io LocalSubjectAccessReview", "authorization.k8s.io SelfSubjectAccessReview",
	"authorization.k8s.io SelfSubjectRulesReview", "authorization.k8s.io SubjectAccessReview",
	"autoscaling HorizontalPodAutoscaler",
	"certificates.k8s.io CertificateSigningRequest", "certificates.k8s.io ClusterTrustBundle",
	"certificates.k8s.io PodCertificateRequest",
	"coordination.k8s.io Lease", "coordination.k8s.io LeaseCandidate",
	"events.k8s.io Event",
	"flowcontrol.apiserver.k8s.io FlowSchema",
	"flowcontrol.apiserver.k8s.io PriorityLevelConfiguration",
	"internal.apiserver.k8s.io StorageVersion",
	"lifecycle.k8s.io Eviction", "lifecycle.k8s.io EvictionRequest",
	"networking.k8s.io IPAddress", "networking.k8s.io IngressClass",
	"networking.k8s.io ServiceCIDR",
	"policy PodDisruptionBudget",
	"rbac.authorization.k8s.io ClusterRole", "rbac.authorization.k8s.io ClusterRoleBinding",
	"rbac.authorization.k8s.io Role", "rbac.authorization.k8s.io RoleBinding",
	"resource.k8s.io DeviceClass", "resource.k8s.io DeviceTaintRule",
	"resource.k8s.io ResourceClaim", "resource.k8s.io ResourceClaimTemplate",
	"resource.k8s.io ResourcePoolStatusRequest",
	"scheduling.k8s.io CompositePodGroup", "scheduling.k8s.io PodGroup",
	"scheduling.k8s.io PriorityClass", "scheduling.k8s.io Workload",
	"storage.k8s.io CSINode", "storage.k8s.io VolumeAttachment",
	"storage.k8s.io VolumeAttributesClass",
	"storagemigration.k8s.io StorageVersionMigration",
}

// A row names the defaults, the rules and the warnings of its kind, or the kind is listed as one without them: a
// missing name is an error, and not a rule that is silently not applied.
//
// SPEC: VAL-1, VAL-4
func TestRowsAreWhole(t *testing.T) {
	found := map[string]bool{}
	for _, g := range groups(Config{}) {
		for i := range g.kinds {
			k := &g.kinds[i]
			name := strings.TrimSpace(g.name + " " + k.kind)
			found[name] = true
			rules := FunctionsOf(g.name, k.versions[0].name, k.kind).Rules
			for of, has := range map[string]struct {
				there   bool
				without []string
			}{
				"defaults": {k.defaults != nil || k.timed != nil, withoutDefaults},
				"rules":    {rules.Create != nil || rules.Update != nil, withoutRules},
				"warnings": {k.warnings.Create != nil || k.warnings.Update != nil || k.warnings.Status != nil, withoutWarnings},
			} {
				if has.there == slices.Contains(has.without, name) {
					t.Errorf("%s: its row names %s: %v; it is listed as one without: %v", name, of, has.there, !has.there)
				}
			}
			if k.defaults != nil && k.timed != nil {
				t.Errorf("%s has defaults twice", name)
			}
			if k.status == noStatus && k.untouched["status"] != "" {
				t.Errorf("%s has no status, but fields that a write to it cannot touch", name)
			}
		}
	}
	for _, name := range slices.Concat(withoutDefaults, withoutRules, withoutWarnings) {
		if !found[name] {
			t.Errorf("%q is not served", name)
		}
	}
	if len(found) < 60 {
		t.Errorf("only %d kinds were looked at", len(found))
	}
}

// Every kind's rules, defaults and warnings are named by a row; all others are dead code.
func TestRowsNameEverything(t *testing.T) {
	named := map[string]bool{}
	for _, file := range slices.Concat(files(t, "."), files(t, "../admission")) {
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if of, ok := s.X.(*ast.Ident); ok {
					named[of.Name+"."+s.Sel.Name] = true
				}
			}
			return true
		})
	}
	named["defaults.Traced"] = true // used by the oracle
	there := 0
	for _, pkg := range []string{"columns", "defaults", "validation", "warnings"} {
		for _, file := range files(t, pkg) {
			for _, d := range file.Decls {
				for _, name := range declared(d) {
					there++
					if !named[pkg+"."+name] {
						t.Errorf("no row names %s.%s", pkg, name)
					}
				}
			}
		}
	}
	if there < 180 {
		t.Errorf("only %d declarations were looked at", there)
	}
}

// files parses the files of a folder that are not tests.
func files(t *testing.T, folder string) (all []*ast.File) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), folder+"/"+e.Name(), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, file)
	}
	return all
}

// declared are the exported functions and variables of a declaration.
func declared(d ast.Decl) (names []string) {
	add := func(of *ast.Ident) {
		if of.IsExported() {
			names = append(names, of.Name)
		}
	}
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			add(d.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			if values, ok := spec.(*ast.ValueSpec); ok {
				for _, name := range values.Names {
					add(name)
				}
			}
		}
	}
	return names
}
