// Package pki is a certificate authority in a directory: it signs the certificates of a server and of those who may
// reach it, keeps them beside its own, and signs new ones when the old ones expire soon.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"plinth/internal/durable"
)

// LeafLife is how long a certificate is valid that is no authority's.
const (
	LeafLife      = 365 * 24 * time.Hour
	authorityLife = 10 * 365 * 24 * time.Hour
	clockSkew     = 5 * time.Minute
)

// Pair is a certificate with its private key, as PEM.
type Pair struct{ Cert, Key []byte }

// An Authority signs certificates. Keys that it makes are ECDSA, because generating an RSA key would take a third of
// the start budget.
type Authority struct {
	Certificate *x509.Certificate
	Key         crypto.Signer
	PEM         []byte // the certificate, for those who verify with it

	dir  string // "": nothing is kept
	name string // of a new authority
	now  time.Time
}

// Open reads the authority in dir, or creates one of this name there. Certificates are dated and judged by the time
// now. If dir is "", the authority and all that it signs are made anew and kept nowhere.
func Open(dir, name string, now time.Time) (*Authority, error) {
	a := &Authority{dir: dir, name: name, now: now}
	kept, err := a.kept()
	if err == nil {
		err = a.use(kept)
	}
	if err != nil {
		return nil, fmt.Errorf("certificate authority in %s: %w", dir, err)
	}
	return a, nil
}

// Given is an authority whose certificate and key come from elsewhere. What it signs is kept in dir.
func Given(authority Pair, dir string, now time.Time) (*Authority, error) {
	a := &Authority{dir: dir, now: now}
	err := a.use(authority)
	if err == nil && !a.Certificate.IsCA {
		err = errors.New("the certificate is not that of an authority")
	}
	if err != nil {
		return nil, fmt.Errorf("the given certificate authority: %w", err)
	}
	return a, nil
}

// At returns the same authority at another time, by which it dates and judges certificates.
func (a *Authority) At(now time.Time) *Authority {
	later := *a
	later.now = now
	return &later
}

// Due says that a certificate is to be renewed: less than a third of its life is left.
func Due(c *x509.Certificate, now time.Time) bool {
	return c.NotAfter.Sub(now) < c.NotAfter.Sub(c.NotBefore)/3
}

// Beside opens the authority of this name in a folder of the directory of a, or creates one there. Neither believes
// what the other has signed.
func (a *Authority) Beside(folder, name string) (*Authority, error) {
	dir := a.dir
	if dir != "" {
		dir = filepath.Join(dir, folder)
	}
	return Open(dir, name, a.now)
}

// New makes the certificate and the key of an authority of this name, which is valid from a time on.
func New(name string, at time.Time) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	return (&Authority{name: name, now: at}).make(key)
}

// use has a sign with this certificate and key from then on.
func (a *Authority) use(authority Pair) error {
	loaded, err := tls.X509KeyPair(authority.Cert, authority.Key)
	if err != nil {
		return err
	}
	key, ok := loaded.PrivateKey.(crypto.Signer)
	if !ok {
		return errors.New("the key signs nothing")
	}
	a.Certificate, a.Key, a.PEM = loaded.Leaf, key, authority.Cert
	return nil
}

// kept reads the authority's certificate and key, or creates them on the first start.
//
// An authority is never replaced: clients trust its certificate, and a new one would lock them out. So it is an error
// if only the certificate exists, or if the directory holds other certificates but not the whole authority. A key
// without any certificate is what remains of a first start that was interrupted (write puts the key first); it then
// gets its certificate.
func (a *Authority) kept() (Pair, error) {
	hasCert, err := a.has("ca.crt")
	if err != nil {
		return Pair{}, err
	}
	hasKey, err := a.has("ca.key")
	if err != nil {
		return Pair{}, err
	}
	if hasCert && hasKey {
		return a.read("ca")
	}
	var signed []string
	if a.dir != "" {
		if signed, err = filepath.Glob(filepath.Join(a.dir, "*.crt")); err != nil {
			return Pair{}, err
		}
	}
	switch {
	case hasCert:
		return Pair{},
			errors.New(
				"ca.key is missing, though ca.crt is there; restore it, or remove the folder to begin with a new authority")
	case len(signed) > 0 && hasKey:
		return Pair{},
			errors.New(
				"ca.crt is missing, though ca.key is there; restore it, or remove the folder to begin with a new authority")
	case len(signed) > 0:
		return Pair{},
			fmt.Errorf(
				"ca.crt and ca.key are missing, though %s is there; restore them, or remove the folder to begin with a new authority",
				filepath.Base(signed[0]))
	case hasKey:
		return a.finish()
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	return a.make(key)
}

func (a *Authority) has(name string) (bool, error) {
	if a.dir == "" {
		return false, nil
	}
	_, err := os.Stat(filepath.Join(a.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// finish creates the certificate for a key that is alone.
func (a *Authority) finish() (Pair, error) {
	text, err := os.ReadFile(filepath.Join(a.dir, "ca.key"))
	if err != nil {
		return Pair{}, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return Pair{}, errors.New("ca.key is damaged: it holds no PEM")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return Pair{}, fmt.Errorf("ca.key is damaged: %w", err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return Pair{}, errors.New("ca.key is no ECDSA key")
	}
	return a.make(key)
}

func (a *Authority) make(key *ecdsa.PrivateKey) (Pair, error) {
	template := a.template(pkix.Name{CommonName: a.name}, authorityLife)
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	made, err := sign(template, template, key, key)
	if err != nil {
		return Pair{}, err
	}
	return made, a.write("ca", made)
}

// Leaf reads the certificate of this name. It signs a new one if none exists, or if the old one is due, was
// signed by another authority, has another subject, or lacks one of the hosts. Without hosts it is a client
// certificate.
func (a *Authority) Leaf(name string, subject pkix.Name, hosts []string) (Pair, error) {
	if old, err := a.read(name); err == nil && a.serves(old, subject, hosts) {
		return old, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	template := a.template(subject, LeafLife)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if len(hosts) > 0 {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	made, err := sign(template, a.Certificate, key, a.Key)
	if err != nil {
		return Pair{}, err
	}
	return made, a.write(name, made)
}

func (a *Authority) serves(old Pair, subject pkix.Name, hosts []string) bool {
	loaded, err := tls.X509KeyPair(old.Cert, old.Key)
	if err != nil || loaded.Leaf == nil {
		return false
	}
	leaf := loaded.Leaf
	if Due(leaf, a.now) || leaf.CheckSignatureFrom(a.Certificate) != nil ||
		leaf.Subject.CommonName != subject.CommonName || !slices.Equal(leaf.Subject.Organization, subject.Organization) {
		return false
	}
	for _, host := range hosts {
		if leaf.VerifyHostname(host) != nil {
			return false
		}
	}
	return true
}

func (a *Authority) template(subject pkix.Name, life time.Duration) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		panic("pki: no random numbers: " + err.Error()) // the runtime ends the process before this can happen
	}
	return &x509.Certificate{
		SerialNumber: serial, Subject: subject,
		NotBefore: a.now.Add(-clockSkew), NotAfter: a.now.Add(life),
	}
}

func sign(template, parent *x509.Certificate, key *ecdsa.PrivateKey, parentKey crypto.Signer) (Pair, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		return Pair{}, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}, nil
}

func (a *Authority) read(name string) (Pair, error) {
	if a.dir == "" {
		return Pair{}, fs.ErrNotExist
	}
	cert, err := os.ReadFile(filepath.Join(a.dir, name+".crt"))
	if err != nil {
		return Pair{}, err
	}
	key, err := os.ReadFile(filepath.Join(a.dir, name+".key"))
	return Pair{cert, key}, err
}

// write stores the key first: kept takes a certificate without its key for a damaged authority. A loss of power
// after it takes neither away.
func (a *Authority) write(name string, made Pair) error {
	if a.dir == "" {
		return nil
	}
	if err := durable.MkdirAll(durable.FS, a.dir); err != nil {
		return err
	}
	if err := durable.WriteFile(durable.FS, filepath.Join(a.dir, name+".key"), made.Key); err != nil {
		return err
	}
	return durable.WriteFile(durable.FS, filepath.Join(a.dir, name+".crt"), made.Cert)
}
