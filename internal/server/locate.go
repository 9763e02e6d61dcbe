package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"plinth/internal/etcdstub"
)

// locate finds out what --etcd-servers is: an etcd, or the etcd stub, which answers with the data directory.
func (c *Config) locate(ctx context.Context) error {
	if len(c.EtcdServers) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.StorageTimeout)
	defer cancel()
	config, err := c.etcdTLS()
	if err != nil {
		return err
	}
	at := c.EtcdServers[0]
	// The stub is one server, and it has an address of TCP; an etcd may have a socket of its host: unix:///PATH.
	if c.onEtcd = len(c.EtcdServers) > 1 || strings.HasPrefix(at, "unix:"); c.onEtcd {
		return nil
	}
	found, err := etcdstub.Find(ctx, at, config)
	if c.onEtcd = errors.Is(err, etcdstub.ErrNoStub); c.onEtcd {
		return nil
	}
	if err != nil {
		return fmt.Errorf("--etcd-servers: %s: %w", at, err)
	}
	if len(c.EtcdServersOverrides) > 0 {
		return errors.New("--etcd-servers-overrides: --etcd-servers is the etcd stub, which names one place for all objects")
	}
	if c.DataDirGiven {
		return errors.New("--data-dir and --etcd-servers: only one of them can say where the objects are")
	}
	c.DataDir, c.noSync = filepath.Join(found.DataDir, filepath.Clean("/"+c.EtcdPrefix)), found.NoSync
	c.complete()
	return nil
}

// etcdTLS is the TLS configuration for --etcd-servers; nil if no flag configures any: a socket of this host may have
// TLS, and has it only then.
func (c *Config) etcdTLS() (*tls.Config, error) {
	if c.EtcdCAFile == "" && c.EtcdCertFile == "" {
		return nil, nil
	}
	config := &tls.Config{}
	if c.EtcdCAFile != "" {
		config.RootCAs = x509.NewCertPool()
		if _, err := appendAuthorities(config.RootCAs, "--etcd-cafile", c.EtcdCAFile); err != nil {
			return nil, err
		}
	}
	if c.EtcdCertFile != "" {
		pair, err := tls.LoadX509KeyPair(c.EtcdCertFile, c.EtcdKeyFile)
		if err != nil {
			return nil, fmt.Errorf("--etcd-certfile: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
