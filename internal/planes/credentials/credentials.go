package credentials

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"plinth/internal/access"
	"plinth/internal/auth"
	"plinth/internal/durable"
)

// File is the name of the file with the secret, in the directory of Open. A file of the same name with the ending .id
// identifies the secret, and says that it has been there.
const File = "planes.key"

const idFile = "planes.id"

const (
	secretSize = 32
	blockType  = "PLINTH PLANES SECRET"
)

// salt separates what is derived for planes from what may be derived from the secret for something else, and has the
// number of the scheme.
const salt = "plinth planes 1"

// Process has the users of the process, and who says which of them are administrators in planes.
type Process struct {
	// Authentication are the settings of the first plane. Of these, Clients, Tokens, Used, Now, and those of anonymous
	// requests hold in all planes. Clients are replaced in place, by Authorities.Set.
	Authentication auth.Config
	LaterTokens    []auth.Tokens
	// Signer signs the CertificateSigningRequests of the first plane, and the certificates of the Administrator, which is
	// their common name. They are members of system:masters.
	Signer        *x509.Certificate
	Administrator string
	// First decides who may do what in the first plane.
	First access.Authorizer
}

// Credentials are those of a process. They may be used concurrently.
type Credentials struct {
	process      Process
	pseudorandom []byte // HKDF's, of the secret
	certificates *auth.Certificates
	now          func() time.Time
	adopted      bool
}

// Open reads the secret in a directory, or makes one there. If dir is "", it is made anew and kept nowhere.
func Open(dir string, process Process) (*Credentials, error) {
	switch {
	case process.Authentication.Clients == nil, process.Signer == nil, process.Administrator == "", process.First == nil:
		return nil, errors.New("credentials of planes: not all is set that the process has")
	}
	c := &Credentials{process: process, now: process.Authentication.Now}
	if c.now == nil {
		c.now = time.Now
	}
	secret, adopted, err := kept(dir)
	if err != nil {
		return nil, fmt.Errorf("the secret of planes in %s: %w", dir, err)
	}
	c.adopted = adopted
	if c.pseudorandom, err = hkdf.Extract(sha256.New, secret, []byte(salt)); err != nil {
		return nil, err
	}
	c.certificates = &auth.Certificates{Authorities: process.Authentication.Clients, Refuse: c.refuseChain, Now: c.now}
	return c, nil
}

// Adopted says that there was no ID of a secret before: this one is new, or is to be the one from now on.
func (c *Credentials) Adopted() bool { return c.adopted }

// ID identifies the secret, and tells nothing else of it: two processes whose IDs are equal make the same keys.
func (c *Credentials) ID() string {
	id, err := identify(c.pseudorandom)
	if err != nil {
		panic("credentials: " + err.Error()) // the length is one that HKDF has
	}
	return id
}

func identify(pseudorandom []byte) (string, error) {
	const size = 16
	id, err := hkdf.Expand(sha256.New, pseudorandom, info(forID, ""), size)
	return hex.EncodeToString(id), err
}

// kept reads the secret, or makes it on the first start. It is adopted if there was no ID.
//
// As an authority, it is never replaced by itself (pki.Authority): with another one, all tokens and certificates of all
// planes are invalid. The file with its ID is written after it:
//
//	planes.id exists  ⇒  planes.key existed, with the secret of this ID
//
// So planes.key alone is what remains of a first start that was interrupted, and gets its ID. A secret that is there,
// but is not the one of the ID, is one of another data directory.
func kept(dir string) (secret []byte, adopted bool, err error) {
	if dir == "" {
		return fresh(), true, nil
	}
	secret, err = readSecret(filepath.Join(dir, File))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, false, err
	}
	known, noID := os.ReadFile(filepath.Join(dir, idFile))
	if noID != nil && !errors.Is(noID, fs.ErrNotExist) {
		return nil, false, noID
	}
	if err != nil && noID == nil {
		return nil, false, fmt.Errorf("%s is missing, though %s is there; restore it: the keys of all planes are derived from it. Or "+
			"remove %s to begin with a new one, for which all tokens and certificates that planes have issued are invalid",
			File, idFile, idFile)
	}
	if err != nil {
		secret = fresh()
		if err := durable.MkdirAll(durable.FS, dir); err != nil {
			return nil, false, err
		}
		text := pem.EncodeToMemory(&pem.Block{Type: blockType, Bytes: secret})
		if err := durable.WriteFile(durable.FS, filepath.Join(dir, File), text); err != nil {
			return nil, false, err
		}
	}
	pseudorandom, err := hkdf.Extract(sha256.New, secret, []byte(salt))
	if err != nil {
		return nil, false, err
	}
	id, err := identify(pseudorandom)
	if err != nil {
		return nil, false, err
	}
	if noID != nil {
		return secret, true, durable.WriteFile(durable.FS, filepath.Join(dir, idFile), []byte(id+"\n"))
	}
	if strings.TrimSpace(string(known)) != id {
		return nil, false, fmt.Errorf("%s is another one than %s says; restore the one that was there: the keys of all planes are "+
			"derived from it. Or remove %s to go on with this one, for which all tokens and certificates that planes have issued "+
			"are invalid", File, idFile, idFile)
	}
	return secret, false, nil
}

func fresh() []byte {
	secret := make([]byte, secretSize)
	rand.Read(secret) // it cannot fail
	return secret
}

// readSecret reads a file. One that is damaged is an error, and stays.
func readSecret(file string) ([]byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != blockType || len(block.Bytes) != secretSize {
		return nil, fmt.Errorf("%s is damaged: it is no %s of %d bytes; restore it", File, blockType, secretSize)
	}
	return block.Bytes, nil
}
