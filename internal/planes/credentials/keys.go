package credentials

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"sync"
	"time"

	"filippo.io/keygen"

	"plinth/internal/pki"
)

// What is derived from the secret. A name never gets another use.
const (
	forID         = "id"
	forTokens     = "service account tokens"
	forClients    = "authority of clients"
	forProxies    = "authority of front proxies"
	forFrontProxy = "client certificate of the front proxy"
	forKubelets   = "client certificate for kubelets"
)

// Subjects of the authorities of all planes.
const (
	clientsSubject = "plinth-plane-ca"
	proxiesSubject = "plinth-plane-front-proxy-ca"
)

// The life of an authority. Its key cannot be replaced as long as there is the Plane, so it has no end that a plane
// lives to see. It begins before the Plane, for clients whose clocks are behind.
const (
	authorityYears = 100
	clockSkew      = 5 * time.Minute
)

// info is what HKDF derives for. A purpose has no NUL.
func info(purpose, uid string) string { return purpose + "\x00" + uid }

// key derives a key.
func (c *Credentials) key(purpose, uid string) (*ecdsa.PrivateKey, error) {
	seed, err := hkdf.Expand(sha256.New, c.pseudorandom, info(purpose, uid), secretSize)
	if err != nil {
		return nil, err
	}
	return keygen.ECDSA(elliptic.P256(), seed)
}

// authority signs client certificates of one sort.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

// authority derives an authority. Its certificate is a function of the arguments: the signature is deterministic (RFC
// 6979), and the numbers that crypto/x509 would choose are given.
func (c *Credentials) authority(purpose, subject, uid string, created time.Time) (*authority, error) {
	key, err := c.key(purpose, uid)
	if err != nil {
		return nil, err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return nil, err
	}
	const serialSize, identifierSize = 16, 20
	identifier := sha256.Sum256(public)
	serial := sha256.Sum256([]byte(info(purpose, uid)))
	serial[0] = serial[0]&0x7f | 0x40 // positive, and of the same length for all
	created = created.UTC().Truncate(time.Second)
	template := &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes(serial[:serialSize]), Subject: pkix.Name{CommonName: subject},
		NotBefore: created.Add(-clockSkew), NotAfter: created.AddDate(authorityYears, 0, 0),
		SubjectKeyId: identifier[:identifierSize], KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
		SignatureAlgorithm: x509.ECDSAWithSHA256,
	}
	der, err := x509.CreateCertificate(nil, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{certificate, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}

// Subjects are certificates with the subjects of the authorities of all planes, for the ClientCAs of a listener that
// requests certificates and does not verify them. They have signed nothing.
func (c *Credentials) Subjects() ([]*x509.Certificate, error) {
	var all []*x509.Certificate
	for _, of := range []struct{ purpose, subject string }{{forClients, clientsSubject}, {forProxies, proxiesSubject}} {
		// No Plane is without a UID.
		a, err := c.authority(of.purpose, of.subject, "", c.process.Signer.NotBefore)
		if err != nil {
			return nil, err
		}
		all = append(all, a.certificate)
	}
	return all, nil
}

// client is a client certificate that a plane has for itself. It is made when it is first used, and again when less
// than a third of its life is left; its key stays.
type client struct {
	by      *authority
	key     func() (*ecdsa.PrivateKey, error)
	subject pkix.Name
	now     func() time.Time

	mu   sync.Mutex // guards made
	made *tls.Certificate
}

// get returns the certificate.
func (l *client) get() (*tls.Certificate, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if l.made != nil && !pki.Due(l.made.Leaf, now) {
		return l.made, nil
	}
	key, err := l.key()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject: l.subject, NotBefore: now.Add(-clockSkew), NotAfter: now.Add(pki.LeafLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, l.by.certificate, &key.PublicKey, l.by.key)
	if err != nil {
		return nil, fmt.Errorf("client certificate %s: %w", l.subject.CommonName, err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	l.made = &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
	return l.made, nil
}
