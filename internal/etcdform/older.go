package etcdform

import (
	"slices"
	"strings"
)

// older are the versions of built-in kinds that the reference reads, that this server does not have, and that differ
// from the version in which the kind is stored in nothing but their name: neither in shape nor in defaults. A cluster
// may have objects in them that were never written again: the releases before 1.35 have stored ServiceCIDRs as v1beta1.
var older = map[string]string{
	"admissionregistration.k8s.io/validatingadmissionpolicies":       "v1beta1 v1alpha1",
	"admissionregistration.k8s.io/validatingadmissionpolicybindings": "v1beta1",
	"apps/controllerrevisions":                                       "v1beta2 v1beta1",
	"apps/daemonsets":                                                "v1beta2",
	"apps/deployments":                                               "v1beta2",
	"apps/replicasets":                                               "v1beta2",
	"apps/statefulsets":                                              "v1beta2",
	"batch/cronjobs":                                                 "v1beta1",
	"certificates.k8s.io/clustertrustbundles":                        "v1alpha1",
	"coordination.k8s.io/leases":                                     "v1beta1",
	"flowcontrol.apiserver.k8s.io/flowschemas":                       "v1beta3 v1beta2 v1beta1",
	"flowcontrol.apiserver.k8s.io/prioritylevelconfigurations":       "v1beta3",
	"networking.k8s.io/ipaddresses":                                  "v1beta1",
	"networking.k8s.io/servicecidrs":                                 "v1beta1",
	"node.k8s.io/runtimeclasses":                                     "v1beta1",
	"policy/poddisruptionbudgets":                                    "v1beta1",
	"rbac.authorization.k8s.io/clusterrolebindings":                  "v1beta1",
	"rbac.authorization.k8s.io/clusterroles":                         "v1beta1",
	"rbac.authorization.k8s.io/rolebindings":                         "v1beta1",
	"rbac.authorization.k8s.io/roles":                                "v1beta1",
	"scheduling.k8s.io/priorityclasses":                              "v1beta1",
	"storage.k8s.io/csidrivers":                                      "v1beta1",
	"storage.k8s.io/csinodes":                                        "v1beta1",
	"storage.k8s.io/csistoragecapacities":                            "v1beta1 v1alpha1",
	"storage.k8s.io/storageclasses":                                  "v1beta1",
	"storage.k8s.io/volumeattachments":                               "v1beta1",
	"storage.k8s.io/volumeattributesclasses":                         "v1beta1 v1alpha1",
}

func isOlder(path, apiVersion string) bool {
	group, _, _ := strings.Cut(path, "/")
	version, ok := strings.CutPrefix(apiVersion, group+"/")
	return ok && slices.Contains(strings.Fields(older[path]), version)
}
