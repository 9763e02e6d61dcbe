package serviceaccount

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"plinth/internal/durable"
)

// OwnKey reads the generated key for service account tokens, or generates it. If file is "", it is
// kept nowhere.
//
// As an authority, it is never replaced by itself (pki.Authority): a new key makes every token invalid. Its public
// half, sa.pub beside it, is written after it and says that it has been there:
//
//	sa.pub exists  ⇒  sa.key existed
//
// So sa.key alone is what remains of a first start that was interrupted, or that of an older release, and gets its
// sa.pub. Certificates in the directory say nothing about it: the server may have had --service-account-key-file.
func OwnKey(file string, logger *slog.Logger) (crypto.Signer, error) {
	if file == "" {
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	public := strings.TrimSuffix(file, ".key") + ".pub"
	key, err := ReadPrivateKey(file)
	_, known := os.Stat(public)
	switch {
	case err == nil && known == nil:
		return key, nil
	case err == nil:
		return key, writePublicKey(public, key)
	case !errors.Is(err, os.ErrNotExist):
		return nil, err
	case known == nil:
		return nil, errors.New("sa.key is missing, though sa.pub is there; restore it, or remove sa.pub to begin with a new " +
			"key, for which all tokens of service accounts are invalid")
	case !errors.Is(known, os.ErrNotExist):
		return nil, known
	}
	made, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(made)
	if err != nil {
		return nil, err
	}
	if err := durable.MkdirAll(durable.FS, filepath.Dir(file)); err != nil {
		return nil, err
	}
	err = durable.WriteFile(durable.FS, file, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	if err != nil {
		return nil, err
	}
	logger.Debug("a key for the tokens of service accounts was generated", "file", file)
	return made, writePublicKey(public, made)
}

// writePublicKey writes the public half of a key.
func writePublicKey(file string, key crypto.Signer) error {
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	return durable.WriteFile(durable.FS, file, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}
