package peers

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"plinth/internal/builtin"
	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/internal/store/memlog"
	"plinth/object"
)

// A server is told of another one when its Lease comes, goes, or gets another holder, and not when it is renewed.
//
// SPEC: STORE-2, URI-12
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := engine.NewRegistry(builtin.Resources(builtin.Config{EventTTL: time.Hour}))
		s, err := store.Open(store.Config{Log: memlog.New(), Describe: engine.Describe(registry)})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		e := engine.New(engine.Config{Store: s, Registry: registry})
		defer e.Close()
		rq := engine.Request{Resource: registry.Builtin().Find("coordination.k8s.io", "v1", "leases"),
			Namespace: "kube-system", FieldManager: "test", OwnStart: true}
		text := object.StringOf
		create := func(name, label string) {
			t.Helper()
			if _, err := e.Create(t.Context(), &rq, object.Parsed{Value: object.Fields("metadata", object.Fields("name",
				text(name), "labels", object.Fields(IdentityLabel, text(label))), "spec", object.Fields("holderIdentity",
				text(name+"_1")))}); err != nil {
				t.Fatal(err)
			}
		}
		patch := func(name, body string) {
			t.Helper()
			one := rq
			one.Name = name
			if _, err := e.Patch(t.Context(), &one, engine.Patch{Type: engine.MergePatch, Body: []byte(body)}); err != nil {
				t.Fatal(err)
			}
		}
		create("own", "kube-apiserver")
		create("a", "kube-apiserver")
		create("other", "kubelet")
		var told [][]string
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		c := &Config{Engine: e, Registry: registry, Identity: "own", Logger: slog.New(slog.DiscardHandler)}
		go func() {
			defer close(done)
			c.Follow(ctx, func(identities []string) { told = append(told, identities) })
		}()
		check := func(what string, want ...string) {
			t.Helper()
			synctest.Wait()
			got := make([]string, len(told))
			for i, identities := range told {
				got[i] = strings.Join(identities, " ")
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: told %q, want %q", what, got, want)
			}
			told = nil
		}
		check("at first", "a")
		create("b", "kube-apiserver")
		check("another one", "a b")
		patch("b", `{"spec":{"renewTime":"2026-01-02T03:04:05.000006Z"}}`)
		patch("own", `{"spec":{"holderIdentity":"own_2"}}`)
		check("a renewal")
		patch("a", `{"spec":{"holderIdentity":"a_2"}}`)
		check("a server that was started again", "a b")
		one := rq
		one.Name = "a"
		if _, err := e.Delete(t.Context(), &one, engine.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		check("one that is gone", "b")
		cancel()
		<-done
	})
}
