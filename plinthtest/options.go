package plinthtest

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"strings"
	"time"
)

// Option configures a plane.
type Option func(*options)

// options are those of one plane. Options do not fail; their errors are those of New.
type options struct {
	settings
	image       *Image
	definitions []*definitions
	objects     [][]byte
	steps       []func(context.Context, *Plane) error // of Explore
	rest        time.Duration                         // of Explore
	errs        []error
}

// From begins with the objects of an image, and with the settings of its plane. Later options add to them.
func From(image *Image) Option { return func(o *options) { o.image = image } }

// CRDs installs the CustomResourceDefinitions in the files of fsys that match the patterns (of io/fs.Glob); without
// patterns, in all YAML and JSON files. Of two with one name the last one counts. Other objects in these files are
// ignored. They are read once in a process, so
// planes with the same definitions are as fast as those without.
func CRDs(fsys fs.FS, globs ...string) Option {
	return func(o *options) { o.definitions = append(o.definitions, &definitions{fsys: fsys, globs: globs}) }
}

// Objects creates objects, in their order; each text may have several documents. Those that have a status get it,
// too.
func Objects(yaml ...[]byte) Option {
	return func(o *options) { o.objects = append(o.objects, yaml...) }
}

// Webhooks lets a handler answer as the admission webhooks of configurations, and creates these. It also answers as
// the conversion webhooks of definitions that name the same services. The configurations are those that would be
// applied to a cluster; each request has the path of its clientConfig. No certificate and no port is needed.
func Webhooks(h http.Handler, yaml ...[]byte) Option {
	return func(o *options) {
		of, err := newHooks(h, yaml)
		if err != nil {
			o.errs = append(o.errs, err)
			return
		}
		o.hooks = append(o.hooks, of)
		o.objects = append(o.objects, yaml...)
	}
}

// Controllers runs controllers of Plinth in the plane, by the names that kube-controller-manager has for them; "*" is
// all that Plinth has. Without it none runs.
func Controllers(names ...string) Option {
	return func(o *options) { o.controllers = append(o.controllers, names...) }
}

// FeatureGates sets feature gates of kube-apiserver, such as "MutatingAdmissionPolicy=false".
func FeatureGates(gates ...string) Option {
	return func(o *options) { o.gates = append(o.gates, gates...) }
}

// RuntimeConfig turns versions of the API on or off, as kube-apiserver's flag --runtime-config: "api/beta=true".
func RuntimeConfig(versions ...string) Option {
	return func(o *options) { o.runtimeConfig = append(o.runtimeConfig, versions...) }
}

// Admission turns admission plugins of kube-apiserver on, or off if the name begins with "-": "-LimitRanger".
func Admission(plugins ...string) Option {
	return func(o *options) {
		for _, plugin := range plugins {
			name, off := strings.CutPrefix(plugin, "-")
			switch {
			case name == "":
				o.errs = append(o.errs, fmt.Errorf("%q is no admission plugin", plugin))
			case off:
				o.disable = append(o.disable, name)
			default:
				o.enable = append(o.enable, name)
			}
		}
	}
}

// Logger gets what the server logs; without it nothing is logged.
func Logger(l *slog.Logger) Option { return func(o *options) { o.logger = l } }
