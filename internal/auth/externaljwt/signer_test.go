package externaljwt

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	api "k8s.io/externaljwt/apis/v1"

	"plinth/internal/auth/externaljwt/signertest"
	"plinth/object"
)

// started is a signer that runs, and a client of it.
func started(t *testing.T) (*signertest.Signer, *Signer) {
	t.Helper()
	program := signertest.New(t)
	program.Start(t)
	s, err := Open(t.Context(), program.Socket, Metrics{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return program, s
}

// fails checks that an error contains a text; "": that there is none.
func fails(t *testing.T, what string, err error, want string) {
	t.Helper()
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("%s: have the error %v, want %q", what, err, want)
	}
}

// A token is refused if its header could mislead a program that verifies it.
//
// SPEC: AUTH-9
func TestHeaders(t *testing.T) {
	program, s := started(t)
	with := func(header string) func(*signertest.State) {
		return func(state *signertest.State) { state.Header = header }
	}
	for _, c := range []struct {
		name, want string
		change     func(*signertest.State)
	}{
		{"valid", "", func(*signertest.State) {}},
		{"another order of members", "", with(`{"typ":"JWT","kid":"key-1","alg":"ES384"}`)},
		{"an unknown key", "", with(`{"alg":"ES256","kid":"unknown","typ":"JWT"}`)},
		{"no type", "bad type", with(`{"alg":"ES256","kid":"key-1"}`)},
		{"another type", "bad type", with(`{"alg":"ES256","kid":"key-1","typ":"jwt"}`)},
		{"no key", "key id missing", with(`{"alg":"ES256","typ":"JWT"}`)},
		{"a long key", "key id longer than 1 kb",
			with(`{"alg":"ES256","typ":"JWT","kid":"` + strings.Repeat("k", 1025) + `"}`)},
		{"another member", `while parsing header JSON: json: unknown field "jku"`,
			with(`{"alg":"ES256","kid":"key-1","typ":"JWT","jku":"https://x"}`)},
		{"no algorithm", `bad signing algorithm ""`, with(`{"kid":"key-1","typ":"JWT"}`)},
		{"no signature", `bad signing algorithm "none"`, with(`{"alg":"none","kid":"key-1","typ":"JWT"}`)},
		{"a symmetric algorithm", `bad signing algorithm "HS256"`, with(`{"alg":"HS256","kid":"key-1","typ":"JWT"}`)},
		{"no JSON", "while parsing header JSON: ", with(`{`)},
		{"padding", "while unwrapping header: ", func(state *signertest.State) { state.RawHeader = "e30=" }},
		{"an empty signature", "empty signature returned", func(state *signertest.State) { state.NoSignature = true }},
		{"an unpublished key", "key used for signing JWT (kid: old) is excluded from OIDC discovery docs",
			func(state *signertest.State) {
				state.KeyID, state.Keys, state.Unpublished = "old", []string{"key-1", "old"}, map[string]bool{"old": true}
			}},
		{"an error", "while signing jwt: rpc error: code = PermissionDenied desc = no", func(state *signertest.State) {
			state.Fail = map[string]error{"Sign": status.Error(codes.PermissionDenied, "no")}
		}},
	} {
		program.Set(func(state *signertest.State) { *state = signertest.State{KeyID: "key-1", RefreshSeconds: 60} })
		program.Set(c.change)
		token, err := s.Sign(t.Context(), object.Fields("sub", object.StringOf("me")))
		fails(t, c.name, err, c.want)
		if parts := strings.Split(token, "."); err == nil &&
			(len(parts) != 3 || parts[1] != base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"me"}`))) {
			t.Errorf("%s: the token is %q", c.name, token)
		}
	}
}

// What a program says is checked before it is used; what was known before stays in use.
//
// SPEC: AUTH-9
func TestAnswersOfPrograms(t *testing.T) {
	program, s := started(t)
	before := s.Current()
	for _, c := range []struct {
		name, want string
		change     func(*signertest.State)
	}{
		{"no refresh", "found invalid refresh hint (0s)", func(state *signertest.State) { state.RefreshSeconds = 0 }},
		{"no keys", "found no keys", func(state *signertest.State) { state.Keys = []string{} }},
		{"no timestamp", "invalid data timestamp: ", func(state *signertest.State) { state.NoTimestamp = true }},
		{"a key without an ID", `found invalid public key id ""`, func(state *signertest.State) {
			state.Keys = []string{""}
		}},
		{"a long ID", "found invalid public key id", func(state *signertest.State) {
			state.Keys = []string{strings.Repeat("k", 1025)}
		}},
		{"an empty key", "found empty public key", func(state *signertest.State) {
			state.DER = map[string][]byte{"key-1": nil}
		}},
		{"no key", "while parsing external public keys: ", func(state *signertest.State) {
			state.DER = map[string][]byte{"key-1": []byte("x")}
		}},
		{"an error", "while getting externally supported jwt signing keys: rpc error: code = Internal desc = no",
			func(state *signertest.State) {
				state.Fail = map[string]error{"FetchKeys": status.Error(codes.Internal, "no")}
			}},
	} {
		program.Set(func(state *signertest.State) { *state = signertest.State{KeyID: "key-1", RefreshSeconds: 60} })
		program.Set(c.change)
		fails(t, c.name, s.Refresh(t.Context()), "while fetching token verification keys: "+c.want)
		if s.Current() != before {
			t.Fatalf("%s: the keys are others", c.name)
		}
	}
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	program.Set(func(state *signertest.State) {
		*state = signertest.State{Keys: []string{"b", "a"}, Unpublished: map[string]bool{"a": true},
			DER: map[string][]byte{"b": der}, RefreshSeconds: 1 << 62}
	})
	fails(t, "valid", s.Refresh(t.Context()), "")
	if now := s.Current(); len(now.Keys) != 2 || now.Keys[0].ID != "b" || now.Keys[0].Unpublished ||
		!now.Keys[1].Unpublished || now.Next.Before(time.Now().AddDate(100, 0, 0)) {
		t.Errorf("the keys are %+v", now)
	}
}

// A program that signs no tokens which last ten minutes is refused, and so is one that fails at the start.
//
// SPEC: AUTH-9
func TestStartsOfPrograms(t *testing.T) {
	for name, c := range map[string]struct {
		want   string
		change func(*signertest.State)
	}{
		"short": {"max token life supported by external-jwt-signer (599s) is less than acceptable (min 600s)",
			func(state *signertest.State) { state.MaxSeconds = 599 }},
		"keys": {"while initially filling key cache: while performing initial cache fill: while fetching token " +
			"verification keys: found no keys", func(state *signertest.State) { state.Keys = []string{} }},
		"metadata": {"code = Unimplemented desc = no", func(state *signertest.State) {
			state.Fail = map[string]error{"Metadata": status.Error(codes.Unimplemented, "no")}
		}},
	} {
		program := signertest.New(t)
		program.Set(c.change)
		program.Start(t)
		_, err := Open(t.Context(), program.Socket, Metrics{}, slog.New(slog.DiscardHandler))
		fails(t, name, err, c.want)
	}
}

// program is a program in the process of the test.
type program struct {
	api.ExternalJWTSignerClient
	fetch func(context.Context) (*api.FetchKeysResponse, error)
}

func (p program) FetchKeys(ctx context.Context, _ *api.FetchKeysRequest, _ ...grpc.CallOption) (
	*api.FetchKeysResponse, error) {
	return p.fetch(ctx)
}

// The keys are fetched when the program has asked for it; after a failure ten seconds later, and those that are known
// stay in use.
//
// SPEC: AUTH-9
func TestKeysAreFetchedAgain(t *testing.T) {
	real := signertest.New(t)
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		began, failing := time.Now(), false
		s := newSigner(t.Context(), program{fetch: func(ctx context.Context) (*api.FetchKeysResponse, error) {
			at = append(at, time.Since(began))
			if failing {
				<-ctx.Done() // for a minute
				return nil, errors.New("away")
			}
			return real.FetchKeys(ctx, &api.FetchKeysRequest{})
		}}, io.NopCloser(nil), Metrics{}, slog.New(slog.DiscardHandler))
		defer s.Close()
		real.Set(func(state *signertest.State) { state.RefreshSeconds = 300 })
		if err := s.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		go s.Run(t.Context())
		time.Sleep(301 * time.Second)
		failing = true
		time.Sleep(300 * time.Second)
		if len(s.Current().Keys) != 1 {
			t.Error("a failure has taken the keys away")
		}
		time.Sleep(61 * time.Second)
		failing = false
		time.Sleep(400 * time.Second)
		want := []time.Duration{0, 300, 600, 670, 970}
		for i := range want {
			want[i] *= time.Second
		}
		if len(at) != len(want) {
			t.Fatalf("the keys were fetched at %v, want %v", at, want)
		}
		for i := range want {
			if at[i] != want[i] {
				t.Errorf("the keys were fetched at %v, want %v", at, want)
			}
		}
	})
}

// All who need a key that is not known share one call, which goes on without those that do not wait for its end.
//
// SPEC: AUTH-9
func TestOneCallForAll(t *testing.T) {
	real := signertest.New(t)
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		release := make(chan struct{})
		s := newSigner(t.Context(), program{fetch: func(ctx context.Context) (*api.FetchKeysResponse, error) {
			calls++
			<-release
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			return real.FetchKeys(ctx, &api.FetchKeysRequest{})
		}}, io.NopCloser(nil), Metrics{}, slog.New(slog.DiscardHandler))
		defer s.Close()
		impatient, cancel := context.WithCancel(t.Context())
		first, others := make(chan error, 1), make(chan error, 20)
		go func() { first <- s.Refresh(impatient) }()
		synctest.Wait()
		for range cap(others) {
			go func() { others <- s.Refresh(t.Context()) }()
		}
		synctest.Wait()
		cancel()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Errorf("the first one does not wait, and gets %v", err)
		}
		close(release)
		for range cap(others) {
			if err := <-others; err != nil {
				t.Errorf("another one gets %v", err)
			}
		}
		if calls != 1 {
			t.Errorf("there were %d calls", calls)
		}
	})
}
