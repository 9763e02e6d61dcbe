package encryption

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// Transformer encrypts and decrypts the values of one resource. key is the key of the value in the store, as a path.
type Transformer interface {
	// To returns the value to be stored for plain.
	To(ctx context.Context, key string, plain []byte) (stored []byte, err error)
	// From returns what a stored value was made from. stale says that it should be written again, even if its object
	// does not change.
	From(ctx context.Context, key string, stored []byte) (plain []byte, stale bool, err error)
}

// Seal is how the values of a resource are encrypted at one moment. To get it may take a call of a plugin, and may
// fail; to use it does not. So a caller that must not fail, or wait, gets the Seal before.
type Seal struct {
	// ID identifies the provider and the key, also in later processes; 0: values are not encrypted. A value is stale if
	// the ID of its Seal is not that of the current one.
	ID     uint32
	append func(dst []byte, key string, plain []byte) []byte
}

// Append appends the stored value of plain to dst.
func (s *Seal) Append(dst []byte, key string, plain []byte) []byte { return s.append(dst, key, plain) }

// Opened is a value that was decrypted.
type Opened struct {
	Plain []byte
	Stale bool
	By    uint32 // the ID of the Seal that has encrypted it
}

// scheme is a provider, or one key of it.
type scheme interface {
	// seal returns how values are encrypted now.
	seal(ctx context.Context) (*Seal, error)
	// open decrypts a value.
	open(ctx context.Context, key string, data []byte) (Opened, error)
	// id is the ID of the Seal that seal returns, or would return if it did not fail; ok is false if that is not known.
	id() (id uint32, ok bool)
}

// idOf is the ID of a Seal that the texts identify: a hash of them, since it is compared with those of values that
// earlier processes have written. The texts have secrets, which nobody can find by 32 bits.
func idOf(texts ...string) uint32 {
	h := sha256.New()
	for _, text := range texts {
		fmt.Fprintf(h, "%d:%s", len(text), text)
	}
	return max(1, binary.BigEndian.Uint32(h.Sum(nil)))
}

// prefixed is a scheme whose values begin with a prefix; "": with none.
type prefixed struct {
	prefix string
	scheme
}

// list is schemes of which the first one encrypts, and each decrypts the values with its prefix. The keys of a provider
// are a list, and so are the providers of a resource.
//
// Several may have the same prefix: a provider is listed twice, with different keys of the same name. So all that match
// are tried.
type list struct {
	all     []prefixed
	unknown error // for a value with a prefix of none
}

func (l *list) id() (uint32, bool) { return l.all[0].id() }

// seal implements scheme. The observer of ctx is told about each use of the Seal.
func (l *list) seal(ctx context.Context) (*Seal, error) {
	first := l.all[0]
	told := observerOf(ctx)
	begin := told.now()
	inner, err := first.seal(ctx)
	if err != nil {
		told.transformed(toStorage, first.prefix, begin, err)
		return nil, err
	}
	return &Seal{ID: inner.ID, append: func(dst []byte, key string, plain []byte) []byte {
		begin := told.now()
		dst = inner.append(append(dst, first.prefix...), key, plain)
		told.transformed(toStorage, first.prefix, begin, nil)
		return dst
	}}, nil
}

// open implements scheme.
func (l *list) open(ctx context.Context, key string, data []byte) (Opened, error) {
	told := observerOf(ctx)
	begin := told.now()
	var errs []error
	for i, p := range l.all {
		rest, ok := bytes.CutPrefix(data, []byte(p.prefix))
		if !ok {
			continue
		}
		opened, err := p.open(ctx, key, rest)
		if p.prefix == "" {
			if err != nil { // the value is encrypted: another provider may read it
				continue
			}
			told.transformed(fromStorage, "identity", begin, nil)
		} else {
			told.transformed(fromStorage, p.prefix, begin, err)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		opened.Stale = opened.Stale || i != 0
		return opened, nil
	}
	if err := utilerrors.Reduce(utilerrors.NewAggregate(errs)); err != nil {
		return Opened{}, err
	}
	told.transformed(fromStorage, "unknown", begin, l.unknown)
	return Opened{}, l.unknown
}

// identity is the provider that does not encrypt.
type identity struct{}

// ErrEncrypted is the error for a value that is encrypted, where no provider is configured that decrypts.
var ErrEncrypted = errors.New("identity transformer tried to read encrypted data")

// encryptedPrefix is that of all encrypted values. Those in JSON begin with a brace, and those in protobuf with k8s and
// a zero.
const encryptedPrefix = "k8s:enc:"

var clear = &Seal{append: func(dst []byte, _ string, plain []byte) []byte { return append(dst, plain...) }}

func (identity) seal(context.Context) (*Seal, error) { return clear, nil }

func (identity) id() (uint32, bool) { return 0, true }

func (identity) open(_ context.Context, _ string, data []byte) (Opened, error) {
	if bytes.HasPrefix(data, []byte(encryptedPrefix)) {
		return Opened{}, ErrEncrypted
	}
	return Opened{Plain: data}, nil
}

// The directions of a transformation, as metrics name them.
const (
	toStorage   = "to_storage"
	fromStorage = "from_storage"
)

// observer reports the transformations of one resource.
type observer struct {
	resource string
	*Metrics
}

type observerKey struct{}

// observing returns a context whose transformations are reported as those of a resource.
func observing(ctx context.Context, o *observer) context.Context {
	return context.WithValue(ctx, observerKey{}, o)
}

// observerOf is the observer of a context; nil: nothing is reported.
func observerOf(ctx context.Context) *observer {
	o, _ := ctx.Value(observerKey{}).(*observer)
	return o
}

func (o *observer) now() (begin time.Time) {
	if o != nil && o.Transformed != nil {
		begin = time.Now()
	}
	return begin
}

func (o *observer) transformed(direction, prefix string, begin time.Time, err error) {
	if o != nil && o.Transformed != nil {
		o.Transformed(o.resource, direction, prefix, time.Since(begin), err)
	}
}

// Metrics are functions that report what is measured. Each may be nil.
type Metrics struct {
	// Transformed reports a value that was encrypted or decrypted, by the prefix of its provider or key.
	Transformed func(resource, direction, prefix string, took time.Duration, err error)
	// Called reports a call of a plugin. CacheMiss reports that one was made to decrypt a key.
	Called    func(provider, method string, took time.Duration, err error)
	CacheMiss func()
	// KeyUsed reports the use of a key of a plugin, StatusKey that it has named a key, and BadStatusKey that it has named
	// an invalid one.
	KeyUsed      func(direction, provider, keyID string)
	StatusKey    func(provider, keyID string)
	BadStatusKey func(provider, code string)
	// KeyMade reports a new DEK, and KeysCached how many are known.
	KeyMade    func(took time.Duration)
	KeysCached func(provider string, n int)
}
