package planes

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/internal/planes/kind"
	"plinth/internal/store"
	"plinth/object"
)

// What a plane has and costs changes with every write in it. The status of its object follows in steps, so that a
// thousand busy planes do not make a thousand more writes a second: at the latest when somebody reads the objects of
// planes, but not more often than each second, and only if it differs by something.

const (
	// refreshEvery is how often objects are brought up to date because somebody reads them, and refreshMost how many.
	refreshEvery = time.Second
	refreshMost  = 64
	// keepEvery is how often they are in any case, for those who watch them.
	keepEvery = 5 * time.Second
	// statusManager is who owns these fields.
	statusManager = "plinth"
)

// record is what this process knows of a plane since it has used it first.
type record struct {
	requests int64
	written  kind.Usage // in the status of its object, if read is set
	read     bool
	rung     time.Time // its last alarm
}

// usage is what a plane has and costs. The caller holds mu.
func (p *Planes) usage(s *store.Store) kind.Usage {
	of := s.Usage()
	u := kind.Usage{Objects: int64(of.Objects), Bytes: of.Bytes, Memory: of.Own + of.HistoryMemory}
	if r := p.records[s.ID()]; r != nil {
		u.Requests = r.requests
	}
	return u
}

// Refresh is kind.Config.Refresh.
func (p *Planes) Refresh(ctx context.Context) {
	now := p.config.Now()
	p.mu.Lock()
	due := now.Sub(p.refreshed) >= refreshEvery
	if due {
		p.refreshed = now
	}
	p.mu.Unlock()
	if due {
		p.writeUsage(ctx, refreshMost)
	}
}

// writeUsage writes the status of up to so many planes of which it is not up to date.
func (p *Planes) writeUsage(ctx context.Context, most int) {
	sn, err := p.config.First.Store.Snapshot(0)
	if err != nil {
		return
	}
	sn.Ascend(kind.Path, "", "", func(v *store.Version) bool {
		s, err := p.config.First.Store.Plane(v.Sidecar.UID)
		if err != nil {
			return true // it has ended meanwhile
		}
		p.mu.Lock()
		r := p.records[v.Sidecar.UID]
		if r == nil {
			r = &record{}
			p.records[v.Sidecar.UID] = r
		}
		if !r.read { // the process has begun since, and has not written it yet
			if obj, err := engine.ObjectOf(v); err == nil {
				r.written, r.read = kind.UsageOf(obj.At("status")), true
			}
		}
		is := p.usage(s)
		differs := differ(r.written, is)
		p.mu.Unlock()
		if !differs {
			return true
		}
		if err := p.writeStatus(ctx, v.Key.Name, is); err != nil {
			if !apierr.Is(err, apierr.NotFound) && ctx.Err() == nil {
				p.config.Logger.Warn("the status of a plane was not written", "plane", v.Key.Name, "error", err)
			}
			return ctx.Err() == nil
		}
		p.mu.Lock()
		r.written, r.read = is, true
		p.mu.Unlock()
		most--
		return most > 0 && ctx.Err() == nil
	})
}

// differ says whether a status is out of date: by an object, by a tenth of the bytes, or by twice the requests.
func differ(written, is kind.Usage) bool {
	apart := func(a, b int64) bool { return a > b+b/10 || b > a+a/10 }
	return written.Objects != is.Objects || apart(written.Bytes, is.Bytes) || is.Requests > 2*written.Requests ||
		is.Requests < written.Requests // the process has begun anew
}

// writeStatus writes what a plane has and costs into its object.
func (p *Planes) writeStatus(ctx context.Context, name string, u kind.Usage) error {
	first := p.config.First
	r := first.Registry.Builtin().Find(kind.Group, kind.Version, kind.Plural)
	rq := &engine.Request{Resource: r, Name: name, Subresource: r.Subresource("status"), FieldManager: statusManager,
		Force: true}
	_, err := first.Engine.Apply(ctx, rq, object.Parsed{Value: object.Fields(
		"apiVersion", object.StringOf(r.APIVersion()), "kind", object.StringOf(r.Kind),
		"metadata", object.Fields("name", object.StringOf(name)), "status", kind.WithUsage(object.MapOf(), u))})
	return err
}

// keep writes the status of planes until the process closes.
func (p *Planes) keep() {
	ticker := time.NewTicker(keepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-p.closing.Done():
			return
		case <-ticker.C:
			p.writeUsage(p.closing, 4*refreshMost)
		}
	}
}

// largest is how many planes a list of the page has.
const largest = 10

// Page is a page for the administrators of the process: how many planes there are, and the largest.
func (p *Planes) Page() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte(p.report())) // the client is gone if it fails
	})
}

// sized is a plane and what it costs.
type sized struct {
	name string
	kind.Usage
}

func (p *Planes) report() string {
	var all []sized
	sn, err := p.config.First.Store.Snapshot(0)
	if err != nil {
		return err.Error() + "\n"
	}
	sn.Ascend(kind.Path, "", "", func(v *store.Version) bool {
		if s, err := p.config.First.Store.Plane(v.Sidecar.UID); err == nil {
			p.mu.Lock()
			all = append(all, sized{v.Key.Name, p.usage(s)})
			p.mu.Unlock()
		}
		return true
	})
	var text strings.Builder
	fmt.Fprintf(&text, "planes %d\nopen %d\n", len(all), len(p.all()))
	for _, by := range []struct {
		what string
		of   func(kind.Usage) int64
	}{
		{"objects", func(u kind.Usage) int64 { return u.Objects }},
		{"requests since the start", func(u kind.Usage) int64 { return u.Requests }},
		{"bytes of memory that no other plane has", func(u kind.Usage) int64 { return u.Memory }},
	} {
		slices.SortFunc(all, func(a, b sized) int {
			return cmp.Or(cmp.Compare(by.of(b.Usage), by.of(a.Usage)), cmp.Compare(a.name, b.name))
		})
		fmt.Fprintf(&text, "\nmost %s:\n", by.what)
		for _, n := range all[:min(largest, len(all))] {
			fmt.Fprintf(&text, "%12d %s\n", by.of(n.Usage), n.name)
		}
	}
	return text.String()
}
