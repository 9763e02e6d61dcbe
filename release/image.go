package main

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// nobody is the user in images of which all that runs may know that it is not root (distroless' nonroot).
const nobody = 65532

// imageFile is the name of the image in the release: an OCI layout in a tar archive.
func (r *release) imageFile() string { return fmt.Sprintf("%s_%s_image.tar", name, r.version) }

// writeImage writes one image for all its platforms. The image has the program, under its three names, a directory for
// its data and one for temporary files.
func (r *release) writeImage() error {
	var index v1.ImageIndex = mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	found := false
	for _, p := range r.platforms {
		if !p.image {
			continue
		}
		found = true
		image, err := r.image(p)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.os, Architecture: p.arch}}})
	}
	if !found {
		return nil
	}
	dir := filepath.Join(r.work, "image")
	at, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	if err := at.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": r.version,
		"io.containerd.image.name":          "docker.io/library/" + name + ":" + r.version,
	})); err != nil {
		return err
	}
	entries, err := folder(dir)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := writeTar(&out, r.date, entries); err != nil {
		return err
	}
	return r.put(r.imageFile(), out.Bytes())
}

// folder returns the files below a directory, sorted.
func folder(dir string) ([]entry, error) {
	var all []entry
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		body, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		at, err := filepath.Rel(dir, path)
		all = append(all, text(filepath.ToSlash(at), body))
		return err
	})
	slices.SortFunc(all, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return all, err
}

func (r *release) image(p platform) (v1.Image, error) {
	plinth, err := program("usr/local/bin/plinth", r.programs[p].plinth)
	if err != nil {
		return nil, err
	}
	var files bytes.Buffer
	if err := writeTar(&files, r.date, []entry{
		{name: "tmp/", mode: 0o1777},
		{name: "usr/", mode: 0o755}, {name: "usr/local/", mode: 0o755}, {name: "usr/local/bin/", mode: 0o755},
		{name: "usr/local/bin/etcd", mode: 0o777, link: name},
		{name: "usr/local/bin/kube-apiserver", mode: 0o777, link: name},
		plinth,
		{name: "var/", mode: 0o755}, {name: "var/lib/", mode: 0o755},
		{name: "var/lib/plinth/", mode: 0o700, owner: nobody},
		{name: "var/run/", mode: 0o755}, {name: "var/run/kubernetes/", mode: 0o700, owner: nobody},
	}); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(files.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	image = mutate.ConfigMediaType(image, types.OCIConfigJSON)
	image, err = mutate.Append(image, mutate.Addendum{Layer: layer, MediaType: types.OCILayer,
		History: v1.History{Created: v1.Time{Time: r.date}, CreatedBy: "make release"}})
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(image, r.config(p, image))
}

// config is the configuration of an image that has its layer.
func (r *release) config(p platform, image v1.Image) *v1.ConfigFile {
	config, err := image.ConfigFile()
	if err != nil {
		panic(err) // of an image in memory
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = p.os, p.arch, v1.Time{Time: r.date}
	config.Config = v1.Config{
		User:         fmt.Sprintf("%d:%d", nobody, nobody),
		Entrypoint:   []string{"/usr/local/bin/plinth"},
		Cmd:          []string{"serve", "--bind-address=0.0.0.0", "--data-dir=/var/lib/plinth"},
		Env:          []string{"PATH=/usr/local/bin", "HOME=/tmp"},
		WorkingDir:   "/tmp",
		ExposedPorts: map[string]struct{}{"6443/tcp": {}},
		Volumes:      map[string]struct{}{"/var/lib/plinth": {}},
		StopSignal:   "SIGTERM",
		Labels: map[string]string{
			"org.opencontainers.image.title":       name,
			"org.opencontainers.image.description": summary,
			"org.opencontainers.image.version":     r.version,
			"org.opencontainers.image.revision":    r.commit,
			"org.opencontainers.image.source":      r.home,
			"org.opencontainers.image.licenses":    r.licenceID(),
		},
	}
	return config
}
