package engine

import (
	"crypto/rand"
	"time"

	"plinth/internal/apierr"
	"plinth/object"
)

// serverSet are the metadata that a client cannot set on a new object (WRITE-4). They are dropped and not refused:
// kubectl get -o yaml, edited and created again, has them.
var serverSet = []string{
	"resourceVersion", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink",
}

// namespaceMatches refuses a body whose namespace is not the URL's. A body without one gets that of the URL later. The
// request was authorized for the namespace of the URL, so the body must never decide where an object is stored.
func (rq *Request) namespaceMatches(obj object.Value) error {
	got := obj.At("metadata", "namespace").Str()
	if rq.Resource.Namespaced && got != "" && got != rq.Namespace {
		return apierr.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}

// inNamespace returns the body of an operation with the namespace of the URL, and without one if the type has none.
func (rq *Request) inNamespace(obj object.Value) object.Value {
	meta := obj.At("metadata")
	switch namespace := meta.At("namespace").Str(); {
	case rq.Resource.Namespaced && namespace == "":
		return obj.WithAt(object.StringOf(rq.Namespace), "metadata", "namespace")
	case !rq.Resource.Namespaced && namespace != "":
		return obj.With("metadata", meta.Without("namespace"))
	}
	return obj
}

// carry copies the system metadata of the old object into a changed one where the client left them out or may not
// change them (rest.BeforeUpdate of the reference, and the update strategies of the kinds). A client that PUTs an
// object that it has built itself, without a UID, means the live object; one that PUTs an old copy has another UID or
// time, and must be refused. The rules differ by field. For the values of the old object:
//
//	creationTimestamp, deletionTimestamp, generation     always the old value
//	uid, namespace, deletionGracePeriodSeconds           the old value if the client sent none; otherwise the client's,
//	                                                     which validation refuses if it is another one
//	resourceVersion, selfLink                            dropped: they are not part of the content
//	generation, namespace                                dropped if the old object has none
func carry(obj, old object.Value) object.Value {
	meta, before := obj.At("metadata"), old.At("metadata")
	var set []object.Member
	keep := func(key string, always bool) {
		oldValue, had := before.Get(key)
		if value, has := meta.Get(key); had && (!has || always && value != oldValue) {
			set = append(set, object.Member{Key: key, Value: oldValue})
		}
	}
	keep("uid", false)
	keep("creationTimestamp", true)
	keep("deletionTimestamp", true)
	keep("deletionGracePeriodSeconds", false)
	keep("namespace", false)
	keep("generation", true)
	// These are not part of the content of an object.
	drop := []string{"resourceVersion", "selfLink"}
	if _, had := before.Get("generation"); !had {
		drop = append(drop, "generation")
	}
	if _, had := before.Get("namespace"); !had { // cluster scope: as in a create, the namespace in a body is ignored
		drop = append(drop, "namespace")
	}
	return obj.With("metadata", meta.Edit(set, drop...))
}

// timeOf is a time as the API writes it (metav1.Time): UTC, in whole seconds.
func timeOf(t time.Time) object.Value { return object.StringOf(t.UTC().Format(time.RFC3339)) }

// The suffix of a generated name: five characters without vowels and look-alikes (URI-3), so that no name is a word by
// chance or is misread.
const (
	suffixLetters = "bcdfghjklmnpqrstvwxz2456789"
	suffixLength  = 5
	maxNameLength = 63
)

// generateName makes a name that is probably free. A prefix that would make the name longer than a DNS label is cut, as
// in the reference; validation may then refuse the name, if the cut prefix ends with a dot.
func generateName(prefix string) string {
	if len(prefix) > maxNameLength-suffixLength {
		prefix = prefix[:maxNameLength-suffixLength]
	}
	var random [suffixLength]byte
	rand.Read(random[:]) // never fails
	// 256 is not a multiple of 27, so the first letters occur a little more often. Only free names matter.
	for i, b := range random {
		random[i] = suffixLetters[int(b)%len(suffixLetters)]
	}
	return prefix + string(random[:])
}

// finalizers lists the finalizers of an object.
func finalizers(obj object.Value) []object.Value { return obj.At("metadata", "finalizers").Items() }

// deleting says whether an object has a deletionTimestamp: it was deleted, and something holds it.
func deleting(obj object.Value) bool { return !obj.At("metadata", "deletionTimestamp").IsNull() }
