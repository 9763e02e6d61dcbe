package discovery

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"plinth/internal/engine"
	"plinth/internal/features"
	"plinth/object"
	"plinth/schema"
)

// Config configures Documents.
type Config struct {
	Registry *engine.Registry
	// Remotes returns the group versions that backends serve, in a slice that does not change. Nil: there are none.
	Remotes func() []*Remote
	// Local returns the APIServices without a service. Nil: none has been written.
	Local func() *Local
	// Peers returns what other servers serve that may serve what this one does not; the result is nil while none is
	// known. Nil: others are not asked.
	Peers   func() *Peers
	Version Version
	// ServerAddress is the host and port in the document of /api.
	ServerAddress string
	// Models is called for each document. The Finder is garbage once the document is printed, and so are the types that
	// it has compiled. If Models is nil or the Finder returns nil, a type that is not the type of a resource is not
	// described.
	Models   func() Finder
	Features features.Set
	// AccountPages says that the documents are served by which tokens of service accounts are verified.
	AccountPages bool
}

// Finder finds a built-in type by its OpenAPI name: a kind, a list, the options of requests, Status and others. It
// returns nil if it does not know the name.
type Finder = func(model string) *schema.Type

// Documents creates and keeps the documents. Its methods may be called concurrently.
type Documents struct {
	registry    *engine.Registry
	remotes     func() []*Remote
	local       func() *Local
	peers       func() *Peers // may be nil
	version     Version
	versionJSON []byte // the document of /version
	address     string
	models      func() Finder
	noHashes    bool
	media       *mediaTypes
	roots       []*v3Document // see rootPathDocuments

	parameters sync.Map // []*parameter by model, see options

	builtinKinds func() map[string][]gvk // by model
	customKinds  func() map[string][]gvk // kinds of built-in types that documents of custom types refer to
	// builtinModels are the names of all models that the built-in types are described with.
	builtinModels func() map[string]bool

	mu      sync.Mutex
	current *catalog
	merged  atomic.Pointer[merged] // what withPeers has made last

	counters counters
}

// counters count what has been printed. Tests compare them with what has changed.
type counters struct {
	lists      atomic.Int64 // resource lists
	aggregated atomic.Int64 // parts of aggregated discovery
	openAPI    atomic.Int64 // OpenAPI v3 documents, including those of single paths
	sections   atomic.Int64 // sections of OpenAPI v2
	catalogs   atomic.Int64 // catalogs made
	// Requests for aggregated discovery: answered with what was merged before, or with what was merged for it, and those
	// for this server alone.
	mergedBefore, mergedNow, noPeer atomic.Int64
}

// Merges are how often a client got what other servers serve, too, from a document that was made before, and from one
// that was made then; noPeer is how often it wanted to know what this server serves alone.
func (d *Documents) Merges() (before, now, noPeer int64) {
	return d.counters.mergedBefore.Load(), d.counters.mergedNow.Load(), d.counters.noPeer.Load()
}

// Aggregations is how many times the groups of the server and of its backends were put together, because some of them
// had changed when a client asked for a document.
func (d *Documents) Aggregations() int64 { return d.counters.catalogs.Load() }

// New returns Documents that have printed nothing yet.
func New(c Config) *Documents {
	if c.Models == nil {
		c.Models = func() Finder { return func(string) *schema.Type { return nil } }
	}
	if c.Remotes == nil {
		c.Remotes = func() []*Remote { return nil }
	}
	if c.Local == nil {
		c.Local = func() *Local { return nil }
	}
	d := &Documents{
		registry: c.Registry, remotes: c.Remotes, local: c.Local, peers: c.Peers, version: c.Version,
		versionJSON: object.AppendJSON(nil, c.Version.value()), address: c.ServerAddress, models: c.Models,
		noHashes: !c.Features.On(features.StorageVersionHash),
		media:    mediaTypesOf(!c.Features.On(features.CBORServingAndStorage)), roots: rootPathDocuments(c.AccountPages),
	}
	d.builtinKinds = sync.OnceValue(func() map[string][]gvk {
		kinds := map[string][]gvk{}
		for _, r := range c.Registry.Now().Builtin() {
			kinds[r.Model] = append(kinds[r.Model], gvk{r.Group, r.Version, r.Kind})
		}
		return kinds
	})
	d.builtinModels = sync.OnceValue(func() map[string]bool { return d.namesOfModels(c.Registry.Now().Builtin()) })
	d.customKinds = sync.OnceValue(func() map[string][]gvk {
		var versions []*groupVersion
		for _, served := range engine.NewRegistry(c.Registry.Now().Builtin()).Now().GroupVersions() {
			switch served.Group {
			case "apiextensions.k8s.io", "apiregistration.k8s.io": // not in the reference's scheme for custom types
			default:
				versions = append(versions, newGroupVersion(served))
			}
		}
		return groupVersionKinds(versions)
	})
	return d
}

// Document is one document in one media type. It is shared and must not be changed.
type Document struct {
	MediaType string
	ETag      string // without quotes; "" if the document has none
	// URL is that of this exact version: its path with its hash. A request with another hash is redirected
	// there (301), and the response to one with this hash may be cached forever. "" if the document has no such URL.
	URL string
	// Exactly one of the two is set. Large documents are kept compressed only; Plain works for both.
	Body, Gzip []byte
}

// plainLimit is the size above which a document is kept compressed only. All discovery documents of the built-in types
// are smaller.
const plainLimit = 32 << 10

// Plain returns the uncompressed document.
func (d *Document) Plain() ([]byte, error) {
	if d.Gzip == nil {
		return d.Body, nil
	}
	var b bytes.Buffer
	_, err := d.WriteTo(&b)
	return b.Bytes(), err
}

// WriteTo writes the uncompressed document without having all of it in memory.
func (d *Document) WriteTo(w io.Writer) (int64, error) {
	if d.Gzip == nil {
		n, err := w.Write(d.Body)
		return int64(n), err
	}
	r := readers.Get().(*gzip.Reader)
	defer readers.Put(r)
	if err := r.Reset(bytes.NewReader(d.Gzip)); err != nil {
		return 0, fmt.Errorf("discovery: %w", err)
	}
	return io.Copy(w, r)
}

// Compressors and decompressors are reused, because one takes more memory than most documents: a compressor more than
// 1 MiB.
var (
	readers = sync.Pool{New: func() any { return new(gzip.Reader) }}
	writers = sync.Pool{New: func() any {
		w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is a valid one
		return w
	}}
)

// Get returns the document of a URL path in the most preferred media type of an Accept header; "" accepts everything.
// ok is false if this package does not serve the path. The error is an *apierr.Error (406).
func (d *Documents) Get(path, accept string) (doc *Document, ok bool, err error) {
	if rest, found := strings.CutPrefix(path, "/openapi/"); found {
		return d.openAPI(rest, accept)
	}
	// The reference has no trailing slash under /openapi, and allows one everywhere else.
	if len(path) > 1 {
		path = strings.TrimSuffix(path, "/")
	}
	parts := strings.Split(path, "/")
	if parts[0] != "" || len(parts) < 2 {
		return nil, false, nil
	}
	parts = parts[1:]
	switch {
	case parts[0] == "version" && len(parts) == 1:
		doc, err = d.versionDocument(accept)
		return doc, true, err
	case parts[0] == "api" && len(parts) <= 2, parts[0] == "apis" && len(parts) <= 3:
		return d.legacy(parts, accept)
	}
	return nil, false, nil
}

// Paths returns the paths of the discovery documents of all groups and group versions.
func (d *Documents) Paths() []string {
	var paths []string
	for _, gv := range d.catalog().all() {
		group := "/api"
		if gv.group != "" {
			group = "/apis/" + gv.group
		}
		paths = append(paths, group, gv.path())
	}
	return paths
}

// catalog returns the catalog of what is served now.
func (d *Documents) catalog() *catalog {
	types, remotes, local := d.registry.Now(), d.remotes(), d.local()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.current == nil || d.current.types != types || d.current.local != local ||
		!slices.Equal(d.current.remotes, remotes) {
		d.counters.catalogs.Add(1)
		d.current = newCatalog(types, remotes, local, d.current)
	}
	return d.current
}

// Drop drops the documents that have been printed, which are printed again when they are requested next. It keeps their
// hashes, and the sections of custom types, whose definitions would have to be read again.
func (d *Documents) Drop() {
	d.mu.Lock()
	c := d.current
	d.mu.Unlock()
	d.merged.Store(nil)
	if c == nil {
		return
	}
	c.representations.drop()
	for _, p := range d.v3Documents(c) {
		p.drop()
	}
	for _, gv := range c.all() {
		gv.representations.drop()
	}
}

// representations keeps printed documents by a name that is unique among them.
type representations struct {
	mu   sync.Mutex
	made map[string]*Document
}

// get returns the document of this name and prints it on first use. Concurrent callers wait.
func (e *representations) get(name string, make func() *Document) *Document {
	e.mu.Lock()
	defer e.mu.Unlock()
	if doc := e.made[name]; doc != nil {
		return doc
	}
	doc := make()
	if e.made == nil {
		e.made = map[string]*Document{}
	}
	e.made[name] = doc
	return doc
}

func (e *representations) drop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.made = nil
}

// documentBuffer collects a document piece by piece. It holds up to limit bytes uncompressed; beyond that it
// compresses.
type documentBuffer struct {
	limit int // bytes in plain
	plain []byte
	gz    *gzip.Writer // nil while everything fits into plain
	out   bytes.Buffer
}

func (p *documentBuffer) Write(b []byte) (int, error) {
	if p.gz != nil {
		return p.gz.Write(b)
	}
	p.plain = append(p.plain, b...)
	if len(p.plain) > p.limit {
		p.gz = writers.Get().(*gzip.Writer)
		p.gz.Reset(&p.out)
		p.gz.Write(p.plain)
		p.plain = nil
	}
	return len(b), nil
}

// document returns what has been written.
func (p *documentBuffer) document(mediaType, etag string) *Document {
	doc := &Document{MediaType: mediaType, ETag: etag}
	if p.gz == nil {
		doc.Body = bytes.Clone(p.plain) // it is kept: without what the slice has room for
		return doc
	}
	p.gz.Close() // to memory: it cannot fail
	writers.Put(p.gz)
	p.gz = nil
	doc.Gzip = bytes.Clone(p.out.Bytes())
	return doc
}

// jsonDocument prints a value as a document. Its ETag is the hash of its bytes.
func jsonDocument(mediaType string, v object.Value) *Document {
	return textDocument(mediaType, object.AppendJSON(nil, v))
}

// textDocument makes a document of a text. Its ETag is the hash of the text.
func textDocument(mediaType string, text []byte) *Document {
	p := &documentBuffer{limit: plainLimit}
	p.Write(text)
	return p.document(mediaType, fmt.Sprintf("%X", sha256.Sum256(text)))
}
