package serviceaccount

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// The documents of OpenID Connect Discovery 1.0, by which other programs find the public keys: their paths, and the
// media type of the keys.
const (
	ConfigurationPath = "/.well-known/openid-configuration"
	KeysPath          = "/openid/v1/jwks"
	KeysType          = "application/jwk-set+json"
)

// Documents are the two documents.
type Documents struct {
	Keys    Keys
	Issuer  string
	KeysURL string // where the document with the keys is
	Now     func() time.Time

	mu            sync.Mutex // guards the following
	of            *KeySet    // of which they were made
	configuration []byte
	keySet        []byte
}

// KeySet returns the document with the public keys (RFC 7517).
func (d *Documents) KeySet() ([]byte, error) {
	_, keySet, err := d.current()
	return keySet, err
}

// Configuration returns the discovery document of the issuer.
func (d *Documents) Configuration() ([]byte, error) {
	configuration, _, err := d.current()
	return configuration, err
}

// Caching is the Cache-Control of both: until the next keys are fetched, or an hour if they never change.
func (d *Documents) Caching() string {
	seconds := int64(3600)
	if next := d.Keys.Current().Next; !next.IsZero() {
		seconds = max(0, int64(next.Sub(d.Now())/time.Second))
	}
	return fmt.Sprintf("public, max-age=%d", seconds)
}

// current returns both documents, which are made anew when the keys have changed.
func (d *Documents) current() (configuration, keySet []byte, err error) {
	keys := d.Keys.Current()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of != keys {
		if d.configuration, d.keySet, err = d.print(keys); err != nil {
			return nil, nil, err
		}
		d.of = keys
	}
	return d.configuration, d.keySet, nil
}

// print makes both documents.
func (d *Documents) print(keys *KeySet) (configuration, keySet []byte, err error) {
	var set jose.JSONWebKeySet
	var algorithms []string
	for _, k := range keys.published {
		alg, err := algorithm(k.Key)
		if err != nil {
			return nil, nil, fmt.Errorf("the key %q: %w", k.ID, err)
		}
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: k.Key, KeyID: k.ID, Algorithm: string(alg), Use: "sig"})
		algorithms = append(algorithms, string(alg))
	}
	if len(set.Keys) == 0 {
		return nil, nil, errors.New("no keys provided for validating keyset")
	}
	if keySet, err = json.Marshal(set); err != nil {
		return nil, nil, err
	}
	slices.Sort(algorithms)
	configuration, err = json.Marshal(struct {
		Issuer    string   `json:"issuer"`
		KeysURL   string   `json:"jwks_uri"`
		Responses []string `json:"response_types_supported"`
		Subjects  []string `json:"subject_types_supported"`
		Signing   []string `json:"id_token_signing_alg_values_supported"`
	}{d.Issuer, d.KeysURL, []string{"id_token"}, []string{"public"}, slices.Compact(algorithms)})
	return configuration, keySet, err
}

// Discoverable returns an error if the documents cannot be served for an issuer, with the message of the reference.
func Discoverable(issuer string) error {
	u, err := url.Parse(issuer)
	switch {
	case err != nil:
		return err
	case u.Scheme != "https":
		return fmt.Errorf("issuer URL must use https scheme, got: %s", issuer)
	case u.RawQuery != "" || u.Fragment != "":
		return errors.New("issuer URL may not include a query or a fragment")
	}
	return nil
}
