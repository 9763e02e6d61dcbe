package controller

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"plinth/internal/apierr"
	"plinth/internal/builtin"
	"plinth/internal/controller/controllertest"
	"plinth/internal/engine"
	"plinth/internal/store"
)

// A PodCertificateRequest goes a quarter of an hour after it was made.
//
// SPEC: DEL-1
func TestPodCertificatesAreCleaned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		b := newBenchOf(t, builtin.Config{})
		done := make(chan struct{})
		go func() {
			controllertest.Run(ctx, (&PodCertificates{Engine: b.Engine, Registry: b.Registry,
				Logger: slog.New(slog.DiscardHandler)}).Start)
			close(done)
		}()
		of := b.Registry.Now().Find("certificates.k8s.io", "v1", "podcertificaterequests")
		key := engine.Key{Resource: of.Stored.Path, Name: "gone/r"}
		data := `{"apiVersion":"certificates.k8s.io/v1","kind":"PodCertificateRequest","metadata":{"creationTimestamp":"` +
			time.Now().UTC().Format(time.RFC3339) + `","name":"r","namespace":"gone","uid":"1"},"spec":{}}`
		if _, err := b.Store.Commit(ctx, nil, []store.Change{{Key: key, Data: []byte(data)}}); err != nil {
			t.Fatal(err)
		}
		there := func() bool {
			synctest.Wait()
			_, err := b.Get(ctx, &engine.Request{Resource: of, Namespace: "gone", Name: "r"}, "")
			if err != nil && !apierr.Is(err, apierr.NotFound) {
				t.Fatal(err)
			}
			return err == nil
		}
		time.Sleep(15*time.Minute - time.Second)
		if !there() {
			t.Error("it is gone early")
		}
		time.Sleep(2 * time.Second)
		if there() {
			t.Error("it stays")
		}
		cancel()
		<-done
	})
}
