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

// The two environments differ in the functions that the current minor version added. New rules are compiled without
// them, so that definitions still compile after a downgrade by one version. Stored rules may use them. Each
// environment is built on first use and kept; it takes 0.1 MiB of heap.
//
// The list of libraries is that of k8s.io/apiserver/pkg/cel/environment at the versions 1.36 and 1.37. That package is
// not linked; conformance/oracle/cel compares both environments with it, function by function.
var (
	newRules    = sync.OnceValues(func() (*cel.Env, error) { return environment(library.Lists(library.ListsVersion(0))) })
	storedRules = sync.OnceValues(func() (*cel.Env, error) { return environment(library.Lists(library.ListsVersion(1))) })
)

func environment(lists cel.EnvOption) (*cel.Env, error) {
	plain, err := cel.NewEnv()
	if err != nil {
		return nil, err
	}
	full, err := plain.Extend(cel.Lib(libraries{lists}))
	if err != nil {
		return nil, err
	}
	// Every environment that extends this one would copy its type registry, if it could see that it is one. So only
	// the registry's interfaces are passed on.
	registry := registryInterfaces{full.CELTypeProvider(), full.CELTypeAdapter()}
	return full.Extend(cel.CustomTypeProvider(registry), cel.CustomTypeAdapter(registry))
}

// registryInterfaces has the interfaces of a type registry, and hides its type.
type registryInterfaces struct {
	types.Provider
	adapter types.Adapter
}

func (r registryInterfaces) NativeToValue(value any) ref.Val { return r.adapter.NativeToValue(value) }

// libraries are the declarations that do not depend on the type of self.
type libraries struct{ lists cel.EnvOption }

func (b libraries) CompileOptions() []cel.EnvOption {
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

func (libraries) ProgramOptions() []cel.ProgramOption {
	return []cel.ProgramOption{
		cel.EvalOptions(cel.OptOptimize, cel.OptTrackCost),
		cel.CostLimit(limits.PerCallLimit),
		cel.CostTrackerOptions(interpreter.PresenceTestHasCost(false)),
		cel.CostTracking(&library.CostEstimator{}),
		cel.CustomDecoratorV2(keepArguments),
	}
}

// call is a step of a program that calls a function. It has the list of its arguments ready: the cost tracker asks for
// it with each call, and cel-go's own steps make a new one every time, which was half of what an evaluation allocates.
type call struct {
	interpreter.InterpretableCall
	arguments []interpreter.InterpretableV2
}

// Args implements interpreter.InterpretableCall.
func (c *call) Args() []interpreter.InterpretableV2 { return c.arguments }

func keepArguments(step interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	if c, ok := step.(interpreter.InterpretableCall); ok {
		return &call{InterpretableCall: c, arguments: c.Args()}, nil
	}
	return step, nil
}

// byOptions has the environments of one kind, by what they are made of. Each is made on first use, and kept.
type byOptions[O comparable, E any] struct {
	build func(O) (E, error)

	mu   sync.Mutex
	made map[O]func() (E, error)
}

func (b *byOptions[O, E]) get(o O) (E, error) {
	b.mu.Lock()
	made := b.made[o]
	if made == nil {
		if b.made == nil {
			b.made = map[O]func() (E, error){}
		}
		made = sync.OnceValues(func() (E, error) { return b.build(o) })
		b.made[o] = made
	}
	b.mu.Unlock()
	return made()
}
