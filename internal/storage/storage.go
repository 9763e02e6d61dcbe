// Package storage is where a server has its objects: in files, in memory, or in an etcd, encrypted or not. A server has
// a store either way, and what it can and cannot do with it; it does not know which one it is.
package storage

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"plinth/internal/admission/quota"
	"plinth/internal/backup"
	"plinth/internal/configfile"
	"plinth/internal/engine"
	"plinth/internal/etcdform"
	"plinth/internal/metrics"
	"plinth/internal/store"
	"plinth/internal/store/etcd"
	"plinth/internal/store/filelog"
	"plinth/internal/store/memlog"
	"plinth/internal/store/past"
)

// Config says where the objects are, and how they are kept.
type Config struct {
	// Dir has the files of the embedded store. "", without Etcd.Servers: the objects are in memory.
	Dir    string
	NoSync bool // no fsync: a power cut may lose objects
	Etcd   Etcd // with Servers, the objects are there
	// Files has those of Etcd, and reads them again when they change; nil: they are read once.
	Files *configfile.Files

	Encryption Encryption
	KMSv1      bool   // plugins of version 1 are accepted
	Identity   string // of the server, in labels of metrics
	// HistoryBytes is the size of the watch history on disk.
	HistoryBytes int64
	Past         Past
	Backup       Backup
	// Log has the commits of the store, and Image the objects with which it begins, at a revision of at least
	// ImageAfter. Nil: Dir and Etcd say.
	Log        store.Log
	Image      *store.Image
	ImageAfter int64

	// PlaneResources are the types whose objects stand for planes in the same log (store.Config).
	PlaneResources []string
	// FirstNodePort and LastNodePort are the range of node ports, whose claims are a bitmap in etcd.
	FirstNodePort, LastNodePort int64
	// Registry has the types of the objects, and Define those that are defined by objects.
	Registry *engine.Registry
	Define   engine.Define
	Logger   *slog.Logger
	Now      func() time.Time
}

// Past says what is kept of changes for longer than watches can continue from (package past). Only the embedded store
// with files has one.
type Past struct {
	Dir       string        // has the files
	Retention time.Duration // 0: nothing is kept
	Bytes     int64         // on disk; 0: nothing is kept
	Without   []string      // types of which nothing is kept: RESOURCE, or RESOURCE.GROUP
}

// Validate calls refuse with each error of the configuration.
func (p *Past) Validate(refuse func(format string, args ...any)) {
	if p.Retention < 0 {
		refuse("--history-retention: %s is negative", p.Retention)
	}
	if p.Bytes < 0 {
		refuse("--history-bytes: %d is negative", p.Bytes)
	}
	for _, name := range p.Without {
		if strings.Contains(name, "/") || schema.ParseGroupResource(name).Resource == "" {
			refuse("--history-without: %q is not RESOURCE, or RESOURCE.GROUP", name)
		}
	}
}

// Backup says where the embedded store is copied to, continuously.
type Backup struct {
	URL       string // "": it is not
	Retention time.Duration
	// Document is what the backup says of the server.
	Document backup.Document
}

// Validate calls refuse with each error of the configuration.
func (b *Backup) Validate(refuse func(format string, args ...any)) {
	if b.URL == "" {
		return
	}
	if _, err := backup.OpenBucket(b.URL, nil); err != nil { // nothing is started yet that could say something
		refuse("--backup-url: %w", err)
	}
	if b.Retention <= 0 {
		refuse("--backup-retention: %s is not positive", b.Retention)
	}
}

// ship begins to copy a log.
func (s *Storage) ship(ctx context.Context, c *Config, log *filelog.Log) (past.Source, error) {
	if c.Backup.URL == "" {
		return log, nil
	}
	bucket, err := backup.OpenBucket(c.Backup.URL, func(line string) {
		c.Logger.Warn("the program for object storages says something", "url", c.Backup.URL, "line", line)
	})
	if err == nil {
		s.backup, err = backup.Ship(ctx, backup.Shipping{Bucket: bucket, URL: c.Backup.URL, Log: log, Dir: c.Dir,
			Document: c.Backup.Document, Retention: c.Backup.Retention, Logger: c.Logger, Now: c.Now})
	}
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	s.collectors = append(s.collectors, backupCollectors(s.backup)...)
	return s.backup.Over(), nil
}

// over returns a log that keeps the past of another one, which is closed after an error.
func (p *Past) over(log past.Source, c *Config, sealing store.Sealing) (*past.Log, error) {
	o := past.Options{Retention: p.Retention, Bytes: p.Bytes, NoSync: c.NoSync, Sealing: sealing,
		Logger: c.Logger, Now: c.Now}
	for _, name := range p.Without {
		of := schema.ParseGroupResource(name)
		o.Without = append(o.Without, of.Group+"/"+of.Resource)
	}
	slices.Sort(o.Without)
	over, err := past.Open(p.Dir, log, o)
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return over, nil
}

// unusedPast is a log beside the directory of a past that was kept once, and is not any more.
type unusedPast struct {
	past.Source
	dir string // may not exist
}

// Erase is that of the log. It fails while there are packs: nobody reads them, so they are not rewritten, and a purge
// must not say that all is gone.
func (u unusedPast) Erase(horizon int64, c *store.Checkpoint) error {
	if err := u.Source.Erase(horizon, c); err != nil || u.dir == "" {
		return err
	}
	switch in, err := os.ReadDir(u.dir); {
	case errors.Is(err, fs.ErrNotExist) || err == nil && len(in) == 0:
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("%s has what was kept of the past before --history-retention or --history-bytes was set to 0: "+
		"remove it, and purge again", u.dir)
}

// off says that nothing is kept.
func (p *Past) off() bool { return p.Dir == "" || p.Retention == 0 || p.Bytes == 0 }

// Etcd says which etcd has the objects. Fields are named after the flags --etcd-….
type Etcd struct {
	// Servers are its URLs, and all objects are below Prefix.
	Servers                   []string
	Prefix                    string
	CAFile, CertFile, KeyFile string
	// Overrides are those of --etcd-servers-overrides: "/events#URL;URL" is another etcd for Events.
	Overrides          []string
	Timeout            time.Duration // limits how long a start waits
	MediaType          string        // of the values of built-in types; "": protobuf
	CompactionInterval time.Duration // 0: this server does not compact the history of etcd
	HealthTimeout      time.Duration // of the check etcd
	ReadyTimeout       time.Duration // of the check etcd-readiness
	SizeInterval       time.Duration // how often etcd is asked for its size
	LeaseReuseSeconds  int64         // how long keys that expire share a lease
}

// Encryption says which objects are encrypted, and how.
type Encryption struct {
	ConfigFile string        // "": none
	Reload     bool          // ConfigFile is read again when it changes
	Interval   time.Duration // at which plugins and the file are looked at, in tests; 0: the default
}

// Validate calls refuse with each error of the configuration.
func (e *Etcd) Validate(refuse func(format string, args ...any)) {
	if _, err := e.eventServers(); err != nil {
		refuse("%w", err)
	}
	if len(e.Overrides) > 0 && len(e.Servers) == 0 {
		refuse("--etcd-servers-overrides: there is no --etcd-servers for all other objects")
	}
	if e.MediaType == "application/yaml" {
		refuse("--storage-media-type: application/yaml is not supported; values in YAML are read")
	}
	if (e.CertFile == "") != (e.KeyFile == "") {
		refuse("--etcd-certfile and --etcd-keyfile go together")
	}
	if e.Timeout <= 0 {
		refuse("--storage-initialization-timeout: %s is not positive", e.Timeout)
	}
}

// Validate calls refuse with each error of the configuration.
func (c *Encryption) Validate(refuse func(format string, args ...any)) {
	if c.Reload && c.ConfigFile == "" {
		refuse("--encryption-provider-config-automatic-reload must be set with --encryption-provider-config")
	}
}

// TLS is the TLS configuration of connections; nil if no flag configures any: a socket of this host may have TLS, and
// has it only then. The client certificate is read again when its files change; as in the reference, the authority is
// not.
func (e *Etcd) TLS(files *configfile.Files) (*tls.Config, error) {
	if e.CAFile == "" && e.CertFile == "" {
		return nil, nil
	}
	config := &tls.Config{}
	if e.CAFile != "" {
		text, err := os.ReadFile(e.CAFile)
		if err != nil {
			return nil, fmt.Errorf("--etcd-cafile: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("--etcd-cafile: no certificate in %s", e.CAFile)
		}
	}
	if e.CertFile != "" {
		var pair atomic.Pointer[tls.Certificate]
		if err := files.Use("--etcd-certfile", []string{e.CertFile, e.KeyFile}, func(texts [][]byte) error {
			loaded, err := tls.X509KeyPair(texts[0], texts[1])
			if err == nil {
				pair.Store(&loaded)
			}
			return err
		}); err != nil {
			return nil, err
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair.Load(), nil }
	}
	return config, nil
}

// store is the configuration of a store.
func (c *Config) store() store.Config {
	return store.Config{
		Describe: engine.Describe(c.Registry), HistoryBytes: c.HistoryBytes, Logger: c.Logger, Now: c.Now,
		Charge: (&quota.Charges{}).Of, Rules: quota.Quotas, PlaneResources: c.PlaneResources,
	}
}

// Storage is the store of a server.
type Storage struct {
	Store *store.Store
	// Only on etcd: the cluster, the form of its values, and the bitmap of node ports in it, which is at PortRange.
	Cluster   *etcd.Cluster
	Form      *etcdform.Form
	NodePorts *etcdform.NodePorts

	config     Config
	files      *filelog.Log      // nil: Store has none
	backup     *backup.Shipper   // nil: it is not copied
	encryption *encryptionAtRest // nil: nothing is encrypted
	elsewhere  *elsewhere        // nil: Store has all objects
	size       etcdSize
	collectors []prometheus.Collector
}

// Open opens it. Close is called also after an error.
func Open(ctx context.Context, c Config) (s *Storage, err error) {
	s = &Storage{config: c}
	if s.encryption, err = c.Encryption.open(c.KMSv1, c.Identity, c.Logger); err != nil {
		return s, err
	}
	if s.encryption != nil {
		s.collectors = append(s.collectors, s.encryption.metrics.Collectors()...)
	}
	if len(c.Etcd.Servers) > 0 {
		return s, s.openEtcd(ctx, &c)
	}
	config := c.store()
	switch {
	case c.Log != nil:
		config.Log = c.Log
	case c.Image != nil:
		config.Log = memlog.From(c.Image, c.ImageAfter)
	case c.Dir == "":
		config.Log = memlog.New()
	default:
		config.Sealing = s.sealing() // what is only in memory is not encrypted
		log, err := filelog.Open(c.Dir, filelog.Options{Logger: c.Logger, NoSync: c.NoSync, Sealing: config.Sealing})
		if err != nil {
			return s, err
		}
		s.files = log
		source, err := s.ship(ctx, &c, log)
		if err != nil {
			return s, err
		}
		if config.Log = (unusedPast{source, c.Past.Dir}); !c.Past.off() {
			over, err := c.Past.over(source, &c, config.Sealing)
			if err != nil {
				return s, err
			}
			config.Log = over
			s.collectors = append(s.collectors, metrics.Past(over.Stats, c.Now))
		}
	}
	if s.Store, err = store.Open(config); err != nil {
		return s, errors.Join(err, config.Log.Close())
	}
	return s, nil
}

// Plane is the storage of a plane whose objects are in the log of another storage, with the store of the plane. That
// one is closed later.
func (s *Storage) Plane(of *store.Store) *Storage {
	return &Storage{Store: of, config: s.config}
}

// Close closes the store.
func (s *Storage) Close() error {
	if s == nil {
		return nil
	}
	s.backup.Close() // before the log
	errs := []error{s.elsewhere.close()}
	if s.Store != nil {
		errs = append(errs, s.Store.Close())
	}
	if s.Cluster != nil {
		errs = append(errs, s.Cluster.Close())
	}
	s.encryption.Close()
	return errors.Join(errs...)
}

// Freeze returns the log as of now, for a copy; nil: there are no files. The caller has to close it.
func (s *Storage) Freeze() (*filelog.Frozen, error) {
	if s.files == nil {
		return nil, nil
	}
	return s.files.Freeze()
}

// OnEtcd says that the objects are in an etcd, where other servers may write them, too.
func (s *Storage) OnEtcd() bool { return s.Cluster != nil }

// Elsewhere are the stores of kinds that are not in Store, by path.
func (s *Storage) Elsewhere() map[string]*store.Store {
	if s.elsewhere == nil {
		return nil
	}
	return map[string]*store.Store{eventsPath: s.elsewhere.store}
}

// stores are all stores, that of most objects first.
func (s *Storage) stores() []*store.Store {
	if s.elsewhere == nil {
		return []*store.Store{s.Store}
	}
	return []*store.Store{s.Store, s.elsewhere.store}
}

// sealing encrypts the versions that are stored; nil: they are not encrypted.
func (s *Storage) sealing() store.Sealing {
	if s.encryption == nil {
		return nil
	}
	return s.encryption
}

// Recovers says whether Recover has something to do.
func (s *Storage) Recovers() bool { return s.encryption != nil }

// Recover makes objects readable that could not be decrypted, as soon as they can be, and encrypts them with newer
// keys, until ctx ends.
func (s *Storage) Recover(ctx context.Context) {
	if s.encryption != nil {
		s.encryption.recover(ctx, s.stores())
	}
}

// Collectors are what /metrics shows.
func (s *Storage) Collectors() []prometheus.Collector {
	return append(s.collectors, metrics.Stores(s.config.Registry, s.Size, s.stores()...))
}
