package serviceaccount

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"sync"
	"testing"
	"time"

	"plinth/internal/access"
)

// Requests verify tokens concurrently, and share a cache. The race detector finds unsynchronized access.
//
// SPEC: AUTH-2
func TestTokensAreVerifiedConcurrently(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := NewStaticKeys([]crypto.PublicKey{key.Public()}, key)
	if err != nil {
		t.Fatal(err)
	}
	v := &Verifier{Keys: keys, Audiences: []string{"here"}, Now: time.Now} // without Lookup, signatures are enough
	tokens := make([]string, 20)
	for i := range tokens {
		if tokens[i], err = keys.Legacy("default", fmt.Sprint("a", i%10), "1", "secret"); err != nil {
			t.Fatal(err)
		}
	}
	var wait sync.WaitGroup
	start := make(chan bool)
	for i, token := range tokens {
		wait.Go(func() {
			<-start
			for range 2 {
				id, err := v.Token(t.Context(), token, nil)
				if want := access.ServiceAccount("default", fmt.Sprint("a", i%10)); err != nil || id.User.Name != want {
					t.Errorf("have %+v, %v, want the user %s", id, err, want)
				}
			}
		})
	}
	close(start)
	wait.Wait()
	if n := v.Counters.Legacy.Load(); n != 40 {
		t.Errorf("Counters.Legacy: have %d, want 40", n)
	}
}
