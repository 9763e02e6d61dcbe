package backup

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"filippo.io/age"

	"plinth/internal/durable"
)

// Keys are a tar file within an archive, encrypted with age to a passphrase (scrypt): whoever has the archive has the
// objects that are not encrypted at rest, and nothing with which to be somebody, or to read the others.
//
//	pki/…               what is there in the data directory
//	flags/FLAG/N-NAME   file N that a flag names
//
// They are read from the disk by the program that writes the archive, and do not come from the server: a server that
// hands out its keys to whoever may ask for a backup is worth as much as the weakest of these.
const (
	pkiDir   = "pki"
	flagsDir = "flags"
)

// Keys are those of a server.
type Keys struct{ files []keyFile }

type keyFile struct {
	name    string // in the archive, and below the directory of a restore
	content []byte
}

// CollectKeys reads the keys of the server that has written a document, which has to be on this machine.
func CollectKeys(d *Document) (*Keys, error) {
	var k Keys
	root := filepath.Join(d.Directory, pkiDir)
	err := filepath.WalkDir(root, func(at string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(d.Directory, at)
		if err != nil {
			return err
		}
		return k.read(filepath.ToSlash(name), at)
	})
	if errors.Is(err, fs.ErrNotExist) || d.Directory == "" {
		return nil, fmt.Errorf("the keys of the server are in %s of its machine, and not here: run this there", root)
	}
	if err != nil {
		return nil, err
	}
	if d.Authority != "" && authority(k.content("pki/ca.crt")) != d.Authority {
		return nil, fmt.Errorf("%s has the keys of another server: run this on the machine of the one that is backed up", root)
	}
	for i, s := range d.Supplied {
		if err := k.read(path.Join(flagsDir, s.Flag, fmt.Sprintf("%d-%s", i, filepath.Base(s.File))), s.File); err != nil {
			return nil, fmt.Errorf("--%s: %w", s.Flag, err)
		}
	}
	return &k, nil
}

// authority is what a document says of an authority.
func authority(certificate []byte) string {
	sum := sha256.Sum256(certificate)
	return hex.EncodeToString(sum[:])
}

// AuthorityOf is what the document says of the authority in a data directory; "" if there is none.
func AuthorityOf(directory string) string {
	text, err := os.ReadFile(filepath.Join(directory, pkiDir, "ca.crt"))
	if err != nil {
		return ""
	}
	return authority(text)
}

func (k *Keys) read(name, file string) error {
	content, err := os.ReadFile(file)
	k.files = append(k.files, keyFile{name, content})
	return err
}

func (k *Keys) content(name string) []byte {
	for _, f := range k.files {
		if f.name == name {
			return f.content
		}
	}
	return nil
}

// Encrypt encrypts them to a passphrase.
func (k *Keys) Encrypt(passphrase string) ([]byte, error) {
	to, err := age.NewScryptRecipient(passphrase)
	if err != nil {
		return nil, err
	}
	var sealed bytes.Buffer
	w, err := age.Encrypt(&sealed, to)
	if err != nil {
		return nil, err
	}
	files := tar.NewWriter(w)
	for _, f := range k.files {
		err := files.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Size: int64(len(f.content)), Mode: 0o600,
			ModTime: time.Unix(0, 0)})
		if err == nil {
			_, err = files.Write(f.content)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := errors.Join(files.Close(), w.Close()); err != nil {
		return nil, err
	}
	return sealed.Bytes(), nil
}

// ErrPassphrase means that a passphrase is not the one of the keys.
var ErrPassphrase = errors.New("this is not the passphrase of the keys in the backup")

// decryptKeys decrypts what Encrypt has encrypted.
func decryptKeys(sealed []byte, passphrase string) (*Keys, error) {
	by, err := age.NewScryptIdentity(passphrase)
	if err != nil {
		return nil, err
	}
	r, err := age.Decrypt(bytes.NewReader(sealed), by)
	var wrong *age.NoIdentityMatchError
	if errors.As(err, &wrong) {
		return nil, ErrPassphrase
	}
	if err != nil {
		return nil, &DamageError{keysName, err.Error()}
	}
	var k Keys
	for files := tar.NewReader(r); ; {
		h, err := files.Next()
		if err == io.EOF {
			return &k, nil
		}
		var content []byte
		if err == nil {
			content, err = io.ReadAll(io.LimitReader(files, maxText))
		}
		if err != nil {
			return nil, &DamageError{keysName, err.Error()}
		}
		in, _, _ := strings.Cut(h.Name, "/")
		if h.Typeflag != tar.TypeReg || !filepath.IsLocal(filepath.FromSlash(h.Name)) || in != pkiDir && in != flagsDir {
			return nil, &DamageError{keysName, h.Name + " does not belong there"}
		}
		k.files = append(k.files, keyFile{h.Name, content})
	}
}

// write writes the files below a directory.
func (k *Keys) write(dir string) error {
	for _, f := range k.files {
		at := filepath.Join(dir, filepath.FromSlash(f.name))
		err := durable.MkdirAll(durable.FS, filepath.Dir(at))
		if err == nil {
			err = durable.WriteFile(durable.FS, at, f.content)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// flags are the flags of a server whose files were written below a directory.
func (k *Keys) flags(dir string) (all []string) {
	for _, f := range k.files {
		if rest, ok := strings.CutPrefix(f.name, flagsDir+"/"); ok {
			flag, _, _ := strings.Cut(rest, "/")
			all = append(all, "--"+flag+"="+filepath.Join(dir, filepath.FromSlash(f.name)))
		}
	}
	return all
}
