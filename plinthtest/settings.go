package plinthtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"plinth/internal/addresses"
	"plinth/internal/admission"
	"plinth/internal/auth"
	"plinth/internal/auth/serviceaccount"
	"plinth/internal/authz"
	"plinth/internal/builtin"
	"plinth/internal/engine"
	"plinth/internal/features"
	"plinth/internal/httpapi"
	"plinth/internal/initial"
	"plinth/internal/nodes"
	"plinth/internal/plane"
	"plinth/internal/storage"
)

// What is the same for all planes, as plinth serve has it.
const (
	securePort        = 443 // in what the plane says of itself: nothing listens there
	tolerationSeconds = 300
	historyBytes      = 512 << 20
)

// settings are what images and the planes that begin with them have in common.
type settings struct {
	gates           []string // NAME=true
	runtimeConfig   []string
	enable, disable []string // admission plugins
	controllers     []string
	hooks           []*hooks
	logger          *slog.Logger
}

// with returns s with those of other in addition.
func (s settings) with(other settings) settings {
	s.gates = slices.Concat(s.gates, other.gates)
	s.runtimeConfig = slices.Concat(s.runtimeConfig, other.runtimeConfig)
	s.enable, s.disable = slices.Concat(s.enable, other.enable), slices.Concat(s.disable, other.disable)
	s.controllers = slices.Concat(s.controllers, other.controllers)
	s.hooks = slices.Concat(s.hooks, other.hooks)
	if other.logger != nil {
		s.logger = other.logger
	}
	return s
}

// key identifies the settings on which the objects of a new server depend.
func (s *settings) key() string {
	return fmt.Sprintf("%q %q %q %q", s.gates, s.runtimeConfig, s.enable, s.disable)
}

// runs says whether a controller is on by name or by "*".
func (s *settings) runs(controller string) bool {
	return slices.Contains(s.controllers, controller) || slices.Contains(s.controllers, "*")
}

// watchTime is the least time of a watch without timeoutSeconds: it lasts as long as the plane. As in kube-apiserver
// the time is random above that, and a test must not depend on it.
const watchTime = 10 * 365 * 24 * time.Hour

// bubbleBookmarks is the time between bookmarks in a bubble, where years may pass. No connection breaks there unless
// a test wants it.
const bubbleBookmarks = 10 * time.Minute

// none enables no controller: in a list without "*", only those that are named are on.
const none = "-namespace-controller"

// config is the configuration of a plane with these settings, without controllers and webhooks. It begins with an
// image; nil: with the objects of a new plane. No revision that it gives out is before after. now is its clock; nil:
// time.Now.
func (s *settings) config(bubble bool, image *plane.Image, after int64, now func() time.Time) (*plane.Config, error) {
	logger := s.logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	gates, ignored, err := features.Parse(strings.Join(s.gates, ","))
	if err != nil {
		return nil, fmt.Errorf("feature gates: %w", err)
	}
	if len(ignored) > 0 {
		logger.Warn("feature gates that mean nothing here are ignored", "gates", ignored)
	}
	authority, err := authz.New(authz.FromModes([]authz.Mode{authz.RBAC}, nil),
		authz.Options{Logger: logger, Features: gates})
	if err != nil {
		return nil, err
	}
	services, err := new(addresses.Flags).Config()
	if err != nil {
		return nil, err
	}
	off := slices.Clone(s.disable)
	if !s.runs("serviceaccount-controller") && !slices.Contains(s.enable, "ServiceAccount") {
		off = append(off, "ServiceAccount")
	}
	selection := admission.Selection{Enabled: s.enable, Disabled: off}
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	selection.Validate(refuse)
	plane.Controllers(s.controllers).Validate(refuse)
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	k := sharedKeys(bubble)
	c := &plane.Config{
		Features: gates, Releases: features.Current, Versions: builtin.RuntimeConfig{Pairs: s.runtimeConfig}, Now: now,
		Logger: logger, Image: image,
		Addresses: services, Self: initial.Self{Port: securePort,
			Trusted: func() (clients, proxies []byte) { return k.authority.PEM, nil }},
		Address: "localhost:" + strconv.Itoa(securePort), Authority: authority,
		Authentication: auth.Config{Clients: auth.NewAuthorities(k.authority.Certificate),
			Audiences: []string{serviceaccount.DefaultIssuer}},
		Accounts: plane.Accounts{Keys: k.account, Static: k.account, Issuers: []string{serviceaccount.DefaultIssuer},
			Lookup: true, Extend: true},
		Signer: plane.Signer{Certificate: k.authority.Certificate, Key: k.authority.Key, Bundle: k.authority.PEM},
		Admission: admission.Config{Selection: selection,
			NotReadyTolerationSeconds: tolerationSeconds, UnreachableTolerationSeconds: tolerationSeconds},
		GarbageCollection: true, Controllers: plane.Controllers{none},
		Nodes:  nodes.Config{Kubelets: nodes.DefaultKubelets()},
		Limits: plane.Limits{Fairness: true, Reading: 400, Writing: 200},
		HTTP:   httpapi.Config{RequestTimeout: time.Minute, MinRequestTimeout: watchTime},
	}
	if bubble {
		c.HTTP.BookmarkInterval = bubbleBookmarks
	}
	c.Storage = func(ctx context.Context, types *engine.Registry, define engine.Define) (*storage.Storage, error) {
		return storage.Open(ctx, storage.Config{Image: image.State(), ImageAfter: after, HistoryBytes: historyBytes,
			FirstNodePort: c.Addresses.FirstPort, LastNodePort: c.Addresses.LastPort,
			Registry: types, Define: define, Logger: logger, Now: now})
	}
	return c, nil
}
