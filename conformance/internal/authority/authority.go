// Package authority creates certificate authorities, and certificates signed by them, for tests of authentication.
package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Authority signs certificates.
type Authority struct {
	Cert *x509.Certificate
	Key  *ecdsa.PrivateKey
}

// New makes a self-signed authority that is valid for life from now.
func New(name string, life time.Duration) (*Authority, error) {
	return (*Authority)(nil).New(name, life)
}

// New makes an intermediate authority, signed by this one.
func (a *Authority) New(name string, life time.Duration) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(life),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	by := &Authority{template, key}
	if a != nil {
		by = a
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.Cert, &key.PublicKey, by.Key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &Authority{cert, key}, err
}

// PEM is the authority's certificate.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Cert.Raw})
}

// KeyPEM is the authority's key.
func (a *Authority) KeyPEM() ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(a.Key)
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), err
}

// Sign makes a client certificate that is valid for an hour, unless change modifies the template. The certificates of
// above follow it in the chain.
func (a *Authority) Sign(subject pkix.Name, change func(*x509.Certificate), above ...*Authority) (*tls.Certificate,
	error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: subject, NotBefore: time.Now().Add(-time.Hour),
		NotAfter:    time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, KeyUsage: x509.KeyUsageDigitalSignature,
	}
	if change != nil {
		change(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.Cert, &key.PublicKey, a.Key)
	made := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	for _, by := range above {
		made.Certificate = append(made.Certificate, by.Cert.Raw)
	}
	return made, err
}

// Write writes a certificate and its key into a folder, as NAME.crt and NAME.key.
func Write(dir, name string, made *tls.Certificate) error {
	key, err := x509.MarshalPKCS8PrivateKey(made.PrivateKey)
	if err != nil {
		return err
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made.Certificate[0]})
	if err := os.WriteFile(filepath.Join(dir, name+".crt"), cert, 0o600); err != nil {
		return err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})
	return os.WriteFile(filepath.Join(dir, name+".key"), text, 0o600)
}

// Serving makes a certificate of a new authority for a server on this machine, that is valid for an hour. It also
// returns the authority's certificate.
func Serving() (made *tls.Certificate, ca []byte, err error) {
	by, err := New("serving", time.Hour)
	if err != nil {
		return nil, nil, err
	}
	made, err = by.Sign(pkix.Name{CommonName: "server"}, func(c *x509.Certificate) {
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	})
	return made, by.PEM(), err
}

// FrontProxy makes what Plinth makes itself, an authority for forwarded requests and a client certificate of it, and
// returns the flags with which the reference uses them.
func FrontProxy(dir string) (flags []string, err error) {
	by, err := New("front-proxy", time.Hour)
	if err != nil {
		return nil, err
	}
	made, err := by.Sign(pkix.Name{CommonName: "front-proxy-client"}, nil)
	if err != nil {
		return nil, err
	}
	if err := Write(dir, "proxy", made); err != nil {
		return nil, err
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(file("proxy-ca.crt"), by.PEM(), 0o600); err != nil {
		return nil, err
	}
	return []string{"--proxy-client-cert-file=" + file("proxy.crt"), "--proxy-client-key-file=" + file("proxy.key"),
		"--requestheader-client-ca-file=" + file("proxy-ca.crt"), "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-uid-headers=X-Remote-Uid",
		"--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-"}, nil
}
