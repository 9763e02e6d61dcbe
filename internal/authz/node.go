package authz

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/selection"

	"plinth/internal/access"
	"plinth/internal/features"
	"plinth/internal/store"
	"plinth/internal/view"
)

// Users that are kubelets.
const (
	nodeUser  = "system:node:"
	nodeGroup = "system:nodes"
)

// nodes implements the mode Node, which authorizes kubelets.
//
// Problem: a kubelet needs the Secrets, ConfigMaps and volumes of the Pods on its node, but a compromised kubelet must
// not read those of other nodes. Which objects these are depends on the stored Pods and changes all the time, so roles
// cannot express it. A kubelet may read:
//
//   - a Secret, ConfigMap, ServiceAccount, PersistentVolumeClaim or ResourceClaim that a Pod of the node names
//   - a PersistentVolume that is bound to such a claim, and a Secret that such a volume names
//   - a VolumeAttachment, ResourceSlice or PodCertificateRequest that names the node
//
// Pods, Nodes, Leases and CSINodes have rules here, too. Requests for other resources are decided by the rules of the
// bootstrap role system:node (as it is in the source, not as stored).
//
// Some rules are wider than what a kubelet needs, since an authorizer does not see the objects of a request: a kubelet
// may create any Pod, and write any Node. The admission plugin NodeRestriction limits that to the kubelet's own Node
// and to mirror Pods on it; the server logs a warning when it starts with this mode and without the plugin.
//
// The reference keeps a graph of these objects that informers update with every change. Here the Pods of each node and
// the bound volumes are views (nodeobjects.go). What a Pod needs is parsed when the kubelet first asks, so the many
// changes of a Pod's status cost almost nothing. Because views are as new as the store, a kubelet may read a Secret as
// soon as the Pod is bound to its node; with informers it may be refused for a moment.
type nodes struct {
	rules   func() []Rule // of the bootstrap role system:node
	store   collections
	pods    *view.View[*podsOfNodes]
	volumes *view.View[*volumes]
}

// collections are the collections that authorizers read.
type collections interface {
	Collection(resource string) *store.Collection
	Get(k store.Key) (*store.Version, bool)
}

func (n *nodes) open(s collections) {
	n.store = s
	n.pods = view.New(s.Collection("/pods"), compilePods)
	n.volumes = view.New(s.Collection("/persistentvolumes"), compileVolumes)
}

// nodeRules returns the rules of the bootstrap role system:node.
func nodeRules(set features.Set) []Rule {
	for _, d := range Bootstrap(set) {
		if d.Resource == "clusterroles" && d.Name == "system:node" {
			return rulesOf(d.Body.At("rules"))
		}
	}
	return nil
}

// NodeOf returns the name of a kubelet's node; ok is false if the user is not a kubelet.
func NodeOf(u *access.User) (name string, ok bool) {
	name, ok = strings.CutPrefix(u.Name, nodeUser)
	return name, ok && u.In(nodeGroup)
}

func (n *nodes) rulesIn(_ context.Context, u *access.User, _ string) ([]Rule, bool, error) {
	if _, ok := NodeOf(u); ok {
		return nil, true, errNodeRules
	}
	return nil, false, nil
}

var errNodeRules = errors.New("node authorizer does not support user rule resolution")

// Authorize implements access.Authorizer. It allows or has no opinion.
func (n *nodes) Authorize(_ context.Context, a *access.Attributes) (access.Decision, string, error) {
	node, ok := NodeOf(&a.User)
	switch {
	case !ok:
		return access.NoOpinion, "", nil
	case node == "":
		return access.NoOpinion, "unknown node for user " + strconv.Quote(a.User.Name), nil
	}
	allowed, why := n.decide(node, a)
	if allowed {
		return access.Allow, "", nil
	}
	return access.NoOpinion, why, nil
}

// decide says whether a kubelet may do something. why is a reason for a refusal that is more specific than the usual
// one.
func (n *nodes) decide(node string, a *access.Attributes) (ok bool, why string) {
	if a.IsResource {
		switch a.Group + "/" + a.Resource {
		case "/secrets", "/configmaps":
			return n.reads(node, a)
		case "/persistentvolumeclaims":
			if a.Subresource != "status" {
				return n.gets(node, a)
			}
			if a.Verb != "update" && a.Verb != "patch" {
				return false, "can only get/update/patch this type"
			}
			return n.related(node, a)
		case "/persistentvolumes", "resource.k8s.io/resourceclaims", "storage.k8s.io/volumeattachments":
			return n.gets(node, a)
		case "/serviceaccounts":
			return n.serviceAccount(node, a)
		case "coordination.k8s.io/leases":
			return lease(node, a)
		case "storage.k8s.io/csinodes":
			return csiNode(node, a)
		case "resource.k8s.io/resourceslices":
			return n.resourceSlice(node, a)
		case "/nodes":
			return itself(node, a)
		case "/pods":
			return n.pod(node, a)
		case "certificates.k8s.io/podcertificaterequests":
			return n.certificateRequest(node, a)
		}
	}
	return slices.ContainsFunc(n.rules(), func(r Rule) bool { return r.allows(a) }), ""
}

// gets allows a GET of one object that is related to the node.
func (n *nodes) gets(node string, a *access.Attributes) (bool, string) {
	switch {
	case a.Verb != "get":
		return false, "can only get individual resources of this type"
	case a.Subresource != "":
		return false, "cannot get subresource"
	}
	return n.related(node, a)
}

// reads allows a GET, list or watch of one object that is related to the node.
func (n *nodes) reads(node string, a *access.Attributes) (bool, string) {
	switch {
	case !a.ReadOnly():
		return false, "can only read resources of this type"
	case a.Subresource != "":
		return false, "cannot read subresource"
	case a.Namespace == "":
		return false, "can only read namespaced object of this type"
	}
	return n.related(node, a)
}

// related allows requests for one object that is related to the node.
func (n *nodes) related(node string, a *access.Attributes) (bool, string) {
	if a.Name == "" {
		return false, "No Object name found"
	}
	return n.relation(node, a)
}

func (n *nodes) relation(node string, a *access.Attributes) (bool, string) {
	if n.needs(node, a) {
		return true, ""
	}
	return false, "no relationship found between node '" + node + "' and this object"
}

func (n *nodes) serviceAccount(node string, a *access.Attributes) (bool, string) {
	switch {
	case a.Verb == "get" && a.Subresource == "":
		return n.reads(node, a)
	case a.Verb != "create" || a.Name == "":
		return false, "can only create tokens for individual service accounts"
	case a.Subresource != "token":
		return false, "can only create token subresource of serviceaccount"
	}
	return n.relation(node, a)
}

// maintains says whether a verb is one by which a kubelet maintains its own object.
func maintains(verb string) bool {
	switch verb {
	case "get", "create", "update", "patch", "delete":
		return true
	}
	return false
}

func lease(node string, a *access.Attributes) (bool, string) {
	const namespace = "kube-node-lease"
	switch {
	case !maintains(a.Verb):
		return false, "can only get, create, update, patch, or delete a node lease"
	case a.Namespace != namespace:
		return false, "can only access leases in the " + strconv.Quote(namespace) + " system namespace"
	case a.Verb != "create" && a.Name != node: // the name of a new object is unknown here
		return false, "can only access node lease with the same name as the requesting node"
	}
	return true, ""
}

func csiNode(node string, a *access.Attributes) (bool, string) {
	switch {
	case a.Subresource == "status":
		return false, "CSINode status access requires CSIVolumeHealth feature" // which is alpha
	case a.Subresource != "":
		return false, "cannot authorize CSINode subresources"
	case !maintains(a.Verb):
		return false, "can only get, create, update, patch, or delete a CSINode"
	case a.Verb != "create" && a.Name != node:
		return false, "can only access CSINode with the same name as the requesting node"
	}
	return true, ""
}

// selects says whether a list or watch selects by a field that must be the node's name.
func selects(node, field string, a *access.Attributes) bool {
	requirements, _ := a.FieldRequirements()
	for _, r := range requirements {
		if r.Field == field && r.Operator == selection.Equals && r.Value == node {
			return true
		}
	}
	return false
}

func (n *nodes) resourceSlice(node string, a *access.Attributes) (bool, string) {
	if a.Subresource != "" {
		return false, "cannot authorize ResourceSlice subresources"
	}
	switch a.Verb {
	case "create": // of any: see nodes about NodeRestriction
		return true, ""
	case "get", "update", "patch", "delete":
		return n.related(node, a)
	case "watch", "list", "deletecollection":
		if selects(node, "spec.nodeName", a) {
			return true, ""
		}
		return false, "can only list/watch/deletecollection resourceslices with nodeName field selector"
	}
	return false,
		"only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection"
}

func (n *nodes) certificateRequest(node string, a *access.Attributes) (bool, string) {
	if a.Subresource != "" {
		return false, "nodes may not access the status subresource of PodCertificateRequests"
	}
	switch a.Verb {
	case "create":
		return true, ""
	case "get":
		return n.related(node, a)
	case "list", "watch":
		if selects(node, "spec.nodeName", a) {
			return true, ""
		}
		return false, "can only list/watch podcertificaterequests with nodeName field selector"
	}
	return false, "nodes may not " + a.Verb + " podcertificaterequests"
}

// itself authorizes requests for Nodes. A kubelet may read its own Node alone, but write any: see nodes about
// NodeRestriction.
func itself(node string, a *access.Attributes) (bool, string) {
	writes := a.Verb == "update" || a.Verb == "patch"
	switch {
	case a.Subresource == "status":
		return writes, ""
	case a.Subresource != "":
		return false, ""
	case writes || a.Verb == "create":
		return true, ""
	case !a.ReadOnly():
		return false, ""
	case a.Name == "":
		return false, "node '" + node + "' cannot read all nodes, only its own Node object"
	case a.Name != node:
		return false, "node '" + node + "' cannot read '" + a.Name + "', only its own Node object"
	}
	return true, ""
}

func (n *nodes) pod(node string, a *access.Attributes) (bool, string) {
	switch a.Subresource {
	case "":
		switch a.Verb {
		case "get":
			return n.related(node, a)
		case "list", "watch":
			if selects(node, "spec.nodeName", a) {
				return true, ""
			}
			if a.Name != "" {
				return n.relation(node, a)
			}
			return false, "can only list/watch pods with spec.nodeName field selector"
		case "create", "delete": // of any Pod: see nodes about NodeRestriction
			return true, ""
		}
	case "status":
		return a.Verb == "update" || a.Verb == "patch", ""
	case "eviction":
		return a.Verb == "create", ""
	}
	return false, ""
}
