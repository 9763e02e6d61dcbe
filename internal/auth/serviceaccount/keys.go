package serviceaccount

import (
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

	"github.com/go-jose/go-jose/v4"
)

// publicKey is a key that tokens are verified with.
type publicKey struct {
	key crypto.PublicKey
	id  string
	alg jose.SignatureAlgorithm // that its private key signs with
}

// newPublicKey returns a key whose ID is its hash, as in the reference, so that servers with the same keys agree on the
// IDs.
func newPublicKey(key crypto.PublicKey) (publicKey, error) {
	alg, err := algorithm(key)
	if err != nil {
		return publicKey{}, err
	}
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return publicKey{}, err
	}
	hash := sha256.Sum256(der)
	return publicKey{key: key, id: base64.RawURLEncoding.EncodeToString(hash[:]), alg: alg}, nil
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

// ReadPublicKeys reads all keys of a PEM file: public ones, the public halves of private ones, and those of
// certificates.
func ReadPublicKeys(file string) ([]crypto.PublicKey, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
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
	public, err := newPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	jwk := &jose.JSONWebKey{Algorithm: string(public.alg), Key: key, KeyID: public.id, Use: "sig"}
	return jose.NewSigner(jose.SigningKey{Algorithm: public.alg, Key: jwk}, nil)
}
