package webhook

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"plinth/internal/execution"
)

// fileLife is how long the content of a file is used before the file is read again.
const fileLife = time.Minute

// fromFiles is a value that is made of files which are replaced from time to time, such as the projected token of a
// ServiceAccount, a client certificate and its key, or authorities.
type fromFiles[T any] struct {
	files []string
	// make makes the value of what the files contain.
	make func(texts [][]byte) (T, error)
	// replaced is called with a value that is not used any more; nil: nothing is to be done.
	replaced func(T)
	last     atomic.Pointer[made[T]] // nil: none could be made
}

// made is a value, what it is made of, and when that was read.
type made[T any] struct {
	value T
	texts [][]byte
	at    time.Time
}

// get returns the value. If the files cannot be read, or are not good, while a value is known, that value stays in use,
// as in client-go: it may still be valid, and the files are read again at the next call. This is so, too, if of a
// certificate and its key only one is new. Who reads them holds nothing for which others wait, so several may read
// them at one time.
func (f *fromFiles[T]) get(now time.Time) (T, error) {
	last := f.last.Load()
	if last != nil && now.Sub(last.at) < fileLife {
		return last.value, nil
	}
	next, err := f.read(last)
	switch {
	case err == nil:
		next.at = now
		old := f.last.Swap(next)
		if old != nil && f.replaced != nil && !slices.EqualFunc(old.texts, next.texts, bytes.Equal) {
			f.replaced(old.value)
		}
		return next.value, nil
	case last == nil:
		var none T
		return none, err
	}
	return last.value, nil
}

// read returns what the files make: the last value, if they are as they were.
func (f *fromFiles[T]) read(last *made[T]) (*made[T], error) {
	execution.AssertOutside(context.Background(), "a disk")
	next := &made[T]{}
	for _, file := range f.files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		next.texts = append(next.texts, text)
	}
	var err error
	if last != nil && slices.EqualFunc(last.texts, next.texts, bytes.Equal) {
		next.value = last.value
	} else {
		next.value, err = f.make(next.texts)
	}
	return next, err
}

// rotating is an http.RoundTripper whose authorities are in a file. When they change, later requests use a transport of
// their own: connections that were verified by the old ones are not used again.
type rotating struct{ fromFiles[*http.Transport] }

// RoundTrip implements http.RoundTripper.
func (t *rotating) RoundTrip(request *http.Request) (*http.Response, error) {
	transport, err := t.get(time.Now())
	if err != nil { // not after newRemote
		return nil, err
	}
	return transport.RoundTrip(request)
}

// CloseIdleConnections is what http.Client looks for.
func (t *rotating) CloseIdleConnections() {
	if last := t.last.Load(); last != nil {
		last.value.CloseIdleConnections()
	}
}
