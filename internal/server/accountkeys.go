package server

import (
	"cmp"
	"context"
	"crypto"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"plinth/internal/auth/externaljwt"
	"plinth/internal/auth/serviceaccount"
	"plinth/internal/configfile"
	"plinth/internal/features"
	"plinth/internal/metrics"
)

// accountKeys sign and verify the tokens of service accounts. They are either this server's or those of an external
// signer: one of static and external is not nil. The nil *accountKeys can be closed.
type accountKeys struct {
	serviceaccount.Keys
	static   *serviceaccount.StaticKeys
	external *externaljwt.Signer
	metrics  *metrics.Signer
}

// abstractSocket is a name in Linux' abstract namespace.
var abstractSocket = regexp.MustCompile(`^@([a-zA-Z0-9_-]+\.)*[a-zA-Z0-9_-]+$`)

// validateSigner refuses what the reference refuses.
func (c *Config) validateSigner(refuse func(format string, args ...any)) {
	s := &c.ServiceAccounts
	if s.SigningEndpoint == "" {
		return
	}
	switch {
	case s.SigningKeyFile != "":
		refuse("service-account-signing-key-file and service-account-signing-endpoint are mutually exclusive and cannot be " +
			"set at the same time")
	case len(s.KeyFiles) > 0:
		refuse("can't set `--service-account-signing-key-file` and/or `--service-account-key-file` with " +
			"`--service-account-signing-endpoint` (They are mutually exclusive)")
	}
	if set, _, err := c.features(); err == nil && !set.On(features.ExternalServiceAccountTokenSigner) {
		refuse("setting `--service-account-signing-endpoint` requires enabling ExternalServiceAccountTokenSigner feature gate")
	}
	if strings.HasPrefix(s.SigningEndpoint, "@") && !abstractSocket.MatchString(s.SigningEndpoint) {
		refuse("invalid value %q passed for `--service-account-signing-endpoint`, when prefixed with @ must be a valid "+
			"abstract socket name", s.SigningEndpoint)
	}
}

// accountKeys connects to the external signer, or reads the keys of service account tokens; on the first start it
// generates them.
func (c *Config) accountKeys(ctx context.Context, files *configfile.Files) (*accountKeys, error) {
	if socket := c.ServiceAccounts.SigningEndpoint; socket != "" {
		counts := metrics.NewSigner()
		signer, err := externaljwt.Open(ctx, socket, counts.Hooks(), c.Logger)
		if err != nil {
			return nil, fmt.Errorf("while setting up external-jwt-signer: %w", err)
		}
		k := &accountKeys{Keys: signer, external: signer, metrics: counts}
		if most := c.ServiceAccounts.MaxExpiration; most > signer.MaxTokenLife {
			return nil, errors.Join(fmt.Errorf("service-account-max-token-expiration cannot be set longer than the token "+
				"expiration supported by service-account-signing-endpoint: %s > %s", most, signer.MaxTokenLife), k.close())
		}
		return k, nil
	}
	static, err := c.staticKeys(files)
	return &accountKeys{Keys: static, static: static}, err
}

// errNoSharedKey is why a server on an etcd does not start without a key.
var errNoSharedKey = errors.New("--service-account-signing-key-file is missing: servers with --etcd-servers need the " +
	"same key for the tokens of service accounts, and one that this server makes is not known to the others; give each of " +
	"them the same file (openssl ecparam -name prime256v1 -genkey -noout -out sa.key makes one)")

// staticKeys reads the keys, or generates one on the first start, if there are no other servers. Those in files are
// read again when they change.
func (c *Config) staticKeys(files *configfile.Files) (*serviceaccount.StaticKeys, error) {
	s := &c.ServiceAccounts
	if s.SigningKeyFile == "" && len(s.KeyFiles) == 0 {
		file := c.inDataDir("pki", "sa.key")
		if _, err := os.Stat(file); c.onEtcd && errors.Is(err, fs.ErrNotExist) {
			return nil, errNoSharedKey
		}
		private, err := serviceaccount.OwnKey(file, c.Logger)
		if err != nil {
			return nil, fmt.Errorf("the key for the tokens of service accounts: %w", err)
		}
		return serviceaccount.NewStaticKeys([]crypto.PublicKey{private.Public()}, private)
	}
	names, flag := s.KeyFiles, "--service-account-key-file"
	if s.SigningKeyFile != "" { // the last one
		names, flag = append(slices.Clip(names), s.SigningKeyFile), "--service-account-signing-key-file"
	}
	var keys *serviceaccount.StaticKeys
	return keys, files.Use(flag, names, func(texts [][]byte) error {
		next, err := s.keys(texts)
		if err != nil {
			return err
		}
		if keys == nil {
			keys = next
		}
		keys.Become(next)
		return nil
	})
}

// keys are those in the texts of KeyFiles and of SigningKeyFile, the last one, if it is set.
func (s *ServiceAccounts) keys(texts [][]byte) (_ *serviceaccount.StaticKeys, err error) {
	var private crypto.Signer
	if s.SigningKeyFile != "" {
		if private, err = serviceaccount.PrivateKey(s.SigningKeyFile, texts[len(texts)-1]); err != nil {
			return nil, err
		}
	}
	var public []crypto.PublicKey
	for i, file := range s.KeyFiles {
		some, err := serviceaccount.PublicKeys(file, texts[i])
		if err != nil {
			return nil, err
		}
		public = append(public, some...)
	}
	if len(s.KeyFiles) == 0 {
		public = append(public, private.Public())
	}
	return serviceaccount.NewStaticKeys(public, private)
}

// lifetimes are the Issuer's MaxSeconds and ExtendedSeconds. A token lasts no longer than the external signer allows.
func (k *accountKeys) lifetimes(c *Config) (most, extended int64) {
	most = int64(c.ServiceAccounts.MaxExpiration / time.Second)
	if k.external == nil {
		return most, 0
	}
	allowed := int64(k.external.MaxTokenLife / time.Second)
	return cmp.Or(most, allowed), min(allowed, int64(365*24*time.Hour/time.Second))
}

// follow keeps the keys of the external signer up to date.
func (k *accountKeys) follow(ctx context.Context) {
	if k.external != nil {
		k.external.Run(ctx)
	}
}

func (k *accountKeys) close() error {
	if k == nil || k.external == nil {
		return nil
	}
	return k.external.Close()
}
