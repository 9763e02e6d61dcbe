package engine

import (
	"crypto/rand"
	"time"

	"plinth/internal/apierr"
	"plinth/object"
)

// serverSet are the metadata that a client cannot set on a new object (WRITE-4).
var serverSet = []string{
	"resourceVersion", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink",
}

// namespaceMatches refuses a body whose namespace is not the URL's.
func (rq *Request) namespaceMatches(obj object.Value) error {
	got := obj.At("metadata", "namespace").Str()
	if rq.Resource.Namespaced && got != "" && got != rq.Namespace {
		return apierr.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}

// carry gives an updated object the system metadata of the old one, where the client left them out or may not change
// them. What a client set to something else stays, for validation to refuse.
func carry(obj, old object.Value) object.Value {
	meta, was := obj.At("metadata"), old.At("metadata")
	var set []object.Member
	keep := func(key string, always bool) {
		oldValue, had := was.Get(key)
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
	drop := []string{"resourceVersion", "selfLink"}
	if _, had := was.Get("generation"); !had {
		drop = append(drop, "generation")
	}
	if _, had := was.Get("namespace"); !had { // cluster scope: as with a new one, what a body says of it means nothing
		drop = append(drop, "namespace")
	}
	return obj.With("metadata", meta.Edit(set, drop...))
}

// timeOf is a metav1.Time.
func timeOf(t time.Time) object.Value { return object.StringOf(t.UTC().Format(time.RFC3339)) }

// The suffix of a generated name: five characters without vowels and look-alikes (URI-3).
const (
	suffixLetters = "bcdfghjklmnpqrstvwxz2456789"
	suffixLength  = 5
	maxNameLength = 63
)

// generateName makes a name that nobody is likely to have. A prefix that would make it too long is cut.
func generateName(prefix string) string {
	if len(prefix) > maxNameLength-suffixLength {
		prefix = prefix[:maxNameLength-suffixLength]
	}
	var random [suffixLength]byte
	rand.Read(random[:]) // never fails
	for i, b := range random {
		random[i] = suffixLetters[int(b)%len(suffixLetters)]
	}
	return prefix + string(random[:])
}

// finalizers lists what an object still waits for before it can go.
func finalizers(obj object.Value) []object.Value { return obj.At("metadata", "finalizers").Items() }

// deleting says whether an object has been deleted and waits for its finalizers or its grace period.
func deleting(obj object.Value) bool { return !obj.At("metadata", "deletionTimestamp").IsNull() }
