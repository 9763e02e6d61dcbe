package serviceaccount

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"plinth/internal/access"
	"plinth/internal/builtin"
	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/internal/store/memlog"
	"plinth/object"
)

// world is a store with the ServiceAccount n/a and what its tokens are bound to, and a verifier and an issuer on it
// whose clock the test sets.
type world struct {
	*testing.T
	*engine.Engine
	types    *engine.Registry
	verifier *Verifier
	issuer   *Issuer
	keys     *StaticKeys
	now      time.Time
	used     []string // what Verifier.Used was called with: "SECRET DAY"
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, now: time.Now().Truncate(time.Second),
		types: engine.NewRegistry(builtin.Resources(builtin.Config{EventTTL: time.Hour}))}
	s, err := store.Open(store.Config{Log: memlog.New(), Describe: engine.Describe(w.types)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	now := func() time.Time { return w.now }
	w.Engine = engine.New(engine.Config{Store: s, Registry: w.types, Now: now})
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := NewStaticKeys([]crypto.PublicKey{key.Public()}, key)
	if err != nil {
		t.Fatal(err)
	}
	w.keys = keys
	objects := NewObjects(w.Engine, w.types)
	w.issuer = &Issuer{Keys: keys, Name: "https://here", Audiences: []string{"here", "too"}, Extend: true,
		MaxSeconds: 24 * 60 * 60, Objects: objects, Now: now}
	w.verifier = &Verifier{Keys: keys, Issuers: []string{"https://here"}, Audiences: []string{"here", "too"},
		Objects: objects, Lookup: true, Now: now, Used: func(_ context.Context, secret *engine.Object, day string) {
			w.used = append(w.used, secret.Key.Name+" "+day)
		}}
	w.create("namespaces", "", `{"metadata":{"name":"n"}}`)
	w.create("serviceaccounts", "n", `{"metadata":{"name":"a","finalizers":["example.com/f"]}}`)
	w.create("serviceaccounts", "n", `{"metadata":{"name":"b"}}`)
	w.create("nodes", "", `{"metadata":{"name":"node","finalizers":["example.com/f"]}}`)
	const containers = `"containers":[{"name":"c","image":"i"}]`
	w.create("pods", "n", `{"metadata":{"name":"pod","finalizers":["example.com/f"]},"spec":{"serviceAccountName":"a",`+
		`"nodeName":"node",`+containers+`}}`)
	w.create("pods", "n", `{"metadata":{"name":"lost"},"spec":{"serviceAccountName":"a","nodeName":"gone",`+
		containers+`}}`)
	w.create("pods", "n", `{"metadata":{"name":"others"},"spec":{"serviceAccountName":"b",`+containers+`}}`)
	w.create("secrets", "n", `{"metadata":{"name":"secret","finalizers":["example.com/f"]}}`)
	return w
}

func (w *world) request(resource, namespace, name string) *engine.Request {
	return &engine.Request{Resource: w.types.Now().Find("", "v1", resource), Namespace: namespace, Name: name}
}

func (w *world) create(resource, namespace, body string) {
	w.Helper()
	parsed, err := object.ParseJSON([]byte(body))
	if err != nil {
		w.Fatal(err)
	}
	if _, err := w.Create(w.Context(), w.request(resource, namespace, ""), parsed); err != nil {
		w.Fatal(err)
	}
}

// delete marks an object that has a finalizer as deleted.
func (w *world) delete(resource, namespace, name string) {
	w.Helper()
	if _, err := w.Delete(w.Context(), w.request(resource, namespace, name), engine.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) patch(resource, namespace, name, patch string) {
	w.Helper()
	if _, err := w.Patch(w.Context(), w.request(resource, namespace, name),
		engine.Patch{Type: engine.MergePatch, Body: []byte(patch)}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) get(resource, namespace, name string) *engine.Object {
	w.Helper()
	got, err := w.Get(w.Context(), w.request(resource, namespace, name), "")
	if err != nil {
		w.Fatal(err)
	}
	return got.Object
}

// to is the claim that names an object.
func (w *world) to(resource, namespace, name string) object.Value {
	w.Helper()
	return referenceTo(name, w.get(resource, namespace, name).Sidecar.UID)
}

// bound signs a token for the ServiceAccount n/a. more are further claims, which bind it to other objects.
func (w *world) bound(more ...any) string {
	w.Helper()
	binding := object.Fields(append([]any{"namespace", object.StringOf("n"), "serviceaccount",
		w.to("serviceaccounts", "n", "a")}, more...)...)
	return w.signed("aud", object.Strings("here"), "kubernetes.io", binding)
}

// signed is a token that was issued now for an hour, with more claims.
func (w *world) signed(more ...any) string {
	w.Helper()
	token, err := w.keys.Sign(w.Context(), object.Fields(append([]any{"iss", object.StringOf("https://here"),
		"sub", object.StringOf(access.ServiceAccount("n", "a")), "exp", object.IntOf(w.now.Unix() + 3600),
		"nbf", object.IntOf(w.now.Unix()), "iat", object.IntOf(w.now.Unix())}, more...)...))
	if err != nil {
		w.Fatal(err)
	}
	return token
}

// verify expects a token to be valid, or refused with an error that contains text. The error of a token of another
// authenticator is "unknown".
func (w *world) verify(what, token string, audiences []string, text string) *access.Identity {
	w.Helper()
	id, err := w.verifier.Token(w.Context(), token, audiences)
	if id == nil && err == nil {
		err = fmt.Errorf("unknown")
	}
	if (err != nil) != (text != "") || err != nil && !strings.Contains(err.Error(), text) {
		w.Errorf("%s: the error is %v, want %q", what, err, text)
	}
	return id
}

// A bound token is valid as long as its ServiceAccount and each object that it is bound to exist with the UIDs for
// which it was issued.
//
// SPEC: AUTH-1
func TestBoundTokens(t *testing.T) {
	w := newWorld(t)
	another := func(name string) object.Value { return referenceTo(name, "another") }
	pod, node, secret := w.to("pods", "n", "pod"), w.to("nodes", "", "node"), w.to("secrets", "n", "secret")
	forA := w.bound()
	id := w.verify("a token", w.bound("pod", pod, "node", node), nil, "")
	want := access.User{Name: "system:serviceaccount:n:a", UID: w.get("serviceaccounts", "n", "a").Sidecar.UID,
		Groups: []string{access.ServiceAccounts, "system:serviceaccounts:n", access.Authenticated},
		Extra: map[string][]string{access.PodName: {"pod"}, access.PodUID: {pod.At("uid").Str()}, access.NodeName: {"node"},
			access.NodeUID: {node.At("uid").Str()}}}
	if id == nil || !reflect.DeepEqual(id.User, want) || !reflect.DeepEqual(id.Audiences, []string{"here"}) {
		t.Errorf("the user is %+v, want %+v", id, want)
	}
	for what, c := range map[string]struct{ token, want string }{
		"for a Secret":                 {w.bound("secret", secret), ""},
		"for a Node":                   {w.bound("node", node), ""},
		"for a Pod whose Node is gone": {w.bound("pod", pod, "node", another("gone")), ""},
		"for a Pod with another UID": {w.bound("pod", another("pod")),
			"pod UID (" + pod.At("uid").Str() + ") does not match"},
		"for a Secret with another UID": {w.bound("secret", another("secret")), "secret UID"},
		"for a Node with another UID":   {w.bound("node", another("node")), "node UID"},
		"for a Pod that is not there":   {w.bound("pod", another("nothing")), errInvalidated.Error()},
		"for a Node that is not there":  {w.bound("node", another("nothing")), errInvalidated.Error()},
		"for a webhook":                 {w.bound("validatingwebhookconfiguration", another("x")), "feature gate"},
		"for a mutating webhook":        {w.bound("mutatingwebhookconfiguration", another("x")), "feature gate"},
		"of a ServiceAccount that is not there": {w.bound("serviceaccount", another("nothing")),
			`serviceaccounts "nothing" not found`},
		"of an earlier ServiceAccount": {w.bound("serviceaccount", another("a")), "does not match claim (another)"},
		"of no ServiceAccount": {w.bound("serviceaccount", object.Fields()),
			"resource name may not be empty"},
		"of another issuer": {w.signed("iss", object.StringOf("https://there")), "unknown"},
		"that is no JWT":    {"a.b.c", "unknown"},
		"for other audiences": {w.signed("aud", object.Strings("there")),
			`token audiences ["there"] is invalid`},
		"with a changed signature": {forA[:len(forA)-4] + "AAAA", "cryptographic primitive"},
		"with spaces":              {" " + forA[:9] + "\n" + forA[9:], ""},
	} {
		w.verify("a token "+what, c.token, nil, c.want)
	}
	w.verify("a token for other audiences than are asked for", forA, []string{"too"},
		"is invalid for the target audiences")
	w.verifier.Audiences = nil // a server without audiences takes all
	w.verify("a token for an audience, without audiences of the server", forA, nil, "")
}

// A token is valid from iat and nbf to exp, with a minute for clocks that differ; after warnafter it is counted as
// stale.
//
// SPEC: AUTH-1
func TestTimesOfTokens(t *testing.T) {
	w := newWorld(t)
	token, began := w.bound(), w.now
	late := w.bound("warnafter", object.IntOf(w.now.Unix()+600))
	for _, c := range []struct {
		after time.Duration
		want  string
	}{
		{0, ""}, {time.Hour + time.Minute, ""}, {time.Hour + 61*time.Second, "service account token has expired"},
		{-time.Minute, ""}, {-61 * time.Second, "service account token is not valid yet"},
	} {
		w.now = began.Add(c.after)
		w.verify(fmt.Sprint("after ", c.after), token, nil, c.want)
	}
	w.now = began
	w.verify("issued in the future", w.signed("nbf", object.IntOf(0), "iat", object.IntOf(w.now.Unix()+61)), nil,
		"service account token is issued in the future")
	for after, want := range map[time.Duration]string{10 * time.Minute: "",
		10*time.Minute + 5*time.Second: "subject: system:serviceaccount:n:a, seconds after warning threshold: 5"} {
		w.now = began.Add(after)
		id := w.verify("stale", late, nil, "")
		if got := id.Annotations["authentication.k8s.io/stale-token"]; got != want {
			t.Errorf("%v after it was issued, the annotation is %q, want %q", after, got, want)
		}
	}
	if valid, stale := w.verifier.Counters.Valid.Load(), w.verifier.Counters.Stale.Load(); valid != 1 || stale != 1 {
		t.Errorf("%d tokens are counted as valid and %d as stale, want 1 and 1", valid, stale)
	}
}

// The tokens of an object with a deletionTimestamp are valid until a minute after it, as in the reference.
//
// SPEC: AUTH-1
func TestTokensOfDeletedObjects(t *testing.T) {
	for resource, c := range map[string]struct{ claim, name, want string }{
		"serviceaccounts": {"serviceaccount", "a", "service account n/a has been deleted"},
		"secrets":         {"secret", "secret", errInvalidated.Error()},
		"nodes":           {"node", "node", errInvalidated.Error()},
		"pods":            {"pod", "pod", errInvalidated.Error()},
	} {
		w := newWorld(t)
		namespace, began := "n", w.now
		if resource == "nodes" {
			namespace = ""
		}
		token := w.bound(c.claim, w.to(resource, namespace, c.name))
		w.delete(resource, namespace, c.name)
		obj, err := engine.ObjectOf(w.get(resource, namespace, c.name))
		if err != nil {
			t.Fatal(err)
		}
		ends, err := time.Parse(time.RFC3339, obj.At("metadata", "deletionTimestamp").Str())
		if err != nil || ends.Before(began) {
			t.Fatalf("%s: deleted at %v (%v)", resource, ends, err)
		}
		w.now = ends.Add(time.Minute)
		w.verify(resource+", a minute after its end", token, nil, "")
		w.now = ends.Add(time.Minute + time.Second)
		w.verify(resource+", a second later", token, nil, c.want)
	}
}

func staticKeysOf(keys ...PublicKey) *StaticKeys {
	k := &StaticKeys{}
	k.current.Store(&staticKeys{set: &KeySet{Keys: keys}})
	return k
}

// The signature is checked with the keys that have the key ID of the token.
//
// SPEC: AUTH-1
func TestKeyIDs(t *testing.T) {
	w := newWorld(t)
	token := w.bound()
	known := w.keys.Current().Keys[0]
	another := PublicKey{ID: "another", Key: known.Key}
	w.verifier.Keys = staticKeysOf(another)
	w.verify("a token whose key ID is not known", token, nil, "invalid signature, no keys found")
	w.verifier.Keys = staticKeysOf(another, known)
	w.verify("a token whose key ID is known", token, nil, "")
}

// A legacy token is valid as long as its Secret contains it and its ServiceAccount has the same UID.
//
// SPEC: AUTH-1
func TestLegacyTokens(t *testing.T) {
	w := newWorld(t)
	uid := w.get("serviceaccounts", "n", "a").Sidecar.UID
	legacy := func(namespace, name, uid, secret string) string {
		token, err := w.keys.Legacy(namespace, name, uid, secret)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	keep := func(token string) string {
		w.patch("secrets", "n", "secret", fmt.Sprintf(`{"data":{"token":%q}}`,
			base64.StdEncoding.EncodeToString([]byte(token))))
		return token
	}
	claims := func(name, value string) string { // a token that differs in one claim
		all := []any{"iss", object.StringOf(legacyIssuer), "sub", object.StringOf(access.ServiceAccount("n", "a")),
			"kubernetes.io/serviceaccount/namespace", object.StringOf("n"),
			"kubernetes.io/serviceaccount/secret.name", object.StringOf("secret"),
			"kubernetes.io/serviceaccount/service-account.name", object.StringOf("a"),
			"kubernetes.io/serviceaccount/service-account.uid", object.StringOf(uid)}
		token, err := w.keys.Sign(w.Context(), object.Fields(append(all, name, object.StringOf(value))...))
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	const prefix = "kubernetes.io/serviceaccount/"
	for what, c := range map[string]struct{ token, want string }{
		"without a subject":            {claims("sub", ""), "sub claim is missing"},
		"without a namespace":          {claims(prefix+"namespace", ""), "namespace claim is missing"},
		"without a Secret":             {claims(prefix+"secret.name", ""), "secretName claim is missing"},
		"without a ServiceAccount":     {claims(prefix+"service-account.name", ""), "serviceAccountName claim is missing"},
		"without a UID":                {claims(prefix+"service-account.uid", ""), "serviceAccountUID claim is missing"},
		"with another namespace":       {claims(prefix+"namespace", "m"), "sub claim is invalid"},
		"with another name":            {claims(prefix+"service-account.name", "b"), "sub claim is invalid"},
		"with a subject that is none":  {claims("sub", "jane"), "sub claim is invalid"},
		"of a Secret that is gone":     {legacy("n", "a", uid, "nothing"), "Token has been invalidated"},
		"that its Secret has not":      {legacy("n", "a", uid, "secret"), "Token does not match server's copy"},
		"of an earlier ServiceAccount": {keep(legacy("n", "a", "another", "secret")), "does not match claim (another)"},
	} {
		w.verify("a token "+what, c.token, nil, c.want)
		if strings.HasPrefix(what, "of an earlier") {
			continue
		}
		w.verifier.Lookup = false // the signature and the claims alone count then
		want := c.want
		if strings.HasPrefix(want, "Token ") {
			want = ""
		}
		w.verify("without lookup, a token "+what, c.token, nil, want)
		w.verifier.Lookup = true
	}
	token := keep(legacy("n", "a", uid, "secret"))
	id := w.verify("a legacy token", token, nil, "")
	if id == nil || id.User.UID != uid || len(id.Warnings) > 0 ||
		id.Annotations["authentication.k8s.io/legacy-token-manual-secret"] != "secret" {
		t.Errorf("the identity is %+v", id)
	}
	w.patch("serviceaccounts", "n", "a", `{"secrets":[{"name":"secret"}]}`)
	id = w.verify("a generated token", token, nil, "")
	if id == nil || len(id.Warnings) != 1 ||
		id.Annotations["authentication.k8s.io/legacy-token-autogenerated-secret"] != "secret" {
		t.Errorf("the identity is %+v", id)
	}
	w.delete("serviceaccounts", "n", "a")
	w.verify("a token whose ServiceAccount is being deleted", token, nil, "ServiceAccount n/a has been deleted")
	w.delete("secrets", "n", "secret")
	w.verify("a token whose Secret is being deleted", token, nil, "Token has been invalidated")
}

// The use of a legacy token is recorded once a day; one that is marked invalid is refused.
//
// SPEC: AUTH-1
func TestUsesOfLegacyTokens(t *testing.T) {
	w := newWorld(t)
	w.now = time.Date(2030, 5, 31, 12, 0, 0, 0, time.UTC)
	token, err := w.keys.Legacy("n", "a", w.get("serviceaccounts", "n", "a").Sidecar.UID, "secret")
	if err != nil {
		t.Fatal(err)
	}
	w.patch("secrets", "n", "secret", fmt.Sprintf(`{"data":{"token":%q}}`,
		base64.StdEncoding.EncodeToString([]byte(token))))
	for _, c := range []struct{ marked, want string }{
		{"", "[n/secret 2030-05-31]"}, {"2030-05-30", "[n/secret 2030-05-31]"}, {"2030-05-31", "[]"},
		{"2030-06-01", "[]"}, // by a server whose clock is ahead
		{"2030-06-02", "[n/secret 2030-05-31]"},
	} {
		w.used = nil
		w.patch("secrets", "n", "secret", fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`,
			access.LegacyTokenLastUsed, c.marked))
		w.verify("marked "+c.marked, token, nil, "")
		if got := fmt.Sprint(w.used); got != c.want {
			t.Errorf("a Secret marked as used on %q is marked again by %s, want %s", c.marked, got, c.want)
		}
	}
	w.patch("secrets", "n", "secret", fmt.Sprintf(`{"metadata":{"labels":{%q:"2030-05-01"}}}`,
		access.LegacyTokenInvalidSince))
	w.verify("marked as invalid", token, nil,
		"the token in secret n/secret for service account n/a has been marked invalid")
	if n := w.verifier.Counters.Invalid.Load(); n != 1 {
		t.Errorf("%d tokens are counted as invalid, want 1", n)
	}
}

// The answers to TokenRequests: the bound objects and the lifetime of the token, or the error.
//
// SPEC: AUTH-1
func TestTokenRequests(t *testing.T) {
	w := newWorld(t)
	account := w.get("serviceaccounts", "n", "a")
	pod, node := w.to("pods", "n", "pod"), w.to("nodes", "", "node")
	type binding struct {
		Pod, Secret, Node *struct{ Name, UID string }
		WarnAfter         int64
	}
	for name, c := range map[string]struct {
		body    string
		want    string // of the claims pod, secret, node and warnafter
		audit   string // aud
		lasts   int64
		refused string
	}{
		"for nothing": {body: `{"spec":{"expirationSeconds":3600}}`, lasts: 3600, want: `{}`, audit: "here too"},
		"for audiences": {body: `{"spec":{"expirationSeconds":600,"audiences":["x"]}}`, lasts: 600, want: `{}`,
			audit: "x"},
		"for a Pod": {body: `{"spec":{"expirationSeconds":3600,"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":"pod"}}}`,
			lasts: 3600, audit: "here too", want: fmt.Sprintf(`{"pod":%s,"node":%s}`, text(pod), text(node))},
		"for a Pod on a Node that is gone": {
			body:  `{"spec":{"expirationSeconds":3600,"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":"lost"}}}`,
			lasts: 3600, audit: "here too", want: fmt.Sprintf(`{"pod":%s,"node":{"name":"gone"}}`,
				text(w.to("pods", "n", "lost")))},
		"for a Secret": {body: `{"spec":{"expirationSeconds":3600,"boundObjectRef":{"apiVersion":"v1","kind":"Secret","name":"secret"}}}`,
			lasts: 3600, audit: "here too", want: fmt.Sprintf(`{"secret":%s}`, text(w.to("secrets", "n", "secret")))},
		"for a Node": {body: `{"spec":{"expirationSeconds":3600,"boundObjectRef":{"apiVersion":"v1","kind":"Node","name":"node"}}}`,
			lasts: 3600, audit: "here too", want: fmt.Sprintf(`{"node":%s}`, text(node))},
		"extended": {body: `{"spec":{"expirationSeconds":3607,"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":"pod"}}}`,
			lasts: extendedTo, audit: "here too",
			want: fmt.Sprintf(`{"pod":%s,"node":%s,"warnafter":%d}`, text(pod), text(node), w.now.Unix()+3607)},
		"not extended, for it has other audiences": {
			body:  `{"spec":{"expirationSeconds":3607,"audiences":["here","x"],"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":"pod"}}}`,
			lasts: 3607, audit: "here x", want: fmt.Sprintf(`{"pod":%s,"node":%s}`, text(pod), text(node))},
		"not extended, for it lasts longer": {
			body:  `{"spec":{"expirationSeconds":3608,"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":"pod"}}}`,
			lasts: 3608, audit: "here too", want: fmt.Sprintf(`{"pod":%s,"node":%s}`, text(pod), text(node))},
		"not extended, for it is for no Pod": {body: `{"spec":{"expirationSeconds":3607}}`, lasts: 3607, want: `{}`,
			audit: "here too"},
		"shortened": {body: `{"spec":{"expirationSeconds":864000}}`, lasts: 24 * 60 * 60, want: `{}`, audit: "here too"},
		"for a Pod of another": {body: `{"spec":{"expirationSeconds":3600,"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":"others"}}}`,
			refused: "different serviceaccount name"},
		"for another UID": {
			body:    `{"spec":{"expirationSeconds":3600,"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":"pod","uid":"another"}}}`,
			refused: "the UID in the bound object reference (another) does not match"},
		"for a ConfigMap": {
			body:    `{"spec":{"expirationSeconds":3600,"boundObjectRef":{"apiVersion":"v1","kind":"ConfigMap","name":"x"}}}`,
			refused: "cannot bind token to object of type /v1, Kind=ConfigMap"},
		"for a Pod of another group": {
			body:    `{"spec":{"expirationSeconds":3600,"boundObjectRef":{"apiVersion":"apps/v1","kind":"Pod","name":"pod"}}}`,
			refused: "cannot bind token to object of type apps/v1, Kind=Pod"},
		"for a Pod without a name": {body: `{"spec":{"expirationSeconds":3600,"boundObjectRef":{"apiVersion":"v1","kind":"Pod"}}}`,
			refused: "Name parameter required"},
		"for a Pod that is not there": {
			body:    `{"spec":{"expirationSeconds":3600,"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":"nothing"}}}`,
			refused: `pods "nothing" not found`},
		"too short": {body: `{"spec":{"expirationSeconds":599}}`, refused: "less than 10 minutes"},
		"too long":  {body: `{"spec":{"expirationSeconds":4294967297}}`, refused: "larger than 2^32 seconds"},
		"with another name": {body: `{"metadata":{"name":"b"},"spec":{"expirationSeconds":600}}`,
			refused: "must match the service account name"},
		"with another UID": {body: `{"metadata":{"uid":"x"},"spec":{"expirationSeconds":600}}`,
			refused: "the UID in the token request (x) does not match"},
		"with an attestation": {body: `{"spec":{"expirationSeconds":600,"attestations":{"a":["b"]}}}`,
			refused: "attestations may only be specified"},
		"with its name as asked": {body: `{"metadata":{"name":"a"},"spec":{"expirationSeconds":600}}`, lasts: 600, want: `{}`,
			audit: "here too"},
	} {
		body, err := object.ParseJSON([]byte(c.body))
		if err != nil {
			t.Fatal(err)
		}
		answer, warnings, err := w.issuer.Answer(t.Context(), &engine.Request{}, account, body.Value)
		if (err != nil) != (c.refused != "") || err != nil && !strings.Contains(err.Error(), c.refused) {
			t.Errorf("%s: the error is %v, want %q", name, err, c.refused)
		}
		if err != nil {
			continue
		}
		token := answer.At("status", "token").Str()
		payload, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
		if err != nil {
			t.Fatal(err)
		}
		var claims struct {
			Aud           []string
			Exp, Nbf, Iat int64
			Iss, Sub, JTI string
			Kubernetes    binding `json:"kubernetes.io"`
		}
		if err := json.Unmarshal(payload, &claims); err != nil {
			t.Fatal(err)
		}
		var want binding
		if err := json.Unmarshal([]byte(c.want), &want); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(claims.Kubernetes, want) || strings.Join(claims.Aud, " ") != c.audit {
			t.Errorf("%s: the claims are %s, want %s for %s", name, payload, c.want, c.audit)
		}
		if now := w.now.Unix(); claims.Exp != now+c.lasts || claims.Nbf != now || claims.Iat != now ||
			claims.Iss != "https://here" || claims.Sub != "system:serviceaccount:n:a" || claims.JTI == "" {
			t.Errorf("%s: the claims are %s", name, payload)
		}
		if shortened := name == "shortened"; (len(warnings) == 1) != shortened {
			t.Errorf("%s: warnings %q", name, warnings)
		}
		if c.audit != "x" {
			w.verify("the token "+name, token, nil, "")
		}
	}
}

func text(v object.Value) string { return string(object.AppendJSON(nil, v)) }

// annotations are those of the audit log.
type annotations map[string]string

func (a annotations) Annotate(key, value string)        { a[key] = value }
func (a annotations) AnnotateRequest(key, value string) { a[key] = value }

// A request may name another UID if the server does not verify it: the token is for the ServiceAccount that there is,
// the answer has the UID as it was sent and a warning, and the audit log says it.
//
// SPEC: AUTH-2
func TestRequestForAnotherUID(t *testing.T) {
	w := newWorld(t)
	account := w.get("serviceaccounts", "n", "a")
	w.issuer.OtherUID = true
	body := object.Fields("metadata", object.Fields("uid", object.StringOf("x")),
		"spec", object.Fields("expirationSeconds", object.IntOf(600)))
	noted := annotations{}
	answer, warnings, err := w.issuer.Answer(t.Context(), &engine.Request{Annotations: noted}, account, body)
	if err != nil {
		t.Fatal(err)
	}
	mismatch := "the UID in the token request (x) does not match the UID of the service account (" + account.Sidecar.UID + ")"
	if want := mismatch + " but TokenRequestServiceAccountUIDValidation is not enabled. In the future, this will return a " +
		"conflict error"; len(warnings) != 1 || warnings[0] != want {
		t.Errorf("warnings %q, want %q", warnings, want)
	}
	if noted["authentication.k8s.io/token-request-uid-mismatch"] != mismatch {
		t.Errorf("the audit log has %q", noted)
	}
	if uid := answer.At("metadata", "uid").Str(); uid != "x" {
		t.Errorf("the answer has the UID %q", uid)
	}
	w.verify("a token for another UID", answer.At("status", "token").Str(), nil, "")
}
