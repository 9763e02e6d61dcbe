package server

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"plinth/internal/datadir"
	"plinth/internal/kubeconfig"
	"plinth/internal/planes/credentials"
)

// parts are what this server makes in its data directory when it is not there.
func (c *Config) parts() []datadir.Part {
	var all []datadir.Part
	if c.Authority.Cert == nil {
		all = append(all, datadir.Part{File: "pki/ca.crt", What: "the certificate authority"})
	}
	if c.Aggregation.OwnAuthority && c.Aggregation.ClientCertFile == "" && c.FrontProxy.CAFile == "" {
		all = append(all, datadir.Part{File: "pki/front-proxy/ca.crt", What: "the authority of forwarded requests"})
	}
	if s := &c.ServiceAccounts; s.SigningKeyFile == "" && s.SigningEndpoint == "" &&
		len(s.KeyFiles) == 0 {
		all = append(all, datadir.Part{File: "pki/sa.key", What: "the key of service accounts"})
	}
	if c.Planes {
		all = append(all, datadir.Part{File: "pki/" + credentials.File, What: "the secret behind the keys of planes"})
	}
	if c.storageKind() == embedded && c.Log == nil {
		all = append(all, datadir.Part{File: storeFile, What: "all objects"})
	}
	return all
}

// The kinds of storage of a data directory. That of Config.Storage is the first one as long as there is no etcd.
const (
	embedded = "embedded"
	inEtcd   = "etcd"
)

// storeFile is a file that every store has.
const storeFile = "store/FORMAT"

func (c *Config) storageKind() string {
	if c.onEtcd {
		return inEtcd
	}
	return c.Storage
}

// openDataDir begins a start in the data directory; nil: there is none.
func (c *Config) openDataDir(ctx context.Context) (*datadir.Dir, error) {
	if c.DataDir == "" {
		return nil, nil
	}
	dir, err := datadir.Open(ctx, c.DataDir, c.storageKind(), c.parts())
	if err != nil {
		return nil, err
	}
	if dir.LastStorage() == inEtcd && dir.Missing(storeFile) {
		c.Logger.Warn("the objects of this data directory were in an etcd until now; "+
			"this server begins with an empty store", "data-dir", c.DataDir)
	}
	return dir, nil
}

// keep makes a start final, as the last step before requests are answered: it opens the debug socket, and writes the
// kubeconfig and the record of the data directory. The server can serve all that it has on a full disk, and the files
// of an earlier start may be there.
func (s *Server) keep(ctx context.Context, dir *datadir.Dir) error {
	c := &s.config
	err := s.profile()
	if err != nil {
		return err
	}
	if c.WriteKubeconfig != "" {
		err = kubeconfig.Write(ctx, c.WriteKubeconfig, s.entry(s.externalURL()))
	}
	if err == nil {
		err = dir.Keep()
	}
	c.warnOfKeys()
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		c.Logger.Warn("the disk is full: the administrator's kubeconfig and what was made are not recorded", "error", err)
		return nil
	}
	return err
}

// warnOfKeys warns of private keys that every user of the machine can read.
func (c *Config) warnOfKeys() {
	files := []string{c.TLSKeyFile, c.ServiceAccounts.SigningKeyFile, c.WriteKubeconfig}
	if c.DataDir != "" {
		for _, pattern := range []string{"*.key", "front-proxy/*.key"} {
			found, err := filepath.Glob(c.inDataDir("pki", pattern))
			if err == nil {
				files = append(files, found...)
			}
		}
	}
	for _, file := range files {
		if file == "" {
			continue
		}
		const others = 0o007
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&others != 0 {
			c.Logger.Warn("every user of this machine can use a private key; chmod 600 takes it from them", "file", file,
				"mode", info.Mode().Perm().String())
		}
	}
}

// entry is the administrator's entry of a kubeconfig, for a server at a URL.
func (s *Server) entry(url string) *kubeconfig.Entry {
	name := cmp.Or(s.config.ContextName, DefaultContext)
	authority, admin := s.certificates.administrator()
	return &kubeconfig.Entry{Name: name, User: name + "-admin", Server: url, Authority: authority,
		Cert: admin.Cert, Key: admin.Key, Use: s.config.SetCurrentContext}
}

// externalURL is the URL in the kubeconfig: it has the host of --external-hostname, for which the certificate is valid.
func (s *Server) externalURL() string {
	host := s.config.externalHost()
	if host == "" {
		return s.URL()
	}
	return "https://" + net.JoinHostPort(host, strconv.Itoa(s.port()))
}

// externalHost is the host in --external-hostname, without a port; "" if there is none, or if no URL can have it.
func (c *Config) externalHost() string {
	host := c.ExternalHostname
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if u, err := url.Parse("https://" + net.JoinHostPort(host, "443")); host == "" || err != nil || u.Hostname() != host {
		return ""
	}
	return host
}
