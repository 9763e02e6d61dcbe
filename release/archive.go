package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// entry is a file, a directory or a symbolic link of an archive.
type entry struct {
	name  string // ends with a slash if it is a directory
	mode  int64
	body  []byte
	link  string
	owner int // its user and its group
}

// program reads a program into an entry.
func program(name, file string) (entry, error) {
	body, err := os.ReadFile(file)
	return entry{name: name, mode: 0o755, body: body}, err
}

// text is an entry for a file that is no program.
func text(name string, body []byte) entry { return entry{name: name, mode: 0o644, body: body} }

// writeTar writes entries in their order, with nothing of the machine that they were made on.
func writeTar(to io.Writer, at time.Time, entries []entry) error {
	archive := tar.NewWriter(to)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.body)), ModTime: at, Typeflag: tar.TypeReg,
			Uid: e.owner, Gid: e.owner}
		switch {
		case e.link != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, e.link
		case strings.HasSuffix(e.name, "/"):
			h.Typeflag = tar.TypeDir
		}
		if err := archive.WriteHeader(h); err != nil {
			return err
		}
		if _, err := archive.Write(e.body); err != nil {
			return err
		}
	}
	return archive.Close()
}

// tarGz is writeTar, compressed.
func tarGz(at time.Time, entries []entry) ([]byte, error) {
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	if err := writeTar(compressed, at, entries); err != nil {
		return nil, err
	}
	err := compressed.Close()
	return out.Bytes(), err
}

// zipOf is a zip archive of files.
func zipOf(at time.Time, entries []entry) ([]byte, error) {
	var out bytes.Buffer
	archive := zip.NewWriter(&out)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate, Modified: at}
		h.SetMode(os.FileMode(e.mode))
		w, err := archive.CreateHeader(h)
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(e.body); err != nil {
			return nil, err
		}
	}
	err := archive.Close()
	return out.Bytes(), err
}

// documents are what each archive has beside the program.
func (r *release) documents() ([]entry, error) {
	var all []entry
	for _, file := range []string{"README.md", "CHANGELOG.md", "SECURITY.md"} {
		body, err := os.ReadFile(filepath.Join(r.source, file))
		if err != nil {
			return nil, err
		}
		all = append(all, text(file, body))
	}
	if r.licence != nil {
		all = append(all, text("LICENSE", r.licence.text))
	}
	return all, nil
}

// writeArchives writes the archives of a platform, one for each program: it and the documents, without a folder around
// them, as Homebrew and krew take it.
func (r *release) writeArchives(p platform) error {
	if err := r.writeArchive(p, name, r.programs[p].plinth); err != nil {
		return err
	}
	return r.writeArchive(p, cloudName, r.programs[p].cloud)
}

func (r *release) writeArchive(p platform, of, file string) error {
	one, err := program(p.exe(of), file)
	if err != nil {
		return err
	}
	documents, err := r.documents()
	if err != nil {
		return err
	}
	write := tarGz
	if p.zip {
		write = zipOf
	}
	body, err := write(r.date, append([]entry{one}, documents...))
	if err != nil {
		return err
	}
	return r.put(p.archive(of, r.version), body)
}

// put writes a file of the release and notes its sums.
func (r *release) put(file string, body []byte) error {
	short, long := sha256.Sum256(body), sha512.Sum512(body)
	r.sums[file] = map[string]string{"sha256": hex.EncodeToString(short[:]), "sha512": hex.EncodeToString(long[:])}
	at := filepath.Join(r.out, filepath.FromSlash(file))
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	return os.WriteFile(at, body, 0o644)
}

// putFile is put for a file that a library has written.
func (r *release) putFile(file, from string) error {
	body, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return r.put(file, body)
}

// writeSums writes the sums of all other files, in the form of sha256sum and sha512sum.
func (r *release) writeSums() error {
	var names []string
	for file := range r.sums {
		names = append(names, file)
	}
	slices.Sort(names)
	for _, kind := range []string{"sha256", "sha512"} {
		var lines strings.Builder
		for _, file := range names {
			fmt.Fprintf(&lines, "%s  %s\n", r.sums[file][kind], file)
		}
		at := filepath.Join(r.out, strings.ToUpper(kind)+"SUMS")
		if err := os.WriteFile(at, []byte(lines.String()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// url is where a file of the release will be.
func (r *release) url(file string) string { return r.files + "/" + path.Base(file) }
