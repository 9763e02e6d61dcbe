package cel

import (
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"
	"github.com/google/cel-go/interpreter"
	limits "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/library"
)

// The two environments differ in what was added in the current minor version. A rule that is new in a definition is
// checked in the one of the version before, so that definitions still compile after the server has been taken back by
// one version; a rule that is stored already is compiled and run in the current one. Both are built once, for the
// first rule that needs them, and stay: 0.1 MiB of heap each.
//
// This list is the one of k8s.io/apiserver/pkg/cel/environment at its versions 1.36 and 1.37. That package itself is
// not linked; conformance/cel compares both environments with it, function by function.
var (
	newRules    = sync.OnceValues(func() (*cel.Env, error) { return environment(library.Lists(library.ListsVersion(0))) })
	storedRules = sync.OnceValues(func() (*cel.Env, error) { return environment(library.Lists(library.ListsVersion(1))) })
)

func environment(lists cel.EnvOption) (*cel.Env, error) {
	plain, err := cel.NewEnv()
	if err != nil {
		return nil, err
	}
	full, err := plain.Extend(cel.Lib(base{lists}))
	if err != nil {
		return nil, err
	}
	// The registry behind the environment is copied for every environment that extends it, unless it is hidden.
	registry := hidden{full.CELTypeProvider(), full.CELTypeAdapter()}
	return full.Extend(cel.CustomTypeProvider(registry), cel.CustomTypeAdapter(registry))
}

// hidden is the type registry of an environment, by its interfaces.
type hidden struct {
	types.Provider
	adapter types.Adapter
}

func (h hidden) NativeToValue(value any) ref.Val { return h.adapter.NativeToValue(value) }

// base is everything that is there whatever the type of self.
type base struct{ lists cel.EnvOption }

func (b base) CompileOptions() []cel.EnvOption {
	return []cel.EnvOption{
		cel.HomogeneousAggregateLiterals(),
		cel.EagerlyValidateDeclarations(true),
		cel.DefaultUTCTimeZone(true),
		library.URLs(),
		library.Regex(),
		cel.CostEstimatorOptions(checker.PresenceTestHasCost(false)),
		library.Authz(),
		cel.CrossTypeNumericComparisons(true),
		cel.OptionalTypes(),
		library.Quantity(),
		cel.ASTValidators(
			cel.ValidateDurationLiterals(),
			cel.ValidateTimestampLiterals(),
			cel.ValidateRegexLiterals(),
			cel.ValidateHomogeneousAggregateLiterals(),
		),
		ext.Strings(ext.StringsVersion(2)),
		ext.Sets(),
		library.IP(),
		library.CIDR(),
		library.Format(),
		library.AuthzSelectors(),
		ext.TwoVarComprehensions(),
		library.SemverLib(library.SemverVersion(1)),
		ext.Lists(ext.ListsVersion(3)),
		b.lists,
	}
}

func (base) ProgramOptions() []cel.ProgramOption {
	return []cel.ProgramOption{
		cel.EvalOptions(cel.OptOptimize, cel.OptTrackCost),
		cel.CostLimit(limits.PerCallLimit),
		cel.CostTrackerOptions(interpreter.PresenceTestHasCost(false)),
		cel.CostTracking(&library.CostEstimator{}),
		cel.InterruptCheckFrequency(limits.CheckFrequency),
	}
}
