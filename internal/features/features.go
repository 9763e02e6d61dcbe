// Package features is the one registry of feature gates: all gates of kube-apiserver 1.37 with their defaults and
// stages, the few that only this server has, and what --feature-gates makes of them.
//
// A Gate is a constant, so that a mistyped one does not compile. A Set says which gates are on; its zero value is the
// defaults. The server parses the flag once and hands the Set to whoever asks.
//
// A gate is used if something in this program asks for it. The others are known, so that a command line for the
// reference starts this server, too, but mean nothing here: Parse names those that were set, and the server logs them.
//
// table_generated.go comes from the reference (conformance/features); what differs from it is in this file.
package features

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// Gate is one feature gate. The constants are the only values.
type Gate int

// The gates that only this server has.
const (
	ManagedFieldsOptOut Gate = referenceGates + iota
	gates                    // how many there are, with those of the reference
)

var own = [...]row{
	// KEP-5958, which 1.37 does not have yet, has it as alpha and off. On: a client that does not ask for it does not meet
	// it.
	ManagedFieldsOptOut - referenceGates: {name: "ManagedFieldsOptOut", stage: alpha, on: true},
}

// differs are the gates of the reference whose default differs here.
var differs = map[Gate]bool{
	CBORServingAndStorage: true, // alpha and off there; a client that does not ask for CBOR does not meet it
}

// used are the gates that something here asks for, besides AllAlpha and AllBeta. A test compares them with the code.
var used = []Gate{
	APIServerIdentity,
	APIResponseCompression,
	AllowUnsafeMalformedObjectDeletion,
	AtomicWriteVolumeUserFields,
	AuthorizePodWebsocketUpgradeCreatePermission,
	CBORServingAndStorage,
	CSIVolumeHealth,
	ComponentFlagz,
	ComponentStatusz,
	ConstrainedImpersonation,
	ContainerStopSignals,
	CoordinatedLeaderElection,
	DRADerivedAttributes,
	DRADeviceCompatibilityGroups,
	DRAListTypeAttributes,
	DRANodeAllocatableResources,
	DRAOptionalNodeOperations,
	DRAPartitionableDevicesType,
	EmptyDirVolumeMode,
	EvictionRequestAPI,
	GRPCContainerProbeTLS,
	GenericWorkload,
	H2CContainerProbe,
	InPlacePodVerticalScalingSchedulerPreemption,
	ManagedFieldsOptOut,
	ShardedListAndWatch,
	StrictIPCIDRValidation,
	UnknownVersionInteroperabilityProxy,
	VolumeBindMountOptions,
	WorkloadWithJob,
}

// row is what is known of a gate.
type row struct {
	name   string
	stage  stage
	on     bool   // by default, in the reference
	locked bool   // cannot be changed
	needs  []Gate // must be on where this one is
}

type stage uint8

const (
	preAlpha stage = iota // in a later release than this one
	alpha
	beta
	stable
	deprecated
)

func (g Gate) row() *row {
	if g < referenceGates {
		return &reference[g]
	}
	return &own[g-referenceGates]
}

// String is the name of the gate.
func (g Gate) String() string { return g.row().name }

// Find finds a gate by its name.
func Find(name string) (g Gate, ok bool) {
	for g := range gates {
		if g.row().name == name {
			return g, true
		}
	}
	return 0, false
}

// byDefault says whether a gate is on in a server that is told nothing.
func (g Gate) byDefault() bool {
	if on, ok := differs[g]; ok {
		return on
	}
	return g.row().on
}

// Set says which gates are on. It is a value and does not change; the zero Set is the defaults.
type Set struct {
	changed [(gates + 63) / 64]uint64 // one bit for each gate that is not at its default
}

// On says whether a gate is on.
func (s Set) On(g Gate) bool { return g.byDefault() != s.isChanged(g) }

func (s Set) isChanged(g Gate) bool { return s.changed[g/64]>>(g%64)&1 != 0 }

// With is the Set with one gate turned on or off, whatever it needs.
func (s Set) With(g Gate, on bool) Set {
	if s.On(g) != on {
		s.changed[g/64] ^= 1 << (g % 64)
	}
	return s
}

// Parse reads the value of --feature-gates, "A=true,B=false", over the defaults, and refuses what the reference
// refuses. Ignored are the names of the gates that the text sets, by name or through AllAlpha and AllBeta, and that
// mean nothing here.
func Parse(text string) (set Set, ignored []string, err error) {
	asked, err := read(text)
	if err != nil {
		return Set{}, nil, err
	}
	named := map[Gate]bool{}
	var wrong []error
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		g, known := Find(name)
		if !known {
			return Set{}, nil, fmt.Errorf("unrecognized feature gate: %s", name)
		}
		on := asked[name]
		switch row := g.row(); {
		case row.locked && row.on != on:
			wrong = append(wrong, fmt.Errorf("cannot set feature gate %s to %t, feature is locked to %t", name, on, row.on))
		case row.stage == preAlpha:
			wrong = append(wrong, fmt.Errorf("cannot set feature gate %s to %t, feature is PreAlpha in this release", name, on))
		default:
			named[g] = on
		}
	}
	if len(wrong) > 0 {
		return Set{}, nil, utilerrors.NewAggregate(wrong)
	}
	set = resolve(named)
	if err := set.missing(); err != nil {
		return Set{}, nil, err
	}
	for g := range gates {
		if _, ok := named[g]; (ok || set.isChanged(g)) && !slices.Contains(used, g) && g != AllAlpha && g != AllBeta {
			ignored = append(ignored, g.String())
		}
	}
	slices.Sort(ignored)
	return set, ignored, nil
}

// read reads the text into names and values. A name may say that it is one of Kubernetes: "kube:A=true". Of several
// values for one name, the last one counts.
func read(text string) (map[string]bool, error) {
	byComponent := map[string][]string{}
	for entry := range strings.SplitSeq(text, ",") {
		if entry == "" {
			continue
		}
		component, pair, ok := strings.Cut(entry, ":")
		if !ok {
			component, pair = "", entry
		}
		component = strings.TrimSpace(component)
		if component != "" && component != "kube" {
			return nil, fmt.Errorf("component not registered: %s", component)
		}
		byComponent[component] = append(byComponent[component], strings.TrimSpace(pair))
	}
	if len(byComponent) > 1 {
		return nil,
			errors.New("set kube feature gates with default empty prefix or kube: prefix consistently, do not mix use")
	}
	asked := map[string]bool{}
	for _, pairs := range byComponent {
		for _, pair := range pairs {
			if pair == "" {
				continue
			}
			name, value, ok := strings.Cut(pair, "=")
			name, value = strings.TrimSpace(name), strings.TrimSpace(value)
			if !ok {
				return nil, fmt.Errorf("missing bool value for %s", name)
			}
			on, err := strconv.ParseBool(value)
			if err != nil {
				return nil, fmt.Errorf("invalid value of %s=%s, err: %w", name, value, err)
			}
			asked[name] = on
		}
	}
	return asked, nil
}

// resolve gives all gates their values: AllAlpha and AllBeta decide those of their stage that are not named.
func resolve(named map[Gate]bool) (set Set) {
	for all, of := range map[Gate]stage{AllAlpha: alpha, AllBeta: beta} {
		on, ok := named[all]
		if !ok {
			continue
		}
		for g := range gates {
			if g != AllAlpha && g != AllBeta && g.row().stage == of {
				set = set.With(g, on)
			}
		}
	}
	for g, on := range named {
		set = set.With(g, on)
	}
	return set
}

// missing says which gates are on without those that they need.
func (s Set) missing() error {
	var wrong []error
	for g := range gates {
		if !s.On(g) {
			continue
		}
		var off []Gate
		for _, need := range g.row().needs {
			if !s.On(need) {
				off = append(off, need)
			}
		}
		if len(off) > 0 {
			wrong = append(wrong, fmt.Errorf("%s is enabled, but depends on features that are disabled: %v", g, off))
		}
	}
	return utilerrors.NewAggregate(wrong)
}
