package controller

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"plinth/internal/controller/controllertest"
	"plinth/object"
)

// tokens runs a test beside the controller that fills in the Secrets of tokens.
func tokens(t *testing.T, test func(b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			controllertest.Run(ctx, (&AccountTokens{Engine: b.Engine, Registry: b.Registry,
				Logger:      slog.New(slog.DiscardHandler),
				Certificate: []byte("authority"),
				Token: func(namespace, account, uid, secret string) (string, error) {
					return strings.Join([]string{namespace, account, uid, secret}, "/"), nil
				}}).Start)
		}()
		defer func() { cancel(); <-ended }()
		test(b)
	})
}

// secretOf creates a Secret for a token of the ServiceAccount a. uid is that of the ServiceAccount, "" for none.
func secretOf(b *bench, name, uid string) {
	b.Helper()
	annotations := `"kubernetes.io/service-account.name":"a"`
	if uid != "" {
		annotations += fmt.Sprintf(`,"kubernetes.io/service-account.uid":%q`, uid)
	}
	b.Make("secrets", "gone", fmt.Sprintf(`{"metadata":{"name":%q,"annotations":{%s}},"type":%q}`, name, annotations,
		tokenType))
	synctest.Wait()
}

func account(b *bench) (uid string) {
	b.Helper()
	b.Make("serviceaccounts", "gone", `{"metadata":{"name":"a"},"secrets":[{"name":"s"},{"name":"other"}]}`)
	synctest.Wait()
	obj, _ := b.Read("serviceaccounts", "gone", "a")
	return obj.At("metadata", "uid").Str()
}

// expect compares the set of existing Secrets.
func expect(b *bench, when string, want map[string]bool) {
	b.Helper()
	for name, there := range want {
		if _, ok := b.Read("secrets", "gone", name); ok != there {
			b.Errorf("%s: the Secret %s is there: %v, want %v", when, name, ok, there)
		}
	}
}

// A Secret gets the token, the authority and the namespace, and the UID of its ServiceAccount.
//
// SPEC: AUTH-2
func TestTokenSecretIsFilled(t *testing.T) {
	tokens(t, func(b *bench) {
		uid := account(b)
		secretOf(b, "s", "")
		obj, _ := b.Read("secrets", "gone", "s")
		for key, want := range map[string]string{"token": "gone/a/" + uid + "/s", "ca.crt": "authority",
			"namespace": "gone"} {
			if got, err := base64.StdEncoding.DecodeString(obj.At("data", key).Str()); err != nil || string(got) != want {
				t.Errorf("data.%s is %q (%v), want %q", key, got, err, want)
			}
		}
		if got := obj.At("metadata", "annotations", uidAnnotation).Str(); got != uid {
			t.Errorf("the annotation has the UID %q, want %q", got, uid)
		}
	})
}

// A Secret whose ServiceAccount does not exist is deleted, and so is one of an earlier ServiceAccount with the same
// name: its token would not be valid.
//
// SPEC: AUTH-2
func TestTokenSecretOfAnotherAccount(t *testing.T) {
	tokens(t, func(b *bench) {
		secretOf(b, "early", "")
		expect(b, "without a ServiceAccount", map[string]bool{"early": false})
		uid := account(b)
		secretOf(b, "earlier", "5f3c0cbe-3f2c-4a0e-8a4e-6a3a1d3c0001")
		secretOf(b, "its", uid)
		secretOf(b, "any", "")
		b.Make("secrets", "gone", `{"metadata":{"name":"plain","annotations":{"kubernetes.io/service-account.name":"b"}}}`)
		synctest.Wait()
		expect(b, "with a ServiceAccount", map[string]bool{"earlier": false, "its": true, "any": true, "plain": true})
	})
}

// When a ServiceAccount is deleted, the Secrets of its tokens are deleted with it, and no others.
//
// SPEC: AUTH-2
func TestTokenSecretsGoWithTheAccount(t *testing.T) {
	tokens(t, func(b *bench) {
		account(b)
		secretOf(b, "s", "")
		b.Make("secrets", "gone", `{"metadata":{"name":"plain","annotations":{"kubernetes.io/service-account.name":"a"}}}`)
		b.Remove("serviceaccounts", "gone", "a")
		synctest.Wait()
		expect(b, "after the ServiceAccount", map[string]bool{"s": false, "plain": true})
	})
}

// deleteOf may run only after a ServiceAccount was deleted and created again: the Secrets of the new one stay.
//
// SPEC: AUTH-2
func TestTokenSecretsOfTheNextAccountStay(t *testing.T) {
	b := newBench(t)
	c := &AccountTokens{Engine: b.Engine, Registry: b.Registry, secrets: b.Registry.Builtin().Find("", "v1", "secrets")}
	b.Make("serviceaccounts", "gone", `{"metadata":{"name":"a"}}`)
	old, err := b.Get(b.Context(), b.Request("serviceaccounts", "gone", "a"), "")
	if err != nil {
		t.Fatal(err)
	}
	for name, annotations := range map[string]string{
		"old": fmt.Sprintf(`"kubernetes.io/service-account.name":"a","kubernetes.io/service-account.uid":%q`,
			old.Object.Sidecar.UID),
		"next":  `"kubernetes.io/service-account.name":"a","kubernetes.io/service-account.uid":"another"`,
		"other": fmt.Sprintf(`"kubernetes.io/service-account.name":"b","kubernetes.io/service-account.uid":%q`, old.Object.Sidecar.UID),
	} {
		b.Make("secrets", "gone", fmt.Sprintf(`{"metadata":{"name":%q,"annotations":{%s}},"type":%q}`, name, annotations,
			tokenType))
	}
	if err := c.deleteOf(b.Context(), old.Object); err != nil {
		t.Fatal(err)
	}
	expect(b, "after the first ServiceAccount", map[string]bool{"old": false, "next": true, "other": true})
}

// A Secret that is deleted is removed from the list of its ServiceAccount.
//
// SPEC: AUTH-2
func TestDeletedTokenSecretIsForgotten(t *testing.T) {
	tokens(t, func(b *bench) {
		account(b)
		secretOf(b, "s", "")
		b.Remove("secrets", "gone", "s")
		synctest.Wait()
		obj, _ := b.Read("serviceaccounts", "gone", "a")
		if got := string(object.AppendJSON(nil, obj.At("secrets"))); got != `[{"name":"other"}]` {
			t.Errorf("the ServiceAccount lists the Secrets %s", got)
		}
	})
}
