package etcd

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"plinth/conformance/internal/reference"
	"plinth/internal/execution"
	"plinth/internal/store"
)

// While etcd is frozen, requests that read old revisions from it wait without their places, and as long as their
// contexts last.
//
// SPEC: AUTH-8
func TestOldRevisionsOfFrozenEtcd(t *testing.T) {
	p := startEtcd(t, reference.EtcdOptions{})
	d := direct(t, p.URL)
	var old int64
	for i := range 20 {
		at, _ := plain{}.Path(pod("p"))
		value, err := plain{}.Encode(store.Key{}, fmt.Append(nil, i))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := d.Put(t.Context(), "/registry/"+at, string(value))
		if err != nil {
			t.Fatal(err)
		}
		if i == 5 {
			old = answer.Header.Revision
		}
	}
	s := openPlain(t, p.URL)
	places := execution.New(1, 1)
	band := places.Share(1).Band()
	reads := map[string]func(ctx context.Context) error{
		"snapshot": func(ctx context.Context) error {
			_, err := s.SnapshotContext(ctx, old, "/pods")
			return err
		},
		"watch": func(ctx context.Context) error {
			c, err := s.Watch(ctx, "/pods", "", old)
			if err == nil {
				c.Close()
			}
			return err
		},
	}
	// read is one request.
	read := func(ctx context.Context, read func(context.Context) error) error {
		var place execution.Place
		defer place.Exit()
		ctx = execution.With(ctx, &place)
		if err := place.Enter(ctx, band, 1); err != nil {
			return err
		}
		return read(ctx)
	}
	if err := p.Command.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer p.Command.Process.Signal(syscall.SIGCONT) //nolint:errcheck // it is killed anyway
	for name, f := range reads {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		began := make(chan bool, 1)
		go func() {
			ended <- read(ctx, func(ctx context.Context) error {
				began <- true
				return f(ctx)
			})
		}()
		<-began
		other, stop := context.WithTimeout(t.Context(), 30*time.Second)
		if err := read(other, func(context.Context) error { return nil }); err != nil {
			t.Errorf("%s: another request gets no place: %v", name, err)
		}
		stop()
		select {
		case err := <-ended:
			t.Errorf("%s: etcd does not answer, and it has ended with %v", name, err)
			cancel()
			continue
		default:
		}
		cancel()
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: a request without time: %v", name, err)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("%s: it waits on although its context has ended", name)
		}
	}
	if err := p.Command.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for name, f := range reads {
		if err := read(t.Context(), f); err != nil {
			t.Errorf("%s: etcd answers again: %v", name, err)
		}
	}
}
