package server

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"plinth/internal/etcdstub"
)

// locate finds out what --etcd-servers is: an etcd, or the etcd stub, which answers with the data directory.
func (c *Config) locate(ctx context.Context) error {
	if len(c.Etcd.Servers) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.Etcd.Timeout)
	defer cancel()
	config, err := c.Etcd.TLS(nil)
	if err != nil {
		return err
	}
	at := c.Etcd.Servers[0]
	// The stub is one server, and it has an address of TCP; an etcd may have a socket of its host: unix:///PATH.
	if c.onEtcd = len(c.Etcd.Servers) > 1 || strings.HasPrefix(at, "unix:"); c.onEtcd {
		return nil
	}
	found, err := etcdstub.Find(ctx, at, config)
	if c.onEtcd = errors.Is(err, etcdstub.ErrNoStub); c.onEtcd {
		return nil
	}
	if err != nil {
		return fmt.Errorf("--etcd-servers: %s: %w", at, err)
	}
	if len(c.Etcd.Overrides) > 0 {
		return errors.New("--etcd-servers-overrides: --etcd-servers is the etcd stub, which names one place for all objects")
	}
	if c.DataDirGiven {
		return errors.New("--data-dir and --etcd-servers: only one of them can say where the objects are")
	}
	c.DataDir, c.noSync = filepath.Join(found.DataDir, filepath.Clean("/"+c.Etcd.Prefix)), found.NoSync
	c.complete()
	return nil
}
