package serviceaccount

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"

	"plinth/object"
)

// PublicKey is a key that tokens are verified with.
type PublicKey struct {
	Key crypto.PublicKey
	ID  string
	// Unpublished leaves the key out of the documents for other programs: no new tokens are signed with it.
	Unpublished bool
}

// KeySet is a set of keys that tokens are verified with. It does not change.
type KeySet struct {
	Keys []PublicKey
	// Next is when another set is asked for; zero: never.
	Next time.Time

	published []PublicKey // those in the documents for other programs
}

// NewKeySet returns a set that comes after another one, or nil. If it has no keys to publish, or one that cannot be
// published, those that were published before stay published, as in the reference.
func NewKeySet(keys []PublicKey, next time.Time, before *KeySet) *KeySet {
	s := &KeySet{Keys: keys, Next: next}
	for _, k := range keys {
		if k.Unpublished {
			continue
		}
		if _, err := algorithm(k.Key); err != nil {
			s.published = nil
			break
		}
		s.published = append(s.published, k)
	}
	if len(s.published) == 0 && before != nil {
		s.published = before.published
	}
	return s
}

// withID returns the keys with an ID; all of them for "".
func (s *KeySet) withID(id string) []PublicKey {
	if id == "" {
		return s.Keys
	}
	var found []PublicKey
	for _, k := range s.Keys {
		if k.ID == id {
			found = append(found, k)
		}
	}
	return found
}

// has says whether a key is in the set.
func (s *KeySet) has(key *PublicKey) bool {
	return slices.ContainsFunc(s.Keys, func(k PublicKey) bool {
		same, ok := k.Key.(interface{ Equal(crypto.PublicKey) bool })
		return k.ID == key.ID && ok && same.Equal(key.Key)
	})
}

// Keys sign and verify tokens: StaticKeys, or those of another program.
type Keys interface {
	// Current returns the keys that are known. It makes no call.
	Current() *KeySet
	// Refresh asks for the keys, as a token is signed with one that is not known.
	Refresh(ctx context.Context) error
	// Sign returns the token with these claims.
	Sign(ctx context.Context, claims object.Value) (string, error)
}

// Find returns the keys with an ID; all of them for "". If none is known, it asks for the keys first.
func Find(ctx context.Context, keys Keys, id string) (found []PublicKey, in *KeySet) {
	in = keys.Current()
	if found = in.withID(id); len(found) == 0 {
		if keys.Refresh(ctx) == nil {
			in = keys.Current()
			found = in.withID(id)
		}
	}
	return found, in
}

// StaticKeys are keys that this server has itself, in files or in memory.
type StaticKeys struct{ current atomic.Pointer[staticKeys] }

// staticKeys are the keys at one time.
type staticKeys struct {
	set    *KeySet
	signer jose.Signer // nil: no tokens can be issued
}

// NewStaticKeys returns keys that verify tokens with the public keys, and sign them with the private one, which may be
// nil. The keys are RSA keys, or ECDSA keys on P-256, P-384 or P-521; others are an error.
func NewStaticKeys(public []crypto.PublicKey, private crypto.Signer) (*StaticKeys, error) {
	var keys []PublicKey
	for _, key := range public {
		named, _, err := newPublicKey(key)
		if err != nil {
			return nil, err
		}
		keys = append(keys, named)
	}
	now := &staticKeys{set: NewKeySet(keys, time.Time{}, nil)}
	if private != nil {
		var err error
		if now.signer, err = signer(private); err != nil {
			return nil, err
		}
	}
	k := &StaticKeys{}
	k.current.Store(now)
	return k, nil
}

// Become has k be the keys that other is, from then on.
func (k *StaticKeys) Become(other *StaticKeys) { k.current.Store(other.current.Load()) }

// Signs says whether there is a key to sign with.
func (k *StaticKeys) Signs() bool { return k.current.Load().signer != nil }

// Current implements Keys.
func (k *StaticKeys) Current() *KeySet { return k.current.Load().set }

// Refresh implements Keys.
func (k *StaticKeys) Refresh(context.Context) error { return nil }

// Sign implements Keys.
func (k *StaticKeys) Sign(_ context.Context, claims object.Value) (string, error) {
	signed, err := k.current.Load().signer.Sign(object.AppendJSON(nil, claims))
	if err != nil {
		return "", err
	}
	return signed.CompactSerialize()
}

// newPublicKey returns a key whose ID is its hash, as in the reference, so that servers with the same keys agree on the
// IDs, and the algorithm that its private key signs with.
func newPublicKey(key crypto.PublicKey) (PublicKey, jose.SignatureAlgorithm, error) {
	alg, err := algorithm(key)
	if err != nil {
		return PublicKey{}, "", err
	}
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return PublicKey{}, "", err
	}
	hash := sha256.Sum256(der)
	return PublicKey{Key: key, ID: base64.RawURLEncoding.EncodeToString(hash[:])}, alg, nil
}

// algorithm returns the algorithm that tokens are signed with by a key.
func algorithm(key crypto.PublicKey) (jose.SignatureAlgorithm, error) {
	switch key := key.(type) {
	case *rsa.PublicKey:
		return jose.RS256, nil
	case *ecdsa.PublicKey:
		switch key.Curve {
		case elliptic.P256():
			return jose.ES256, nil
		case elliptic.P384():
			return jose.ES384, nil
		case elliptic.P521():
			return jose.ES512, nil
		}
		return "", errors.New("unknown private key curve, must be 256, 384, or 521")
	}
	return "", fmt.Errorf("a key of type %T is not supported: use an RSA or ECDSA key", key)
}

// PublicKeys are all keys in the text of a PEM file: public ones, the public halves of private ones, and those of
// certificates.
func PublicKeys(file string, text []byte) ([]crypto.PublicKey, error) {
	var keys []crypto.PublicKey
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if key := publicOf(block.Bytes); key != nil {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%s: data does not contain any valid RSA or ECDSA public keys", file)
	}
	return keys, nil
}

// publicOf returns the public key of a private key, public key or certificate in DER form; nil for other data and other
// sorts of keys.
func publicOf(der []byte) crypto.PublicKey {
	if key := privateOf(der); key != nil {
		return key.Public()
	}
	key, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		certificate, err := x509.ParseCertificate(der)
		if err != nil {
			return nil
		}
		key = certificate.PublicKey
	}
	switch key.(type) {
	case *rsa.PublicKey, *ecdsa.PublicKey:
		return key
	}
	return nil
}

// privateOf returns the RSA or ECDSA private key in DER form (SEC 1, PKCS #1 or PKCS #8); nil for other data.
func privateOf(der []byte) crypto.Signer {
	if key, err := x509.ParseECPrivateKey(der); err == nil {
		return key
	}
	if key, err := x509.ParsePKCS1PrivateKey(der); err == nil {
		return key
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil
	}
	switch key := key.(type) {
	case *rsa.PrivateKey:
		return key
	case *ecdsa.PrivateKey:
		return key
	}
	return nil
}

// ReadPrivateKey reads the first private key of a PEM file.
func ReadPrivateKey(file string) (crypto.Signer, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return PrivateKey(file, text)
}

// PrivateKey is that in the text of a file.
func PrivateKey(file string, text []byte) (crypto.Signer, error) {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return nil, fmt.Errorf("%s: data does not contain a valid RSA or ECDSA private key", file)
		}
		if key := privateOf(block.Bytes); key != nil {
			return key, nil
		}
	}
}

// signer returns a signer with a private key, whose tokens have the ID of the key in their header.
func signer(key crypto.Signer) (jose.Signer, error) {
	public, alg, err := newPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	jwk := &jose.JSONWebKey{Algorithm: string(alg), Key: key, KeyID: public.ID, Use: "sig"}
	return jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: jwk}, nil)
}
