package planes

import (
	"time"

	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/object"
)

// off is the annotation of objects that were copied with a plane and do nothing there: what they were, as JSON.
const off = "plinth/off"

// longestOff bounds the annotation: all those of an object may have 256 KiB, or it cannot be updated any more.
const longestOff = 64 << 10

// nowhere is a host that no resolver finds (RFC 6761), and noService a service that does not exist.
const (
	nowhere   = "https://copied-with-the-plane.invalid/"
	noService = "copied-with-the-plane"
)

// outwards are the types whose objects have a plane connect to others: the plane that they were copied from has them
// for its own backends, which must not hear of another plane until its owner says so. The functions return how an
// object is to be copied, and what of it was changed; null: it is copied as it is.
//
// The objects are changed, and no mark is interpreted: everybody sees what they do, and who applies the manifest once
// more turns them on.
var outwards = map[string]func(obj object.Value) (changed, was object.Value){
	"admissionregistration.k8s.io/mutatingwebhookconfigurations":   withoutRules,
	"admissionregistration.k8s.io/validatingwebhookconfigurations": withoutRules,
	"apiregistration.k8s.io/apiservices":                           withoutService,
	"apiextensions.k8s.io/customresourcedefinitions":               withoutConversion,
	"/secrets": withoutToken,
}

// withoutToken takes the token out of a Secret that has one of a ServiceAccount, or of a node that joins: it is good in
// the plane that it was copied from, where who reads the copy has no rights. The controller of tokens makes one for the
// new plane.
func withoutToken(obj object.Value) (changed, was object.Value) {
	for typ, member := range map[string]string{"kubernetes.io/service-account-token": "token",
		"bootstrap.kubernetes.io/token": "token-secret"} {
		if obj.At("type").Str() == typ && !obj.At("data", member).IsNull() {
			return obj.With("data", obj.At("data").Without(member)), object.StringOf("a token of another plane")
		}
	}
	return obj, object.Nil
}

// withoutRules makes webhooks match no request.
func withoutRules(obj object.Value) (changed, was object.Value) {
	hooks := obj.At("webhooks")
	if hooks.Len() == 0 {
		return obj, object.Nil
	}
	all := make([]object.Value, 0, hooks.Len())
	for _, h := range hooks.Items() {
		all = append(all, h.Without("rules"))
	}
	return obj.With("webhooks", object.ListOf(all...)), hooks
}

// withoutService makes the backend of an API one that is not available.
func withoutService(obj object.Value) (changed, was object.Value) {
	service := obj.At("spec", "service")
	if service.IsNull() { // it is served by the plane itself
		return obj, object.Nil
	}
	return obj.WithAt(object.StringOf(noService), "spec", "service", "name"), service
}

// withoutConversion makes the conversion webhook of a type one that is not reached: objects are not served in other
// versions than the one in which they are stored.
func withoutConversion(obj object.Value) (changed, was object.Value) {
	config := obj.At("spec", "conversion", "webhook", "clientConfig")
	if config.IsNull() {
		return obj, object.Nil
	}
	// What it has of the two stays the one that it has: a manifest that is applied once more leaves the other as it is.
	there := config.With("url", object.StringOf(nowhere))
	if !config.At("service").IsNull() {
		there = config.WithAt(object.StringOf(noService), "service", "name")
	}
	return obj.WithAt(there, "spec", "conversion", "webhook", "clientConfig"), config
}

// copies are the changes by which a plane that begins with another one connects to nobody.
func copies(of *store.State, sn *store.Snapshot) (changes []store.Change) {
	for resource := range sn.Resources {
		turnOff := outwards[resource]
		if turnOff == nil {
			continue
		}
		sn.Ascend(resource, "", "", func(v *store.Version) bool {
			changes = append(changes, copied(of, v, turnOff)...)
			return true
		})
	}
	return changes
}

// copied is the change for one object. One that cannot be read is not copied: nobody knows what it does.
func copied(of *store.State, v *store.Version, turnOff func(object.Value) (changed, was object.Value)) []store.Change {
	obj, err := engine.ObjectOf(v)
	if err != nil {
		return []store.Change{{Key: v.Key}}
	}
	changed, was := turnOff(obj)
	if was.IsNull() {
		return nil
	}
	data := object.AppendObject(nil, marked(changed, was))
	return []store.Change{{Key: v.Key, Data: data, Sidecar: of.Describe(v.Key, data, time.Time{}, v.Sidecar.Form)}}
}

// marked is an object with the annotation that says what it was.
func marked(obj, was object.Value) object.Value {
	text := was.Str()
	if was.Kind() != object.String {
		text = string(object.AppendJSON(nil, was))
	}
	if len(text) > longestOff {
		text = "too long to be kept here"
	}
	return obj.WithAt(object.StringOf(text), "metadata", "annotations", off)
}
