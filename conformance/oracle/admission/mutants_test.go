//go:build mutants

package admission

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"plinth/internal/mutants"
)

// compared are the tests whose attempts are tried.
var compared = map[string]func(*testing.T){
	"TestAlwaysDeny":                       TestAlwaysDeny,
	"TestAlwaysPullImages":                 TestAlwaysPullImages,
	"TestAnswersOfWebhooks":                TestAnswersOfWebhooks,
	"TestCasesOfMutatingPolicies":          TestCasesOfMutatingPolicies,
	"TestCasesOfValidatingPolicies":        TestCasesOfValidatingPolicies,
	"TestCertificateApproval":              TestCertificateApproval,
	"TestCertificateSigning":               TestCertificateSigning,
	"TestCertificateSubjectRestriction":    TestCertificateSubjectRestriction,
	"TestChainsOfPlugins":                  TestChainsOfPlugins,
	"TestClusterTrustBundleAttest":         TestClusterTrustBundleAttest,
	"TestConditionsOfWebhooks":             TestConditionsOfWebhooks,
	"TestDefaultIngressClass":              TestDefaultIngressClass,
	"TestDefaultStorageClass":              TestDefaultStorageClass,
	"TestDefaultTolerationSeconds":         TestDefaultTolerationSeconds,
	"TestDenyServiceExternalIPs":           TestDenyServiceExternalIPs,
	"TestExtendedResourceToleration":       TestExtendedResourceToleration,
	"TestKindsOfOwners":                    TestKindsOfOwners,
	"TestLimitPodHardAntiAffinityTopology": TestLimitPodHardAntiAffinityTopology,
	"TestLimitRanger":                      TestLimitRanger,
	"TestLimitRangerAsIn138":               TestLimitRangerAsIn138,
	"TestMetricsOfPolicies":                TestMetricsOfPolicies,
	"TestMetricsOfWebhooks":                TestMetricsOfWebhooks,
	"TestMutatingAdmissionPolicy":          TestMutatingAdmissionPolicy,
	"TestMutatingAdmissionWebhook":         TestMutatingAdmissionWebhook,
	"TestNamespaceExists":                  TestNamespaceExists,
	"TestNamespaceLifecycle":               TestNamespaceLifecycle,
	"TestNodeDeclaredFeatureValidator":     TestNodeDeclaredFeatureValidator,
	"TestNodeRestrictionOfCSINodes":        TestNodeRestrictionOfCSINodes,
	"TestNodeRestrictionOfCertificates":    TestNodeRestrictionOfCertificates,
	"TestNodeRestrictionOfClaims":          TestNodeRestrictionOfClaims,
	"TestNodeRestrictionOfNodes":           TestNodeRestrictionOfNodes,
	"TestNodeRestrictionOfPods":            TestNodeRestrictionOfPods,
	"TestNodeRestrictionOfTokens":          TestNodeRestrictionOfTokens,
	"TestOtherRequests":                    TestOtherRequests,
	"TestOwnersOfRandomObjects":            TestOwnersOfRandomObjects,
	"TestPersistentVolumeClaimResize":      TestPersistentVolumeClaimResize,
	"TestPodGroupProtection":               TestPodGroupProtection,
	"TestPodNodeSelector":                  TestPodNodeSelector,
	"TestPodResizeValidator":               TestPodResizeValidator,
	"TestPodSecurity":                      TestPodSecurity,
	"TestPodSecurityOfExistingPods":        TestPodSecurityOfExistingPods,
	"TestPodSecurityOfFewRequests":         TestPodSecurityOfFewRequests,
	"TestPodTolerationRestriction":         TestPodTolerationRestriction,
	"TestPodTopologyLabels":                TestPodTopologyLabels,
	"TestPriority":                         TestPriority,
	"TestPriorityOfGroups":                 TestPriorityOfGroups,
	"TestReinvocationOfWebhooks":           TestReinvocationOfWebhooks,
	"TestResourceQuota":                    TestResourceQuota,
	"TestResourceQuotaOfExtendedResources": TestResourceQuotaOfExtendedResources,
	"TestResourceQuotaOfFewRequests":       TestResourceQuotaOfFewRequests,
	"TestReviewsAndWebhooks":               TestReviewsAndWebhooks,
	"TestRuntimeClass":                     TestRuntimeClass,
	"TestServiceAccount":                   TestServiceAccount,
	"TestStorageObjectInUseProtection":     TestStorageObjectInUseProtection,
	"TestTaintNodesByCondition":            TestTaintNodesByCondition,
	"TestTolerationsOfNamespaces":          TestTolerationsOfNamespaces,
	"TestValidatingAdmissionPolicy":        TestValidatingAdmissionPolicy,
	"TestValidatingAdmissionWebhook":       TestValidatingAdmissionWebhook,
	"TestWebhooksInFiles":                  TestWebhooksInFiles,
	"TestWhereBudgetsEnd":                  TestWhereBudgetsEnd,
}

// TestMutants runs the attempts of the tests above on each mutant, in one process, and reports those for which our
// plugin differs from the reference's.
func TestMutants(t *testing.T) {
	r, err := mutants.NewRecorder()
	if err != nil {
		t.Fatal(err)
	}
	trial := &trial{Recorder: r, tried: map[int]int{}, made: map[int]int{}}
	tryMutants = trial.try
	defer func() { tryMutants = nil }()
	names := make([]string, 0, len(compared))
	for name := range compared {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		clear(trial.tried)
		clear(trial.made)
		t.Run(name, compared[name])
	}
	if err := r.Save(); err != nil {
		t.Fatal(err)
	}
}

// trial tries the open mutants on attempts, one world after the other.
type trial struct {
	*mutants.Recorder
	world *world
	// first are the mutants that are reached as our side is made. Those in the values of variables count as such, if
	// they are about the plugin.
	first []int
	// files are those whose mutants the attempts reach; globals are tried if they are in one of them.
	files map[string]bool
	// tried counts the attempts of a test with a mutant, and made how often our side was made for it: for a world, or for
	// the mutants in the values of variables for a test.
	tried, made map[int]int
}

// mostTried is how many attempts of a test are tried on a mutant.
const mostTried = 20_000

// mostMade is how often our side of a world is made for a mutant: that takes longer than an attempt.
const mostMade = 400

// enter begins with another world.
func (m *trial) enter(t testing.TB, w *world) {
	m.world = w
	// What a plugin depends on differs from world to world; the values of variables do not.
	maps.DeleteFunc(m.made, func(n int, _ int) bool { return !slices.Contains(mutants.Globals, n) })
	m.first, m.files = nil, map[string]bool{}
	m.first = reached(func() {
		if err := w.remake(); err != nil {
			t.Fatal(err)
		}
	})
}

// reached are the mutants that a function reaches.
func reached(f func()) []int {
	all := map[int]bool{}
	mutants.Reach = func(n int) { all[n] = true }
	defer func() { mutants.Reach = nil }()
	f()
	mutants.Reach = nil
	list := make([]int, 0, len(all))
	for n := range all {
		list = append(list, n)
	}
	slices.Sort(list)
	return list
}

func fileOf(mutant int) string {
	file, _, _ := strings.Cut(mutants.Names[mutant-1], " ")
	return file
}

// textOfRun is the outcome of a run as text, and what metrics were told.
func (m *trial) textOfRun(run func() outcome) (outcome, string) {
	m.world.figures.take()
	o := run()
	return o, o.String() + m.world.figures.take()
}

// try is tryMutants.
func (m *trial) try(t testing.TB, w *world, want string, run func() outcome) outcome {
	t.Helper()
	if w != m.world {
		m.enter(t, w)
	}
	var first outcome
	var says string
	once := reached(func() { first, says = m.textOfRun(run) })
	if want != "" && first.String() != want { // an earlier mutant has left its traces in the world, or ours differs
		if err := w.remake(); err != nil {
			t.Fatal(err)
		}
		once = reached(func() { first, says = m.textOfRun(run) })
	}
	same := func() bool {
		_, text := m.textOfRun(run)
		return text == says
	}
	if !same() {
		return first // the plugin remembers attempts
	}
	again := reached(func() { run() })
	for _, n := range once {
		m.files[fileOf(n)] = true
	}
	for _, n := range again {
		if !m.Open[n] || m.tried[n] >= mostTried {
			continue
		}
		if m.tried[n]++; m.differs(n, says, run, false) {
			m.settle(t, n, says, run, same)
		}
	}
	// What the world has computed before, as it was made or by an earlier attempt, is computed again.
	for _, n := range m.others(once, again) {
		if !m.Open[n] || m.made[n] >= mostMade {
			continue
		}
		if m.made[n]++; m.differs(n, says, run, true) {
			delete(m.Open, n)
		}
		mutants.Set(0)
		if err := w.remake(); err != nil {
			t.Fatal(err)
		}
	}
	return first
}

// settle closes a mutant that an attempt noticed, unless an earlier mutant has left its traces in the world.
func (m *trial) settle(t testing.TB, n int, says string, run func() outcome, same func() bool) {
	if same() {
		delete(m.Open, n)
		return
	}
	if err := m.world.remake(); err != nil {
		t.Fatal(err)
	}
	run() // as before it was tried: what is computed once is there
	if m.differs(n, says, run, false) {
		delete(m.Open, n)
	}
	if err := m.world.remake(); err != nil {
		t.Fatal(err)
	}
}

// others are the mutants that need a world that is made with them.
func (m *trial) others(once, again []int) []int {
	all := slices.Clone(m.first)
	for _, n := range once {
		if _, found := slices.BinarySearch(again, n); !found {
			all = append(all, n)
		}
	}
	for _, n := range mutants.Globals {
		about := strings.Contains(strings.ToLower(mutants.Names[n-1]), strings.ToLower(m.world.plugin))
		if file := fileOf(n); about || m.files[file] && file != "admission.go" {
			all = append(all, n)
		}
	}
	return all
}

// budget is the number of mutants that a run may reach before it counts as endless.
const budget = 1 << 20

// differs says whether a mutant changes the result of an attempt, in a world that is made with it if remake is set.
func (m *trial) differs(n int, says string, run func() outcome, remake bool) (differs bool) {
	defer func() {
		mutants.Active, mutants.Budget = 0, 0
		if recover() != nil {
			differs = true
		}
	}()
	mutants.Active, mutants.Budget = n, budget
	if remake {
		if slices.Contains(mutants.Globals, n) {
			mutants.Set(n)
		}
		if err := m.world.remake(); err != nil {
			return true
		}
	}
	_, text := m.textOfRun(run)
	return text != says
}
