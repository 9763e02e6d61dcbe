package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"path/filepath"

	"plinth/internal/etcdstub"
)

// locate asks the etcd stub of --etcd-servers for the data directory. If another server responds, such as a real etcd,
// that is an error: objects would be stored elsewhere than the operator expects.
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
	found, err := etcdstub.Find(ctx, at, config)
	if err != nil {
		return fmt.Errorf("--etcd-servers: %s: %w", at, err)
	}
	c.DataDir, c.noSync = filepath.Join(found.DataDir, filepath.Clean("/"+c.EtcdPrefix)), found.NoSync
	c.complete()
	return nil
}

// etcdTLS is the TLS configuration for --etcd-servers.
func (c *Config) etcdTLS() (*tls.Config, error) {
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
