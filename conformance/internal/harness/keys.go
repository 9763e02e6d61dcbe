package harness

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"plinth/conformance/internal/reference"
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
	in := func(name string) string { return filepath.Join(dir, name) }
	return []string{"--cluster-signing-cert-file=" + in("ca.crt"), "--cluster-signing-key-file=" + in("ca.key"),
			"--service-account-signing-key-file=" + in("sa.key")},
		errors.Join(reference.ServiceAccountKeys(dir), os.WriteFile(in("ca.crt"), authority.Cert, 0o600),
			os.WriteFile(in("ca.key"), authority.Key, 0o600))
})
