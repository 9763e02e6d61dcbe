package discovery

// priority is where a group version is in discovery: the group among the groups, and the version in its group. Higher
// ones come first, and equal ones are sorted by name.
type priority struct{ group, version int64 }

// Priority is the same, of an APIService.
type Priority struct{ Group, Version int64 }

// Local are the APIServices without a service, by group and version, with their priorities. Those of definitions that
// have DefaultPriority may be missing. It does not change: for other APIServices another Local takes its place. Nil:
// none has been written yet, and each group version that the engine serves counts as having one with DefaultPriority.
//
// They count in the documents that are not aggregated alone. In the reference those are made from the APIServices: a
// built-in group version is not in them while somebody has deleted its APIService, and one that nobody serves is if it
// has one. The aggregated documents are made from what the server itself says of its group versions.
type Local struct{ By map[[2]string]Priority }

// lacks says whether the APIService of a group version is missing, and with it the group version.
func (l *Local) lacks(gv *groupVersion) bool {
	if l == nil || gv.remote != nil {
		return false
	}
	key := [2]string{gv.group, gv.version}
	if _, builtin := groupPriorities[key]; !builtin {
		return false
	}
	_, found := l.By[key]
	return !found
}

// DefaultPriority is the priority of a group version that this server serves itself, unless somebody has edited its
// APIService.
func DefaultPriority(group, version string) Priority {
	if ofGroup, ofVersion, ok := Priorities(group, version); ok {
		return Priority{ofGroup, ofVersion}
	}
	if group == ownGroup {
		return Priority{ownGroupPriority, customVersionPriority}
	}
	return Priority{customGroupPriority, customVersionPriority}
}

// The priorities of custom types, and of the group of APIServices, which has no APIService itself.
const (
	customGroupPriority   = 1000
	customVersionPriority = 100
	ownGroup              = "apiregistration.k8s.io"
	ownGroupPriority      = 20000
)

// groupPriorities are those of the reference (DefaultGenericAPIServicePriorities of pkg/controlplane/apiserver, and
// apiVersionPriorities of cmd/kube-apiserver). A group version that is missing has no APIService.
var groupPriorities = map[[2]string]priority{
	{"", "v1"}:                                   {18000, 1},
	{"apps", "v1"}:                               {17800, 15},
	{"events.k8s.io", "v1"}:                      {17750, 15},
	{"events.k8s.io", "v1beta1"}:                 {17750, 5},
	{"authentication.k8s.io", "v1"}:              {17700, 15},
	{"authentication.k8s.io", "v1beta1"}:         {17700, 9},
	{"authentication.k8s.io", "v1alpha1"}:        {17700, 1},
	{"authorization.k8s.io", "v1"}:               {17600, 15},
	{"autoscaling", "v2"}:                        {17500, 30},
	{"autoscaling", "v1"}:                        {17500, 15},
	{"autoscaling", "v2beta1"}:                   {17500, 9},
	{"autoscaling", "v2beta2"}:                   {17500, 1},
	{"batch", "v1"}:                              {17400, 15},
	{"batch", "v1beta1"}:                         {17400, 9},
	{"batch", "v2alpha1"}:                        {17400, 9},
	{"certificates.k8s.io", "v1"}:                {17300, 15},
	{"certificates.k8s.io", "v1beta1"}:           {17300, 9},
	{"certificates.k8s.io", "v1alpha1"}:          {17300, 1},
	{"networking.k8s.io", "v1"}:                  {17200, 15},
	{"networking.k8s.io", "v1beta1"}:             {17200, 9},
	{"policy", "v1"}:                             {17100, 15},
	{"policy", "v1beta1"}:                        {17100, 9},
	{"rbac.authorization.k8s.io", "v1"}:          {17000, 15},
	{"storage.k8s.io", "v1"}:                     {16800, 15},
	{"storage.k8s.io", "v1beta1"}:                {16800, 9},
	{"storage.k8s.io", "v1alpha1"}:               {16800, 1},
	{"admissionregistration.k8s.io", "v1"}:       {16700, 15},
	{"admissionregistration.k8s.io", "v1beta1"}:  {16700, 12},
	{"admissionregistration.k8s.io", "v1alpha1"}: {16700, 9},
	{"apiextensions.k8s.io", "v1"}:               {16700, 15},
	{"scheduling.k8s.io", "v1"}:                  {16600, 15},
	{"scheduling.k8s.io", "v1beta1"}:             {16600, 9},
	{"scheduling.k8s.io", "v1alpha3"}:            {16600, 3},
	{"coordination.k8s.io", "v1"}:                {16500, 15},
	{"coordination.k8s.io", "v1beta1"}:           {16500, 13},
	{"coordination.k8s.io", "v1alpha2"}:          {16500, 12},
	{"node.k8s.io", "v1"}:                        {16300, 15},
	{"node.k8s.io", "v1beta1"}:                   {16300, 9},
	{"node.k8s.io", "v1alpha1"}:                  {16300, 1},
	{"discovery.k8s.io", "v1"}:                   {16200, 15},
	{"discovery.k8s.io", "v1beta1"}:              {16200, 12},
	{"resource.k8s.io", "v1"}:                    {16200, 21},
	{"resource.k8s.io", "v1beta2"}:               {16200, 15},
	{"resource.k8s.io", "v1beta1"}:               {16200, 9},
	{"resource.k8s.io", "v1alpha3"}:              {16200, 1},
	{"flowcontrol.apiserver.k8s.io", "v1"}:       {16100, 21},
	{"flowcontrol.apiserver.k8s.io", "v1beta3"}:  {16100, 18},
	{"flowcontrol.apiserver.k8s.io", "v1beta2"}:  {16100, 15},
	{"flowcontrol.apiserver.k8s.io", "v1beta1"}:  {16100, 12},
	{"flowcontrol.apiserver.k8s.io", "v1alpha1"}: {16100, 9},
	{"internal.apiserver.k8s.io", "v1alpha1"}:    {16000, 9},
	{"storagemigration.k8s.io", "v1"}:            {15800, 15},
	{"storagemigration.k8s.io", "v1beta1"}:       {15800, 9},
	{"lifecycle.k8s.io", "v1alpha1"}:             {15700, 1},
}

// Priorities are the priorities of the APIService of a group version. ok is false if it has none.
func Priorities(group, version string) (ofGroup, ofVersion int64, ok bool) {
	p, ok := groupPriorities[[2]string{group, version}]
	return p.group, p.version, ok
}
