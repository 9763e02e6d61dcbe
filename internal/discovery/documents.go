package discovery

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"

	"plinth/internal/engine"
	"plinth/object"
	"plinth/schema"
)

// Config is what Documents are made of.
type Config struct {
	Registry *engine.Registry
	Version  Version
	// ServerAddress is the host and port that clients may use to reach this server, told to those who ask for /api.
	ServerAddress string
	// Model finds a type that no resource has as its own by its OpenAPI name: the lists of kinds, the options of
	// requests, Status and the like. Nil, or a nil answer: the type is not described.
	Model func(name string) *schema.Type
	// NoCBOR says that there is no CBOR to be had here (gate CBORServingAndStorage).
	NoCBOR bool
}

// Documents makes and keeps the documents. Its methods may be called at the same time.
type Documents struct {
	registry *engine.Registry
	version  Version
	told     []byte // the version as /version tells it
	address  string
	model    func(name string) *schema.Type
	media    *mediaTypes
	roots    []*part // see rootGateways

	parameters sync.Map // []*parameter by model, see options

	builtinKinds func() map[string][]gvk // by model
	customKinds  func() map[string][]gvk // those of the built-in types that documents of custom types name

	mu      sync.Mutex
	current *catalog

	work work
}

// work counts what has been made of group versions: tests hold it against what has changed.
type work struct {
	lists      atomic.Int64 // resource lists
	aggregated atomic.Int64 // their parts of aggregated discovery
	openAPI    atomic.Int64 // printed OpenAPI v3 documents, of other paths, too
	sections   atomic.Int64 // printed parts of OpenAPI v2 documents
}

// New prepares to make documents; it makes none.
func New(c Config) *Documents {
	if c.Model == nil {
		c.Model = func(string) *schema.Type { return nil }
	}
	d := &Documents{
		registry: c.Registry, version: c.Version, told: object.AppendJSON(nil, c.Version.value()),
		address: c.ServerAddress, model: c.Model, media: mediaTypesOf(c.NoCBOR), roots: rootGateways(),
	}
	d.builtinKinds = sync.OnceValue(func() map[string][]gvk {
		kinds := map[string][]gvk{}
		for _, r := range c.Registry.Now().Builtin() {
			kinds[r.Model] = append(kinds[r.Model], gvk{r.Group, r.Version, r.Kind})
		}
		return kinds
	})
	d.customKinds = sync.OnceValue(func() map[string][]gvk {
		var versions []*groupVersion
		for _, served := range engine.NewRegistry(c.Registry.Now().Builtin()).Now().GroupVersions() {
			if served.Group != "apiextensions.k8s.io" { // which clients of the reference's own have no types of
				versions = append(versions, newGroupVersion(served))
			}
		}
		return groupVersionKinds(versions)
	})
	return d
}

// Document is one document in one media type. It is shared: nobody may change it.
type Document struct {
	MediaType string
	ETag      string // without its quotes; "" for a document that has none
	// Location is the URL under which the document never changes: its path and its ETag as the hash. A request with
	// another hash in its query is sent there (301), one with this hash may keep the answer for ever. "" for documents
	// that have no such place.
	Location string
	// Exactly one of the two is there. Large documents are kept compressed only; Plain has the bytes of both.
	Body, Gzip []byte
}

// plainLimit is the size from which on a document is kept compressed only. All discovery documents of the built-in
// types are below it.
const plainLimit = 32 << 10

// Plain is the document uncompressed.
func (d *Document) Plain() ([]byte, error) {
	if d.Gzip == nil {
		return d.Body, nil
	}
	var b bytes.Buffer
	_, err := d.WriteTo(&b)
	return b.Bytes(), err
}

// WriteTo writes the document uncompressed, a piece at a time.
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

// Compressors and decompressors are used again: one takes more memory than most documents, a compressor more than a
// MiB.
var (
	readers = sync.Pool{New: func() any { return new(gzip.Reader) }}
	writers = sync.Pool{New: func() any {
		w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is a valid one
		return w
	}}
)

// Get is the document of a URL path in the best media type that an Accept header names; "" accepts everything. It is
// not ok if the path is none of those that this package serves. The error is an *apierr.Error (406).
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

// catalog is that of the types that are served now.
func (d *Documents) catalog() *catalog {
	types := d.registry.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.current == nil || d.current.types != types {
		d.current = newCatalog(types, d.current)
	}
	return d.current
}

// editions keeps documents that have been made, by a name that tells those of one owner apart.
type editions struct {
	mu   sync.Mutex
	made map[string]*Document
}

// get is the edition of this name, made on first use; who comes at the same time waits for it.
func (e *editions) get(name string, make func() *Document) *Document {
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

// press takes a document in piece by piece, and keeps it plain only as long as it is small.
type press struct {
	limit int // up to which it is
	plain []byte
	gz    *gzip.Writer // nil as long as everything fits into plain
	out   bytes.Buffer
}

func (p *press) Write(b []byte) (int, error) {
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

// document is what has been written.
func (p *press) document(mediaType, etag string) *Document {
	doc := &Document{MediaType: mediaType, ETag: etag}
	if p.gz == nil {
		doc.Body = p.plain
		return doc
	}
	p.gz.Close() // writes to memory: it cannot fail
	writers.Put(p.gz)
	p.gz = nil
	doc.Gzip = bytes.Clone(p.out.Bytes())
	return doc
}

// jsonDocument is a value as a document. Its ETag is the hash of its bytes.
func jsonDocument(mediaType string, v object.Value) *Document {
	return textDocument(mediaType, object.AppendJSON(nil, v))
}

// textDocument is a text as a document, whose ETag is its hash.
func textDocument(mediaType string, text []byte) *Document {
	p := &press{limit: plainLimit}
	p.Write(text)
	return p.document(mediaType, fmt.Sprintf("%X", sha256.Sum256(text)))
}
