package server

import (
	"cmp"
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

// Lifetimes of certificates. At a start a leaf is replaced if it expires within renewBefore.
const (
	caLife      = 10 * 365 * 24 * time.Hour
	leafLife    = 365 * 24 * time.Hour
	renewBefore = 30 * 24 * time.Hour
	clockSkew   = 5 * time.Minute
)

// pair is a certificate with its private key, as PEM.
type pair struct{ cert, key []byte }

// pki is the server's own certificate authority and the certificates that it has signed. Keys are ECDSA, because
// generating an RSA key would take a third of the start budget.
type pki struct {
	dir  string // "": nothing is kept
	name string // of the authority; "": plinth-ca
	now  time.Time
	ca   *x509.Certificate
	key  *ecdsa.PrivateKey
	// caPEM is the authority's certificate, for kubeconfigs.
	caPEM []byte
}

// openPKI reads the authority in dir, or creates one there. If dir is "", the authority and all that it signs are made
// anew and kept nowhere.
func openPKI(dir string, now time.Time) (*pki, error) {
	p := &pki{dir: dir, now: now}
	authority, err := p.authority()
	if err == nil {
		err = p.use(authority)
	}
	if err != nil {
		return nil, fmt.Errorf("certificate authority in %s: %w", dir, err)
	}
	return p, nil
}

// use takes an authority, with which the pki signs from then on.
func (p *pki) use(authority pair) error {
	loaded, err := tls.X509KeyPair(authority.cert, authority.key)
	if err != nil {
		return err
	}
	key, ok := loaded.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return errors.New("the key is no ECDSA key")
	}
	p.ca, p.key, p.caPEM = loaded.Leaf, key, authority.cert
	return nil
}

// openPKI opens the server's own authority: the one that it is given, or that of the data directory. The configured
// clock dates the certificates.
func (s *Server) openPKI() (*pki, error) {
	dir, now, given := s.config.inDataDir("pki"), s.clock(), s.config.Authority
	if given.Cert == nil {
		return openPKI(dir, now)
	}
	p := &pki{dir: dir, now: now}
	if err := p.use(pair{given.Cert, given.Key}); err != nil {
		return nil, fmt.Errorf("the given certificate authority: %w", err)
	}
	return p, nil
}

// authority reads the authority's certificate and key, or creates them on the first start.
//
// An authority is never replaced: clients trust its certificate, and a new one would lock them out. So it is an error
// if only the certificate exists, or if the directory holds other certificates but not the whole authority. A key
// without any certificate is what remains of a first start that was interrupted (write puts the key first); it then
// gets its certificate.
func (p *pki) authority() (pair, error) {
	hasCert, err := p.has("ca.crt")
	if err != nil {
		return pair{}, err
	}
	hasKey, err := p.has("ca.key")
	if err != nil {
		return pair{}, err
	}
	if hasCert && hasKey {
		return p.read("ca")
	}
	var signed []string
	if p.dir != "" {
		if signed, err = filepath.Glob(filepath.Join(p.dir, "*.crt")); err != nil {
			return pair{}, err
		}
	}
	switch {
	case hasCert:
		return pair{},
			errors.New(
				"ca.key is missing, though ca.crt is there; restore it, or remove the folder to begin with a new authority")
	case len(signed) > 0 && hasKey:
		return pair{},
			errors.New(
				"ca.crt is missing, though ca.key is there; restore it, or remove the folder to begin with a new authority")
	case len(signed) > 0:
		return pair{},
			fmt.Errorf(
				"ca.crt and ca.key are missing, though %s is there; restore them, or remove the folder to begin with a new authority",
				filepath.Base(signed[0]))
	case hasKey:
		return p.finishAuthority()
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, err
	}
	return p.newAuthority(key)
}

// NewAuthority makes an authority for Config.Authority, which is valid from a time on.
func NewAuthority(at time.Time) (KeyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return KeyPair{}, err
	}
	made, err := (&pki{now: at}).newAuthority(key)
	return KeyPair{made.cert, made.key}, err
}

func (p *pki) has(name string) (bool, error) {
	if p.dir == "" {
		return false, nil
	}
	_, err := os.Stat(filepath.Join(p.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// finishAuthority creates the certificate for a key that is alone.
func (p *pki) finishAuthority() (pair, error) {
	text, err := os.ReadFile(filepath.Join(p.dir, "ca.key"))
	if err != nil {
		return pair{}, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return pair{}, errors.New("ca.key is damaged: it holds no PEM")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return pair{}, fmt.Errorf("ca.key is damaged: %w", err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return pair{}, errors.New("ca.key is no ECDSA key")
	}
	return p.newAuthority(key)
}

func (p *pki) newAuthority(key *ecdsa.PrivateKey) (pair, error) {
	template := p.template(pkix.Name{CommonName: cmp.Or(p.name, "plinth-ca")}, caLife)
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	made, err := sign(template, template, key, key)
	if err != nil {
		return pair{}, err
	}
	return made, p.write("ca", made)
}

// leaf reads the certificate of this name. It signs a new one if none exists, or if the old one expires soon, was
// signed by another authority, has another subject, or lacks one of the hosts. Without hosts it is a client
// certificate.
func (p *pki) leaf(name string, subject pkix.Name, hosts []string) (pair, error) {
	if old, err := p.read(name); err == nil && p.serves(old, subject, hosts) {
		return old, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, err
	}
	template := p.template(subject, leafLife)
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
	made, err := sign(template, p.ca, key, p.key)
	if err != nil {
		return pair{}, err
	}
	return made, p.write(name, made)
}

func (p *pki) serves(old pair, subject pkix.Name, hosts []string) bool {
	loaded, err := tls.X509KeyPair(old.cert, old.key)
	if err != nil || loaded.Leaf == nil {
		return false
	}
	leaf := loaded.Leaf
	if p.now.Add(renewBefore).After(leaf.NotAfter) || leaf.CheckSignatureFrom(p.ca) != nil ||
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

func (p *pki) template(subject pkix.Name, life time.Duration) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		panic("server: no random numbers: " + err.Error()) // the runtime ends the process before this can happen
	}
	return &x509.Certificate{
		SerialNumber: serial, Subject: subject,
		NotBefore: p.now.Add(-clockSkew), NotAfter: p.now.Add(life),
	}
}

func sign(template, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) (pair, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		return pair{}, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return pair{}, err
	}
	return pair{
		cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}, nil
}

func (p *pki) read(name string) (pair, error) {
	if p.dir == "" {
		return pair{}, fs.ErrNotExist
	}
	cert, err := os.ReadFile(filepath.Join(p.dir, name+".crt"))
	if err != nil {
		return pair{}, err
	}
	key, err := os.ReadFile(filepath.Join(p.dir, name+".key"))
	return pair{cert, key}, err
}

// write stores the key first: authority takes a certificate without its key for a damaged authority. A loss of power
// after it takes neither away.
func (p *pki) write(name string, made pair) error {
	if p.dir == "" {
		return nil
	}
	if err := durable.MkdirAll(durable.FS, p.dir); err != nil {
		return err
	}
	if err := durable.WriteFile(durable.FS, filepath.Join(p.dir, name+".key"), made.key); err != nil {
		return err
	}
	return durable.WriteFile(durable.FS, filepath.Join(p.dir, name+".crt"), made.cert)
}
