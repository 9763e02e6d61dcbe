package server

import (
	"context"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"plinth/internal/store"
	"plinth/internal/store/etcd"
)

// etcdHealth asks etcd whether it answers, once a second at most: probes of many balancers share an answer.
type etcdHealth struct {
	cluster *etcd.Cluster

	mu    sync.Mutex
	asked time.Time
	err   error
}

// check returns nil if etcd has answered within the last second, or does within timeout.
func (h *etcdHealth) check(ctx context.Context, timeout time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.asked) < time.Second {
		return h.err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if h.err = h.cluster.Check(ctx); ctx.Err() == nil || h.err == nil {
		h.asked = time.Now()
	}
	return h.err
}

// storeHealthy returns why the store cannot be used. timeout is for an etcd.
func (s *Server) storeHealthy(timeout time.Duration) func(context.Context) error {
	if s.etcd == nil {
		return func(context.Context) error { return s.store.Healthy() }
	}
	return etcdHealthy(s.etcd, s.store, timeout)
}

// etcdHealthy returns why a store in an etcd cannot be used.
func etcdHealthy(cluster *etcd.Cluster, of *store.Store, timeout time.Duration) func(context.Context) error {
	health := &etcdHealth{cluster: cluster}
	return func(ctx context.Context) error {
		if err := of.Healthy(); err != nil {
			return err
		}
		return health.check(ctx, timeout)
	}
}

// etcdSize is the size of etcd's files, asked for once in an interval.
type etcdSize struct {
	mu    sync.Mutex
	asked time.Time
	bytes int64
}

func (z *etcdSize) of(cluster *etcd.Cluster, interval time.Duration) int64 {
	z.mu.Lock()
	defer z.mu.Unlock()
	if time.Since(z.asked) >= interval {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if bytes, err := cluster.Size(ctx); err == nil {
			z.bytes, z.asked = bytes, time.Now()
		}
	}
	return z.bytes
}

// storeSize is the size of the files of the store; of a store in memory, that of its live objects.
func (s *Server) storeSize() (bytes int64) {
	if s.etcd != nil {
		return s.etcdSize.of(s.etcd, s.config.EtcdSizeInterval)
	}
	if s.config.Storage == "memory" {
		return s.store.Stats().Bytes
	}
	// A file may go while the directory is read; then it does not count.
	filepath.WalkDir(filepath.Join(s.config.DataDir, "store"), func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return nil
		}
		if info, err := entry.Info(); err == nil {
			bytes += info.Size()
		}
		return nil
	})
	return bytes
}
