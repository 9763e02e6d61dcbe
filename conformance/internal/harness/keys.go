package harness

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"plinth/internal/pki"
)

// sharedKeys makes the authority and the key of service account tokens that all servers of a test on one etcd have, and
// returns the flags that name them. A server makes neither itself there.
var sharedKeys = sync.OnceValues(func() (flags []string, err error) {
	dir, err := os.MkdirTemp("", "conformance-keys-")
	if err != nil {
		return nil, err
	}
	authority, err := pki.New("conformance", time.Now())
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	for _, file := range []struct {
		flag, name string
		text       []byte
	}{
		{"--cluster-signing-cert-file", "ca.crt", authority.Cert},
		{"--cluster-signing-key-file", "ca.key", authority.Key},
		{"--service-account-signing-key-file", "sa.key",
			pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})},
	} {
		at := filepath.Join(dir, file.name)
		err = errors.Join(err, os.WriteFile(at, file.text, 0o600))
		flags = append(flags, file.flag+"="+at)
	}
	return flags, err
})
