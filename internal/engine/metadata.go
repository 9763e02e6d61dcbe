package engine

import (
	"crypto/rand"
	"time"

	"github.com/google/uuid"

	"plinth/internal/apierr"
	"plinth/object"
)

func init() { uuid.EnableRandPool() }

// serverOwned are the metadata that a client cannot set on a new object (WRITE-4).
var serverOwned = []string{"resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"}

// namespaceMatches refuses a body whose namespace is not the URL's.
func (rq *Request) namespaceMatches(obj object.Value) error {
	got := obj.At("metadata", "namespace").Str()
	if rq.Resource.Namespaced && got != "" && got != rq.Namespace {
		return apierr.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}

// born gives a new object its system metadata. The name is settled before.
func (rq *Request) born(obj object.Value, name string, now time.Time) object.Value {
	set := []object.Member{
		{Key: "creationTimestamp", Value: timeOf(now)},
		{Key: "uid", Value: object.StringOf(uuid.NewString())},
	}
	drop := serverOwned
	if name != "" {
		set = append(set, object.Member{Key: "name", Value: object.StringOf(name)})
	}
	if rq.Resource.Namespaced {
		set = append(set, object.Member{Key: "namespace", Value: object.StringOf(rq.Namespace)})
	} else {
		drop = append(drop[:len(drop):len(drop)], "namespace")
	}
	if rq.Resource.Generation != nil {
		set = append(set, object.Member{Key: "generation", Value: object.IntOf(1)})
	}
	return obj.With("metadata", obj.At("metadata").Edit(set, drop...))
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

// bump raises metadata.generation where the parts of the object that count have changed. It returns the object, and as what
// it is stored: that an empty list becomes none there is no change.
func (rq *Request) bump(obj, old object.Value) (bumped, settled object.Value) {
	r := rq.Resource
	settled = rq.settle(obj)
	if r.Generation == nil {
		return obj, settled
	}
	before := r.Generation(old)
	if object.Equal(r.Generation(obj), before) || object.Equal(r.Generation(settled), before) {
		return obj, settled
	}
	next := object.IntOf(old.At("metadata", "generation").Int() + 1)
	bumped = obj.WithAt(next, "metadata", "generation")
	if settled == obj {
		return bumped, bumped
	}
	return bumped, settled.WithAt(next, "metadata", "generation")
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
