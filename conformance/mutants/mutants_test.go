package mutants

import (
	"bytes"
	"flag"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"plinth/conformance/internal/mutation"
)

var (
	all    = flag.Bool("all", false, "try every mutant, not a sample")
	update = flag.Bool("update", false,
		"with -all: write the figures and the mutants that no test notices into testdata")
	only   = flag.String("only", "", "try the mutants of these packages alone, separated by commas")
	inFile = flag.String("file", "",
		"with -all: try the mutants of these files alone, separated by commas; of the others the file in testdata is right")
	named = flag.String("tests", "", "with -all: run these tests alone, separated by commas: a mutant that only another "+
		"test notices counts as unnoticed")
	atATime = flag.Int("at", 2, "how many mutants are tried at a time")
)

// target is a package with rules, and the packages whose tests are to notice its mutants.
type target struct {
	pkg string
	// part names the files of a package that is more than one target, in -only and in the name of the file in testdata.
	part  string
	tests []string
	// files are those of the package whose mutants are tried; nil: all.
	files []string
	// inProcess are the tests, of the first of these packages, whose cases TestMutants of that package tries on the
	// mutants in one process; a separate process is started only for the remaining mutants that another test reaches.
	inProcess []string
	// sample is how many mutants are tried without -all.
	sample int
	// skip are tests that do not test the rules or take too long to be run for each mutant, and files without rules.
	skip []string
	// just are the only tests that are run; nil: all.
	just []string
	// least is the minimum number of mutants: if fewer are found, the search for them is broken.
	least int
}

// name is that of the package, and of the part of it.
func (target *target) name() string {
	if target.part == "" {
		return target.pkg
	}
	return target.pkg + "/" + target.part
}

// apiServices has the rules of APIServices, whose types have no recorded cases.
const apiServices = "conformance/oracle/apiregistration"

var targets = []target{
	{pkg: "internal/builtin/validation", tests: []string{"internal/builtin/validation", apiServices},
		inProcess: []string{"TestTables", "TestDocumentsAreValid"}, sample: 60, least: 12_000},
	{pkg: "internal/crd/validation", tests: []string{"internal/crd/validation"}, inProcess: []string{"TestRecorded"},
		skip: []string{"TestDeepSchemas"}, least: 2_000},
	{pkg: "internal/builtin/defaults", tests: []string{"internal/builtin/defaults", apiServices},
		inProcess: []string{"TestRecorded"}, sample: 60, least: 1_100},
	{pkg: "internal/builtin/columns", tests: []string{"internal/builtin"}, least: 1_400},
	{pkg: "internal/builtin/warnings", tests: []string{"internal/builtin/warnings"}, least: 800},
	{pkg: "internal/builtin/convert", tests: []string{"internal/builtin/convert"}, least: 300},
	{pkg: "internal/proto", tests: []string{"internal/proto"}, least: 800},
	{pkg: "internal/admission", tests: []string{"conformance/oracle/admission", "internal/admission"},
		files: admissionFiles, inProcess: admissionTests, skip: admissionOthers, least: 3_000},
	{pkg: "internal/admission", part: "chain", tests: []string{"internal/admission", "conformance/oracle/admission"},
		files: chainFiles, just: chainTests, least: 600},
	{pkg: "internal/admission/quota", tests: []string{"conformance/oracle/admission", "internal/admission/quota"},
		just: quotaTests, inProcess: quotaAttempts, least: 500},
	{pkg: "internal/admission/hooks", tests: []string{"conformance/oracle/admission", "internal/admission",
		"internal/admission/hooks"}, just: hookTests, inProcess: hookAttempts, least: 250},
	{pkg: "internal/admission/webhooks", tests: []string{"conformance/oracle/admission", "internal/admission",
		"internal/admission/webhooks"}, just: webhookTests, inProcess: webhookAttempts, least: 400},
	{pkg: "internal/admission/policies", tests: []string{"conformance/oracle/admission", "internal/admission",
		"internal/admission/policies"}, just: policyTests, inProcess: policyAttempts, least: 600},
	{pkg: "internal/view", tests: []string{"internal/view"}, least: 40},
	{pkg: "internal/planes/kind", tests: []string{"internal/planes/kind"}, least: 100},
}

// webhookAttempts are the tests whose attempts are about webhooks, policyAttempts those about policies.
var webhookAttempts = []string{
	"TestAnswersOfWebhooks", "TestChainsOfPlugins", "TestConditionsOfWebhooks", "TestMetricsOfWebhooks",
	"TestMutatingAdmissionWebhook", "TestReinvocationOfWebhooks", "TestReviewsAndWebhooks",
	"TestValidatingAdmissionWebhook", "TestWebhooksInFiles", "TestWhereBudgetsEnd",
}

var policyAttempts = []string{
	"TestCasesOfMutatingPolicies", "TestCasesOfValidatingPolicies", "TestMetricsOfPolicies",
	"TestMutatingAdmissionPolicy", "TestValidatingAdmissionPolicy", "TestWhereBudgetsEnd",
}

// webhookTests are the first, and others of webhooks; policyTests the second, and others of policies.
var webhookTests = slices.Concat(webhookAttempts, []string{
	"TestCanceledRequests", "TestConfigurationsChange", "TestErrorsBeforeCalls", "TestErrorsOfTheAPIInCalls",
	"TestMutatingWebhooks", "TestNoMetrics", "TestRefusals", "TestSlowWebhook", "TestStaticManifests",
	"TestStaticOfTheSameName", "TestStaticWebhooks", "TestUnreadableReviews", "TestWebhookAnswers",
	"TestWebhooksAreNotAskedAboutThemselves", "TestWhatWebhooksSee", "TestWhichWebhooks",
})

var policyTests = slices.Concat(policyAttempts, []string{
	"TestBudgetsOfPolicies", "TestConversionAfterAChange", "TestDearSteps", "TestErrorsOfPolicies",
	"TestExemptRequests", "TestExpressionsAreCounted", "TestKindsOfParams", "TestKindsOfParamsThatWereNeverThere",
	"TestMutatingPolicies", "TestNoMetrics", "TestOtherNamespaces", "TestParamsOfTypesThatAreGone",
	"TestPartsOfObjectsInPatches", "TestPoliciesAreCompiledWhenTheyMatch", "TestPoliciesChange",
	"TestPoliciesChangeMeanwhile", "TestPoliciesHoldAtOnce", "TestSecondPass", "TestStaticPolicies",
	"TestTypeChecking", "TestUnknownFieldsOfPatches", "TestWrongTypesOfIntents",
})

// hookTests are all of them, and those of what webhooks and policies have in common.
var hookAttempts = slices.Concat(webhookAttempts, policyAttempts)

var hookTests = slices.Concat(webhookTests, policyTests, []string{
	"TestExemptTypes", "TestForbidden", "TestNamespaceOfRequests", "TestPasses", "TestQuestions", "TestReviewed",
	"TestScopes", "TestSelectors",
})

// quotaAttempts are the tests whose attempts use quotas, or what else is in their package.
var quotaAttempts = []string{
	"TestDefaultStorageClass", "TestLimitRanger", "TestPersistentVolumeClaimResize", "TestPodResizeValidator",
	"TestResourceQuota", "TestResourceQuotaOfExtendedResources", "TestResourceQuotaOfFewRequests",
}

// quotaTests are those, and the tests of the package. Each world has a store with charges, so every test of plugins
// would reach their mutants.
var quotaTests = append(quotaAttempts[:len(quotaAttempts):len(quotaAttempts)], "TestCharges", "TestClasses",
	"TestClassesOfObjects", "TestEndOfPods", "TestExtendedAmounts", "TestNamesOfLimits", "TestParseRule",
	"TestQuantity", "TestRequiredRequests",
	"TestSharedCharges", "TestUseOfObjects")

// chainFiles are the files of the chain, of what its plugins read and of their configuration.
var chainFiles = []string{
	"admission.go", "chain.go", "configuration.go", "manifests.go", "objects.go", "policies.go", "webhooks.go",
}

// chainTests are tests of these files. Every test of a plugin reaches some of their mutants.
var chainTests = []string{
	"TestAlwaysDeny", "TestAlwaysPullImages", "TestCertificateApproval", "TestCertificateSigning",
	"TestCertificateSubjectRestriction", "TestChain", "TestClocksOfPlugins", "TestConfigurationFiles",
	"TestConfigurations", "TestConfigurationsOfHooksAndPolicies", "TestDefaultAccountIsAwaited",
	"TestDefaultIngressClass", "TestDenyServiceExternalIPs", "TestEventRateLimit", "TestExtendedResourceToleration",
	"TestKindsOfParamsThatWereNeverThere", "TestLimitPodHardAntiAffinityTopology", "TestManifestsAreFollowed",
	"TestManifestsAtTheStart", "TestMetricsOfChains", "TestMutatingPolicies", "TestMutatingWebhooks",
	"TestNamespaceLifecycle", "TestNamespacesOfHooksAndPolicies", "TestObjectsOfNamespaces",
	"TestObjectsOfOtherProcesses", "TestObjectsThatAreAwaited", "TestObservedPlugins", "TestOrder",
	"TestOtherRequests", "TestPluginsWithoutTypes", "TestPodResizeValidator", "TestPoliciesChangeMeanwhile",
	"TestPoliciesHoldAtOnce", "TestReviewsAndWebhooks", "TestSelection", "TestServiceAccount",
	"TestStaticManifests", "TestStaticPolicies", "TestStaticWebhooks", "TestStorageObjectInUseProtection",
	"TestTableOfPlugins", "TestTaintNodesByCondition", "TestTimesOfChains", "TestTypesThatAreSwitchedOff",
	"TestUnreadableNodeSelectors", "TestUnreadableObjects", "TestWebhookAnswers", "TestWebhooksInFiles",
	"TestWhichWebhooks",
}

// admissionFiles are the files of the plugins.
var admissionFiles = []string{
	"alwaysdeny.go", "alwayspullimages.go", "certificates.go", "clustertrustbundleattest.go", "csitranslation.go",
	"defaultclass.go", "defaultingressclass.go", "defaulttolerationseconds.go", "denyserviceexternalips.go",
	"eventratelimit.go", "extendedresourcetoleration.go", "imagepolicywebhook.go",
	"limitpodhardantiaffinitytopology.go", "limitranger.go", "namespaceautoprovision.go", "namespaceexists.go",
	"namespacelifecycle.go", "nodedeclaredfeaturevalidator.go", "noderestriction.go",
	"ownerreferencespermissionenforcement.go", "podgroupprotection.go", "podnodeselector.go", "podresizevalidator.go",
	"pods.go",
	"podsecurity.go", "podsecurityconfiguration.go", "podsecuritymetrics.go", "podsecuritypods.go",
	"podtolerationrestriction.go", "podtopologylabels.go", "priority.go", "resourcequota.go", "runtimeclass.go",
	"serviceaccount.go", "storage.go", "taintnodesbycondition.go",
}

// admissionOthers are tests of what has other files.
var admissionOthers = []string{
	"TestBudgetsOfPolicies", "TestMutatingAdmissionPolicy", "TestMutatingPolicies", "TestMutatingWebhooks",
	"TestPoliciesChangeMeanwhile", "TestPoliciesHoldAtOnce", "TestSlowWebhook", "TestStaticManifests",
	"TestStaticPolicies", "TestStaticWebhooks", "TestTypeChecking", "TestValidatingAdmissionPolicy",
	"TestWebhookAnswers", "TestWebhooksAreNotAskedAboutThemselves", "TestWhatWebhooksSee", "TestWhichWebhooks",
}

// admissionTests are the tests of the oracle that find all differences by comparing outcomes; TestMutants there runs
// their attempts.
var admissionTests = []string{
	"TestAlwaysDeny", "TestAlwaysPullImages", "TestCertificateApproval", "TestCertificateSigning",
	"TestCertificateSubjectRestriction", "TestClusterTrustBundleAttest", "TestDefaultIngressClass",
	"TestDefaultStorageClass", "TestDefaultTolerationSeconds", "TestDenyServiceExternalIPs",
	"TestExtendedResourceToleration", "TestKindsOfOwners", "TestLimitPodHardAntiAffinityTopology", "TestLimitRanger",
	"TestLimitRangerAsIn138", "TestNamespaceExists", "TestNamespaceLifecycle", "TestNodeDeclaredFeatureValidator",
	"TestNodeRestrictionOfCSINodes", "TestNodeRestrictionOfCertificates", "TestNodeRestrictionOfClaims",
	"TestNodeRestrictionOfNodes", "TestNodeRestrictionOfPods", "TestNodeRestrictionOfTokens", "TestOtherRequests",
	"TestOwnersOfRandomObjects", "TestPersistentVolumeClaimResize", "TestPodGroupProtection",
	"TestPodNodeSelector", "TestPodResizeValidator",
	"TestPodSecurity", "TestPodSecurityOfExistingPods", "TestPodSecurityOfFewRequests",
	"TestPodTolerationRestriction", "TestPodTopologyLabels", "TestPriority", "TestPriorityOfGroups",
	"TestResourceQuota",
	"TestResourceQuotaOfExtendedResources", "TestResourceQuotaOfFewRequests", "TestRuntimeClass",
	"TestServiceAccount", "TestStorageObjectInUseProtection", "TestTaintNodesByCondition",
	"TestTolerationsOfNamespaces",
}

func TestMutantsAreNoticed(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	known, tried := 0, 0
	for _, target := range targets {
		if *only != "" && !slices.Contains(strings.Split(*only, ","), target.name()) {
			continue
		}
		known++
		if !*all && target.sample == 0 {
			continue
		}
		tried++
		t.Run(target.name(), func(t *testing.T) { target.try(t, root) })
	}
	if want := len(strings.Split(*only, ",")); *only != "" && known != want {
		t.Errorf("%d of the packages %s are known", known, *only)
	}
	if *only != "" && tried < known || tried == 0 {
		t.Errorf("the mutants of %d packages are tried: those without a sample need -all", tried)
	}
}

// Each package with rules is a target, and each target has its file. Every mutant in the file has a reason why no test
// can notice it: those that -update lists without one need a test case.
func TestEveryPackageIsATarget(t *testing.T) {
	files := map[string]bool{}
	listed, err := filepath.Glob("testdata/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range listed {
		files[file] = true
	}
	for _, target := range targets {
		known, err := readUnnoticed(target.name())
		if err != nil {
			t.Fatal(err)
		}
		if !files[known.file] {
			t.Errorf("%s is the file of two targets", known.file)
		}
		delete(files, known.file)
		for name, reason := range known.lines {
			if reason == "" {
				t.Errorf("%s: no test notices %s, and there is no reason", known.file, name)
			}
		}
		if target.least < 40 {
			t.Errorf("%s has no floor", target.pkg)
		}
	}
	for file := range files {
		t.Errorf("%s is the file of no target", file)
	}
	packages := map[string]bool{"internal/admission": true, "internal/crd/validation": true, "internal/proto": true,
		"internal/view": true, "internal/planes/kind": true}
	for _, below := range []string{"builtin", "admission"} {
		rules, err := filepath.Glob("../../internal/" + below + "/*/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range rules {
			packages[strings.TrimPrefix(filepath.ToSlash(filepath.Dir(file)), "../../")] = true
		}
	}
	delete(packages, "internal/gotypes") // it compiles types and has no rules
	missing := maps.Clone(packages)
	for _, target := range targets {
		if !packages[target.pkg] {
			t.Errorf("there is no package %s", target.pkg)
		}
		delete(missing, target.pkg)
	}
	for pkg := range missing {
		t.Errorf("%s is no target", pkg)
	}
}

func (target *target) try(t *testing.T, root string) {
	skip := func(name string) bool { return slices.Contains(target.skip, name) }
	pkg, err := mutation.Parse(root, mutation.Path(target.pkg), func(file string) bool {
		return skip(file) || target.files != nil && !slices.Contains(target.files, file)
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(pkg.Mutants) < target.least {
		t.Fatalf("only %d mutants are found; %d are the floor", len(pkg.Mutants), target.least)
	}
	known, err := readUnnoticed(target.name())
	if err != nil {
		t.Fatal(err)
	}
	numbers := map[string]int{}
	for i, m := range pkg.Mutants {
		if numbers[m.Name] > 0 {
			t.Fatalf("two mutants are called %q", m.Name)
		}
		numbers[m.Name] = i + 1
	}
	for name := range known.lines {
		if numbers[name] == 0 && !(*all && *update) {
			t.Errorf("%s: %q is no mutant any more", known.file, name)
		}
	}
	chosen, others := target.choose(pkg, known)
	out := t.TempDir()
	overlay, err := pkg.Overlay(root, out)
	if err != nil {
		t.Fatal(err)
	}
	if len(chosen) == 0 {
		t.Fatal("no mutant is tried")
	}
	var programs []*mutation.Program
	for _, tests := range target.tests {
		program, err := mutation.Build(moduleOf(root, tests), overlay, mutation.Path(tests), out)
		if err != nil {
			t.Fatal(err)
		}
		if err := program.Trace(pkg, func(test string) bool {
			return skip(test) || target.just != nil && !slices.Contains(target.just, test) ||
				*named != "" && !slices.Contains(strings.Split(*named, ","), test)
		}); err != nil {
			t.Fatal(err)
		}
		programs = append(programs, program)
	}
	open := chosen
	if target.inProcess != nil {
		global := func(n int) bool { return pkg.Mutants[n-1].Global }
		if open, err = programs[0].InProcess(chosen, target.inProcess, global); err != nil {
			t.Fatal(err)
		}
	}
	left, err := mutation.Survivors(open, *atATime, programs...)
	if err != nil {
		t.Fatal(err)
	}
	left = slices.Sorted(slices.Values(append(left, others...)))
	if *all && *update {
		if err := known.write(pkg, left); err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, n := range chosen {
		m := pkg.Mutants[n-1]
		_, listed := known.lines[m.Name]
		switch noticed := !slices.Contains(left, n); {
		case noticed && listed:
			t.Errorf("%s: noticed, although %s says that it is not: %s", m.At, known.file, m.Name)
		case !noticed && !listed:
			t.Errorf("%s: no test notices: %s", m.At, m.Name)
		}
	}
	if !*all {
		t.Logf("%d of %d mutants are noticed", len(chosen)-len(left), len(pkg.Mutants))
	} else if figures := known.figures(pkg, left); figures != known.header {
		t.Errorf("%s says %q\nit is %q", known.file, known.header, figures)
	}
}

// moduleOf is the folder of the module that has a package.
func moduleOf(root, pkg string) string {
	if strings.HasPrefix(pkg, "conformance/") {
		return filepath.Join(root, "conformance")
	}
	return root
}

// choose returns the mutants to be tried: all, or a sample that stays the same as long as the package does. others are
// those in other files than -file that no test notices, by the file in testdata.
func (target *target) choose(pkg *mutation.Package, known *unnoticed) (chosen, others []int) {
	for i, m := range pkg.Mutants {
		_, listed := known.lines[m.Name]
		file, _, _ := strings.Cut(m.Name, " ")
		switch here := *inFile == "" || slices.Contains(strings.Split(*inFile, ","), file); {
		case here && (*all || !listed):
			chosen = append(chosen, i+1)
		case !here && listed:
			others = append(others, i+1)
		}
	}
	if *all || len(chosen) <= target.sample {
		return chosen, others
	}
	order := func(n int) uint64 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(pkg.Mutants[n-1].Name)) // never fails
		return h.Sum64()
	}
	slices.SortFunc(chosen, func(a, b int) int {
		if order(a) < order(b) {
			return -1
		}
		return 1
	})
	return chosen[:target.sample], others
}

// unnoticed holds the mutants of a package that no test notices, as listed in its file: reasons by name, "" for those
// that no test covers yet.
type unnoticed struct {
	file, header string
	lines        map[string]string
}

const (
	equivalent = "= "
	uncovered  = "? "
)

func readUnnoticed(target string) (*unnoticed, error) {
	u := &unnoticed{file: filepath.Join("testdata", strings.ReplaceAll(target, "/", "_")+".txt"),
		lines: map[string]string{}}
	text, err := os.ReadFile(u.file)
	if err != nil {
		return nil, err
	}
	header, rest, _ := strings.Cut(string(text), "\n")
	u.header = strings.TrimPrefix(header, "# ")
	for line := range strings.Lines(rest) {
		line = strings.TrimSuffix(line, "\n")
		name, reason := "", ""
		if open, ok := strings.CutPrefix(line, uncovered); ok {
			name = open
		} else if same, ok := strings.CutPrefix(line, equivalent); ok {
			if name, reason, ok = strings.Cut(same, " :: "); !ok || reason == "" {
				return nil, fmt.Errorf("%s: no reason: %s", u.file, line)
			}
		} else {
			return nil, fmt.Errorf("%s: %q", u.file, line)
		}
		if _, twice := u.lines[name]; twice {
			return nil, fmt.Errorf("%s: twice: %s", u.file, name)
		}
		u.lines[name] = reason
	}
	return u, nil
}

// figures formats the numbers of a package's mutants, by outcome.
func (u *unnoticed) figures(pkg *mutation.Package, left []int) string {
	kinds := map[mutation.Kind]int{}
	for _, m := range pkg.Mutants {
		kinds[m.Kind]++
	}
	same := 0
	for _, n := range left {
		if u.lines[pkg.Mutants[n-1].Name] != "" {
			same++
		}
	}
	functions := map[string]bool{} // whether a mutant in it is noticed
	for i, m := range pkg.Mutants {
		if function, _, _ := strings.Cut(m.Name, ": "); !m.Global {
			_, unnoticed := slices.BinarySearch(left, i+1)
			functions[function] = functions[function] || !unnoticed
		}
	}
	count := len(functions)
	maps.DeleteFunc(functions, func(_ string, noticed bool) bool { return !noticed })
	text := fmt.Sprintf("%d functions with mutants, in %d of them one is noticed; %d mutants (", count, len(functions),
		len(pkg.Mutants))
	for i, kind := range mutation.Kinds() {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%s %d", kind, kinds[kind])
	}
	return text + fmt.Sprintf("): %d noticed, %d equivalent, %d not yet covered", len(pkg.Mutants)-len(left), same,
		len(left)-same)
}

func (u *unnoticed) write(pkg *mutation.Package, left []int) error {
	out := bytes.NewBufferString("# " + u.figures(pkg, left) + "\n")
	for _, same := range []bool{true, false} {
		for _, n := range left {
			name := pkg.Mutants[n-1].Name
			switch reason := u.lines[name]; {
			case same && reason != "":
				fmt.Fprintf(out, "%s%s :: %s\n", equivalent, name, reason)
			case !same && reason == "":
				fmt.Fprintf(out, "%s%s\n", uncovered, name)
			}
		}
	}
	return os.WriteFile(u.file, out.Bytes(), 0o644)
}
