package outside

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"path"
	"sort"
)

// Option configures a plane.
type Option func(*options)

// options are those of one plane: what the process is asked for.
type options struct {
	Image         string    `json:"image,omitempty"`
	Definitions   []string  `json:"definitions,omitempty"`
	Objects       []string  `json:"objects,omitempty"`
	Controllers   []string  `json:"controllers,omitempty"`
	FeatureGates  []string  `json:"featureGates,omitempty"`
	RuntimeConfig []string  `json:"runtimeConfig,omitempty"`
	Admission     []string  `json:"admission,omitempty"`
	Webhooks      []webhook `json:"webhooks,omitempty"`

	servers []*http.Server
	errs    []error
}

type webhook struct {
	URL            string   `json:"url"`
	Configurations []string `json:"configurations"`
}

// From begins with the objects of an image, and with the settings of its plane. Later options add to them.
func From(image *Image) Option { return func(o *options) { o.Image = image.name } }

// CRDs installs the CustomResourceDefinitions in the files of fsys that match the patterns (of io/fs.Glob); without
// patterns, in all YAML and JSON files. Of two with one name the last one counts.
func CRDs(fsys fs.FS, globs ...string) Option {
	return func(o *options) {
		names, err := files(fsys, globs)
		for _, name := range names {
			text, readErr := fs.ReadFile(fsys, name)
			err = errors.Join(err, readErr)
			o.Definitions = append(o.Definitions, string(text))
		}
		if err == nil && len(names) == 0 {
			err = errors.New("there are no files")
		}
		if err != nil {
			o.errs = append(o.errs, fmt.Errorf("CRDs: %w", err))
		}
	}
}

// files are the names of the files that match, sorted, each once.
func files(fsys fs.FS, globs []string) (names []string, err error) {
	seen := map[string]bool{}
	for _, glob := range globs {
		matches, err := fs.Glob(fsys, glob)
		if err == nil && len(matches) == 0 {
			err = errors.New("no file matches")
		}
		if err != nil {
			return nil, fmt.Errorf("%q: %w", glob, err)
		}
		for _, name := range matches {
			seen[name] = true
		}
	}
	if len(globs) == 0 {
		err = fs.WalkDir(fsys, ".", func(name string, _ fs.DirEntry, err error) error {
			switch path.Ext(name) {
			case ".yaml", ".yml", ".json":
				seen[name] = true
			}
			return err
		})
	}
	for name := range seen {
		names = append(names, name)
	}
	sort.Strings(names)
	return names, err
}

// Objects creates objects, in their order; each text may have several documents. Those that have a status get it, too.
func Objects(yaml ...[]byte) Option {
	return func(o *options) { o.Objects = append(o.Objects, texts(yaml)...) }
}

// Webhooks lets a handler answer as the admission webhooks of configurations, and creates these. It also answers as the
// conversion webhooks of definitions that name the same services. Each request has the path of its clientConfig. The
// handler listens at a port of the loopback address until the plane ends.
func Webhooks(h http.Handler, yaml ...[]byte) Option {
	return func(o *options) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			o.errs = append(o.errs, err)
			return
		}
		server := &http.Server{Handler: h}
		go func() { _ = server.Serve(listener) }() // until the plane ends
		o.servers = append(o.servers, server)
		o.Webhooks = append(o.Webhooks, webhook{"http://" + listener.Addr().String(), texts(yaml)})
	}
}

// Controllers runs controllers of Plinth in the plane, by the names that kube-controller-manager has for them; "*" is
// all that Plinth has. Without it none runs.
func Controllers(names ...string) Option {
	return func(o *options) { o.Controllers = append(o.Controllers, names...) }
}

// FeatureGates sets feature gates of kube-apiserver, such as "MutatingAdmissionPolicy=false".
func FeatureGates(gates ...string) Option {
	return func(o *options) { o.FeatureGates = append(o.FeatureGates, gates...) }
}

// RuntimeConfig turns versions of the API on or off, as kube-apiserver's flag --runtime-config: "api/beta=true".
func RuntimeConfig(versions ...string) Option {
	return func(o *options) { o.RuntimeConfig = append(o.RuntimeConfig, versions...) }
}

// Admission turns admission plugins of kube-apiserver on, or off if the name begins with "-": "-LimitRanger".
func Admission(plugins ...string) Option {
	return func(o *options) { o.Admission = append(o.Admission, plugins...) }
}

func texts(all [][]byte) (some []string) {
	for _, text := range all {
		some = append(some, string(text))
	}
	return some
}
