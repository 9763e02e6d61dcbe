package serviceaccount

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"

	"github.com/go-jose/go-jose/v4"
)

// The documents by which others find the keys that verify tokens, as OpenID Connect Discovery 1.0 has them: where they
// are, of what type, and how long they may be kept.
const (
	ConfigurationPath = "/.well-known/openid-configuration"
	KeysPath          = "/openid/v1/jwks"
	KeysType          = "application/jwk-set+json"
	DocumentCaching   = "public, max-age=3600"
)

// KeySet is the document with the public keys.
func (k *Keys) KeySet() ([]byte, error) {
	var set jose.JSONWebKeySet
	for _, p := range k.public {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: p.key, KeyID: p.id, Algorithm: string(p.alg), Use: "sig"})
	}
	return json.Marshal(set)
}

// Configuration is the document that says where the keys of an issuer are.
func (k *Keys) Configuration(issuer, keysURL string) ([]byte, error) {
	var algorithms []string
	for _, p := range k.public {
		algorithms = append(algorithms, string(p.alg))
	}
	slices.Sort(algorithms)
	return json.Marshal(struct {
		Issuer    string   `json:"issuer"`
		KeysURL   string   `json:"jwks_uri"`
		Responses []string `json:"response_types_supported"`
		Subjects  []string `json:"subject_types_supported"`
		Signing   []string `json:"id_token_signing_alg_values_supported"`
	}{issuer, keysURL, []string{"id_token"}, []string{"public"}, slices.Compact(algorithms)})
}

// Discoverable says why there can be no documents for an issuer; nil: there can.
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
