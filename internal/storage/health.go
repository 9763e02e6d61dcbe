package storage

import (
	"context"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"plinth/internal/httpapi"
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

// Healthy returns why the store cannot be used. timeout is for an etcd.
func (s *Storage) Healthy(timeout time.Duration) func(context.Context) error {
	if !s.OnEtcd() {
		return func(context.Context) error { return s.Store.Healthy() }
	}
	return etcdHealthy(s.Cluster, s.Store, timeout)
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

// Size is the size of the files of the store; of a store in memory, that of its live objects.
func (s *Storage) Size() (bytes int64) {
	if s.OnEtcd() {
		return s.size.of(s.Cluster, s.config.Etcd.SizeInterval)
	}
	if s.config.Dir == "" {
		return s.Store.Stats().Bytes
	}
	// A file may go while the directory is read; then it does not count.
	filepath.WalkDir(s.config.Dir, func(_ string, entry fs.DirEntry, err error) error {
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

// Checks are the health checks of the store, of plugins that decrypt it, and of its disk.
func (s *Storage) Checks() []httpapi.Check {
	e := &s.config.Etcd
	all := []httpapi.Check{
		{Name: "etcd", Run: s.Healthy(e.HealthTimeout)}, // the name is the reference's
		{Name: "etcd-readiness", ReadyOnly: true, Run: s.Healthy(e.ReadyTimeout)},
	}
	all = append(all, s.elsewhere.checks(e)...)
	all = append(all, s.encryption.checks()...)
	if s.config.Dir != "" {
		all = append(all, diskCheck(s.config.Dir, FreeBytes))
	}
	return all
}

// Members are a health check for each etcd; the store stands in the place of one.
func (s *Storage) Members(timeout time.Duration) []func(context.Context) error {
	all := []func(context.Context) error{s.Healthy(timeout)}
	if e := s.elsewhere; e != nil {
		all = append(all, etcdHealthy(e.cluster, e.store, timeout))
	}
	return all
}
