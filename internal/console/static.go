package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"errors"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"sync"

	"plinth/internal/apierr"
)

//go:embed web
var web embed.FS

// files are the files of the page, by their paths below /console/.
type files struct{ all map[string]*file }

// file is a file of the page.
type file struct {
	kind           string // the media type
	tag            string // the ETag
	plain, gzipped []byte // gzipped is nil if it would not be smaller
}

// index is the page, which is what every path is that is no file: the paths below /console/ say what is seen.
const index = "index.html"

// theFiles are the files, for the consoles of all planes.
var theFiles = sync.OnceValue(loadFiles)

// loadFiles reads and compresses the files, at the first request for one.
func loadFiles() *files {
	all := &files{all: map[string]*file{}}
	root, err := fs.Sub(web, "web")
	if err == nil {
		err = fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			data, err := fs.ReadFile(root, name)
			if err == nil {
				all.all[name] = newFile(name, data)
			}
			return err
		})
	}
	if err != nil {
		panic(err) // they are in the program
	}
	return all
}

// kinds are the media types of the files, so that they do not depend on the machine.
var kinds = map[string]string{".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".css": "text/css; charset=utf-8", ".svg": "image/svg+xml", ".json": "application/json",
	".txt": "text/plain; charset=utf-8"}

func newFile(name string, data []byte) *file {
	sum := sha256.Sum256(data)
	f := &file{kind: kinds[path.Ext(name)], plain: data, tag: `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`}
	if f.kind == "" {
		f.kind = mime.TypeByExtension(path.Ext(name))
	}
	if f.kind == "" {
		f.kind = "text/plain; charset=utf-8"
	}
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err == nil {
		_, err = z.Write(data)
	}
	if err = errors.Join(err, z.Close()); err == nil && b.Len() < len(data) {
		f.gzipped = b.Bytes()
	}
	return f
}

// index is the page itself. Its links are those at which the client of a request has the files: by the address of its
// own file the code of the page knows where it is.
func (c *Console) index(r *http.Request) *file {
	f := theFiles().all[index]
	if root := at(r); root != Path {
		return &file{kind: f.kind, tag: f.tag,
			plain: bytes.ReplaceAll(f.plain, []byte(`="`+Path+`/`), []byte(`="`+root+`/`))}
	}
	return f
}

// page answers with a file of the page.
func (c *Console) page(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return apierr.NewMethodNotAllowed()
	}
	if r.URL.Path == Path { // the page has relative links
		http.Redirect(w, r, at(r)+"/", http.StatusMovedPermanently)
		return nil
	}
	name := strings.TrimPrefix(r.URL.Path, Path+"/")
	all := theFiles().all
	f := all[name]
	if strings.HasPrefix(name, "static/") && f == nil {
		return apierr.NewNoSuchPath()
	}
	if f == nil {
		f = c.index(r)
	}
	header := w.Header()
	header["Cache-Control"] = []string{"no-cache"} // it is asked for again, and answered by 304
	header["Content-Type"] = []string{f.kind}
	header["Etag"] = []string{f.tag}
	header["Vary"] = []string{"Accept-Encoding"}
	if strings.Contains(r.Header.Get("If-None-Match"), f.tag) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	body := f.plain
	if f.gzipped != nil && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		body = f.gzipped
		header["Content-Encoding"] = []string{"gzip"}
	}
	if r.Method == http.MethodGet {
		_, _ = w.Write(body) // the client has gone, if it fails
	}
	return nil
}
