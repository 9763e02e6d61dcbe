// Package features is the registry of feature gates: all gates of kube-apiserver 1.37 with their defaults and stages,
// those that only this server has, and the parser of --feature-gates.
//
// A Gate is a constant, so that a mistyped one does not compile. A Set says which gates are on; its zero value is the
// defaults. The server parses the flag once and passes the Set to the packages that need it.
//
// A gate is used if code of this program depends on it. The others are accepted, so that a command line of the
// reference starts this server, too, but have no effect: Parse returns those that were set, and the server logs them.
//
// table_generated.go is generated from the reference (conformance/oracle/features); this file has what differs.
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
	// KEP-5958, which is not in 1.37. There it is alpha and off; here it is on, since only a client that requests it is
	// affected.
	ManagedFieldsOptOut - referenceGates: {name: "ManagedFieldsOptOut", stage: alpha, on: true},
}

// differs are the gates of the reference whose default differs here.
var differs = map[Gate]bool{
	CBORServingAndStorage: true, // alpha and off there; only clients that request CBOR are affected
}

// used are the gates that code depends on, besides AllAlpha and AllBeta. A test compares them with the code.
var used = []Gate{
	APIResponseCompression,
	APIServerIdentity,
	APIServerWebhookAuthenticationToken,
	AllowInsecureKubeletCertificateSigningRequests,
	AllowUnsafeMalformedObjectDeletion,
	AtomicWriteVolumeUserFields,
	AuthorizePodWebsocketUpgradeCreatePermission,
	CBORServingAndStorage,
	CSIServiceAccountTokenSecrets,
	CSIVolumeHealth,
	ClearingNominatedNodeNameAfterBinding,
	ClusterTrustBundle,
	ClusterTrustBundleProjection,
	ComponentFlagz,
	ComponentStatusz,
	CompositePodGroup,
	ConstrainedImpersonation,
	ContainerRestartRules,
	ContainerStopSignals,
	CoordinatedLeaderElection,
	CrossNamespaceVolumeDataSource,
	DRAAdminAccess,
	DRAConsumableCapacity,
	DRADerivedAttributes,
	DRADeviceBindingConditions,
	DRADeviceCompatibilityGroups,
	DRADeviceTaintRules,
	DRADeviceTaints,
	DRAExtendedResource,
	DRAListTypeAttributes,
	DRANodeAllocatableResources,
	DRAOptionalNodeOperations,
	DRAPartitionableDevices,
	DRAPartitionableDevicesType,
	DRAPrioritizedList,
	DRAResourceClaimDeviceStatus,
	DRAResourceClaimGranularStatusAuthorization,
	DRAResourcePoolStatus,
	DRAWorkloadResourceClaims,
	DeploymentReplicaSetTerminatingReplicas,
	DynamicResourceAllocation,
	EmptyDirVolumeMode,
	EnvFiles,
	EvictionRequestAPI,
	ExcludeAdmissionWebhookVirtualResources,
	ExtendWebSocketsToKubelet,
	ExternalServiceAccountTokenSigner,
	GRPCContainerProbeTLS,
	GenericWorkload,
	H2CContainerProbe,
	HPAConfigurableTolerance,
	HPAGeneration,
	HPAScaleToZero,
	HostnameOverride,
	ImageVolume,
	ImageVolumeWithDigest,
	InPlacePodLevelResourcesVerticalScaling,
	InPlacePodVerticalScaling,
	InPlacePodVerticalScalingInitContainers,
	InPlacePodVerticalScalingMemoryBackedVolumes,
	InPlacePodVerticalScalingSchedulerPreemption,
	JobManagedBy,
	KMSv1,
	KubeletInUserNamespace,
	KubeletServiceAccountTokenForCredentialProviders,
	ManagedFieldsOptOut,
	ManifestBasedAdmissionControlConfig,
	MatchLabelKeysInPodTopologySpread,
	MaxUnavailableStatefulSet,
	MutableCSINodeAllocatableCount,
	MutablePVNodeAffinity,
	MutablePodResourcesForSuspendedJobs,
	MutableSchedulingDirectivesForSuspendedJobs,
	MutatingAdmissionPolicy,
	NodeDeclaredFeatures,
	PersistentVolumeClaimUnusedSinceTime,
	PodCertificateRequest,
	PodDeletionCost,
	PodGroupPreemptionPolicy,
	PodLevelResources,
	PodLevelResourcesFixDefaulting,
	PodLogsQuerySplitStreams,
	PodObservedGenerationTracking,
	PodTopologyLabelsAdmission,
	PortForwardWebsockets,
	PreferSameTrafficDistribution,
	ProcMountType,
	RelaxedServiceNameValidation,
	RemoteRequestHeaderUID,
	ResourceHealthStatus,
	ResourceHealthStatusMessage,
	RestartAllContainersOnContainerExits,
	SELinuxChangePolicy,
	SELinuxMount,
	SELinuxMountReadWriteOncePod,
	ServiceAccountNodeAudienceRestriction,
	ServiceCIDRStatusFieldWiping,
	ShardedListAndWatch,
	StatefulSetRecreateStrategy,
	StorageVersionAPI,
	StorageVersionHash,
	StorageVersionMigrator,
	StrictIPCIDRValidation,
	SupplementalGroupsPolicy,
	TaintTolerationComparisonOperators,
	TokenRequestServiceAccountUIDValidation,
	TopologyAwareWorkloadScheduling,
	TranslateStreamCloseWebsocketRequests,
	UnknownVersionInteroperabilityProxy,
	UserNamespacesHostNetworkSupport,
	UserNamespacesSupport,
	VolumeAttributesClass,
	VolumeBindMountOptions,
	VolumeLimitScaling,
	WorkloadWithJob,
}

// row is a gate in the table.
type row struct {
	name   string
	stage  stage
	on     bool   // by default, in the reference
	locked bool   // cannot be changed
	needs  []Gate // must be on if this one is
	// eras are what the gate was and is, the newest last, if releases that can be emulated differ; nil: they do not.
	eras []era
}

// era is what a gate is from a release on, in servers that have to be compatible with no older one than another.
type era struct {
	since, compatible Release // the zero Release: all
	stage             stage
	on, locked        bool
}

// at is what a gate is in a server that emulates a release.
func (g Gate) at(v Versions) era {
	r := g.row()
	e := era{stage: r.stage, on: r.on, locked: r.locked}
	if len(r.eras) > 0 {
		e = era{stage: preAlpha}
	}
	for _, later := range r.eras {
		if !later.since.After(v.Emulated) && !later.compatible.After(v.Compatible) {
			e = later
		}
	}
	if on, ok := differs[g]; ok && e.stage != preAlpha {
		e.on = on
	}
	return e
}

type stage uint8

const (
	preAlpha stage = iota // will be alpha in a later release
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

// String returns the name of the gate.
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

// byDefault says whether a gate is on without --feature-gates.
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

// With returns the Set with one gate turned on or off. It does not look at the gates that this one needs.
func (s Set) With(g Gate, on bool) Set {
	if s.On(g) != on {
		s.changed[g/64] ^= 1 << (g % 64)
	}
	return s
}

// Parse is Versions.Parse of this release.
func Parse(text string) (set Set, ignored []string, err error) { return Current.Parse(text) }

// Parse parses the value of --feature-gates, "A=true,B=false", and applies it to the defaults. Its errors are those of
// the reference. ignored has the names of the gates that have no effect in this program, but that the text names or
// changes through AllAlpha and AllBeta.
func (v Versions) Parse(text string) (set Set, ignored []string, err error) {
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
		switch current := g.at(v); {
		case current.locked && current.on != on:
			wrong = append(wrong, fmt.Errorf("cannot set feature gate %s to %t, feature is locked to %t", name, on, current.on))
		case current.stage == preAlpha:
			wrong = append(wrong, fmt.Errorf("cannot set feature gate %s to %t, feature is PreAlpha at emulated version %s, "+
				"min compatibility version %s", name, on, v.Emulated, v.Compatible))
		default:
			named[g] = on
		}
	}
	if len(wrong) > 0 {
		return Set{}, nil, utilerrors.NewAggregate(wrong)
	}
	set = v.resolve(named)
	if err := set.missing(); err != nil {
		return Set{}, nil, err
	}
	defaults := v.Defaults()
	for g := range gates {
		_, ok := named[g]
		if (ok || set.On(g) != defaults.On(g)) && !slices.Contains(used, g) && g != AllAlpha && g != AllBeta {
			ignored = append(ignored, g.String())
		}
	}
	slices.Sort(ignored)
	return set, ignored, nil
}

// read parses the text into names and values. A name may have the prefix of its component, "kube:A=true". If a name
// occurs several times, its last value counts.
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

// Defaults are the gates that are on without --feature-gates.
func (v Versions) Defaults() (set Set) {
	for g := range gates {
		set = set.With(g, g.at(v).on)
	}
	return set
}

// resolve returns the Set for the named gates: AllAlpha and AllBeta set the gates of their stage that are not named.
func (v Versions) resolve(named map[Gate]bool) Set {
	set := v.Defaults()
	for all, of := range map[Gate]stage{AllAlpha: alpha, AllBeta: beta} {
		on, ok := named[all]
		if !ok {
			continue
		}
		for g := range gates {
			if g != AllAlpha && g != AllBeta && g.at(v).stage == of {
				set = set.With(g, on)
			}
		}
	}
	for g, on := range named {
		set = set.With(g, on)
	}
	return set
}

// missing returns an error for each gate that is on without those that it needs.
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

// stageNames are the names of stages in the reference's metrics.
var stageNames = [...]string{preAlpha: "PRE-ALPHA", alpha: "ALPHA", beta: "BETA", stable: "", deprecated: "DEPRECATED"}

// Each yields the gates on which code depends in a server that emulates a release: the name, the stage as the
// reference's metrics name it, and whether the gate is on. Others have no effect, and are neither on nor off.
func (s Set) Each(v Versions, yield func(name, stage string, on bool)) {
	for _, g := range used {
		if stage := g.at(v).stage; stage != preAlpha {
			yield(g.String(), stageNames[stage], s.On(g))
		}
	}
}
