package admission

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"plinth/internal/builtin"
	"plinth/internal/configfile"
	"plinth/internal/engine"
	"plinth/object"
)

// A directory is loaded again when it has changed: the objects are replaced if all of them can be read, and what is
// told of it is told once.
//
// SPEC: AUTH-3
func TestManifestsAreFollowed(t *testing.T) {
	kind := engine.NewRegistry(builtin.Resources(builtin.Config{})).Now().Find("", "v1", "configmaps")
	dir := t.TempDir()
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config := func(names ...string) string {
		var all []string
		for _, name := range names {
			all = append(all, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: "+name+staticSuffix+"}\n")
		}
		return strings.Join(all, "---\n")
	}
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // of notes
		var notes []string
		note := func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			notes = append(notes, fmt.Sprintf(format, args...))
		}
		hashes := map[string]int{}
		log := &safeLog{}
		m := &manifests{
			plugin: "P", dir: dir, kinds: []*engine.Resource{kind},
			check: func(string, string, object.Value) error { return nil },
			apply: func(of [][]object.Value) {
				var names []string
				for _, obj := range of[0] {
					names = append(names, strings.TrimSuffix(obj.At("metadata", "name").Str(), staticSuffix))
				}
				note("applied [%s]", strings.Join(names, " "))
			},
		}
		run := func(context.Context) {}
		c := &Config{Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{
			ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			}})), Follow: func(follow func(context.Context)) { run = follow }, Metrics: Metrics{
			Loaded: func(plugin, hash string, err error) {
				if hashes[hash] == 0 {
					hashes[hash] = len(hashes) + 1
				}
				note("loaded %s %d %t", plugin, hashes[hash], err != nil)
			}}}
		want := func(wanted ...string) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			if have := strings.Join(notes, ", "); have != strings.Join(wanted, ", ") {
				t.Errorf("%s\nwant %s", have, strings.Join(wanted, ", "))
			}
			notes = nil
		}
		logged := func(wanted string) {
			t.Helper()
			log.mu.Lock()
			defer log.mu.Unlock()
			if have := log.text.String(); have != wanted {
				t.Errorf("logged %q, want %q", have, wanted)
			}
			log.text.Reset()
		}
		write("a.yaml", config("b", "a"))
		if err := c.loadManifests(m); err != nil {
			t.Fatal(err)
		}
		want("loaded P 1 false", "applied [a b]")
		ctx, stop := context.WithCancel(t.Context())
		go run(ctx)
		next := func() {
			time.Sleep(configfile.Interval)
			synctest.Wait()
		}
		synctest.Wait()
		next()
		want()
		logged("")
		write("b.yaml", config("d", "c"))
		next()
		want("loaded P 2 false", "applied [a b c d]")
		logged("level=INFO msg=\"static manifests were loaded again\" plugin=P objects=4\n")
		next()
		want()
		write("c.yaml", "kind: Pod")
		next()
		want("loaded P 2 true")
		logged("level=ERROR msg=\"static manifests stay as they were\" plugin=P error=\"error loading " +
			filepath.Join(dir, "c.yaml") + ": unsupported resource type Pod of \"\n")
		next()
		want("loaded P 2 true")
		logged("")
		write("c.yaml", "kind: Node")
		next()
		want("loaded P 2 true")
		logged("level=ERROR msg=\"static manifests stay as they were\" plugin=P error=\"error loading " +
			filepath.Join(dir, "c.yaml") + ": unsupported resource type Node of \"\n")
		if err := os.Remove(filepath.Join(dir, "c.yaml")); err != nil {
			t.Fatal(err)
		}
		next() // as it was before the errors
		want("applied [a b c d]")
		logged("level=INFO msg=\"static manifests were loaded again\" plugin=P objects=4\n")
		write("c.yaml", "kind: Node")
		next()
		want("loaded P 2 true")
		logged("level=ERROR msg=\"static manifests stay as they were\" plugin=P error=\"error loading " +
			filepath.Join(dir, "c.yaml") + ": unsupported resource type Node of \"\n")
		if err := os.Rename(dir, dir+".gone"); err != nil {
			t.Fatal(err)
		}
		next()
		want("loaded P 2 true")
		logged(fmt.Sprintf("level=ERROR msg=\"static manifests stay as they were\" plugin=P error=%q\n", fmt.Sprintf(
			"failed to read manifest directory %q: open %s: no such file or directory", dir, dir)))
		if err := os.Rename(dir+".gone", dir); err != nil {
			t.Fatal(err)
		}
		stop()
		synctest.Wait()
		write("c.yaml", config("e"))
		time.Sleep(10 * configfile.Interval)
		want()
	})
}

// A directory that cannot be loaded at the start is an error, and nobody needs to be told or to follow.
//
// SPEC: AUTH-3
func TestManifestsAtTheStart(t *testing.T) {
	kind := engine.NewRegistry(builtin.Resources(builtin.Config{})).Now().Find("", "v1", "configmaps")
	dir := t.TempDir()
	applied := 0
	load := func(m *manifests) error {
		m.plugin, m.dir, m.kinds = "P", dir, []*engine.Resource{kind}
		m.check = func(string, string, object.Value) error { return nil }
		m.apply = func([][]object.Value) { applied++ }
		return (&Config{Metrics: Metrics{}.complete()}).loadManifests(m)
	}
	if err := load(&manifests{}); err != nil || applied != 1 {
		t.Errorf("%v, applied %d", err, applied)
	}
	broken := errors.New("it is broken")
	err := load(&manifests{whole: func([][]object.Value) error { return broken }})
	if !errors.Is(err, broken) || applied != 1 || err.Error() != fmt.Sprintf(
		"failed to load static manifests from %q: it is broken", dir) {
		t.Errorf("%v, applied %d", err, applied)
	}
	// Errors and changes are logged to nobody.
	synctest.Test(t, func(t *testing.T) {
		m, applied := &manifests{plugin: "P", dir: dir, kinds: []*engine.Resource{kind}}, 0
		m.apply = func([][]object.Value) { applied++ }
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		c := &Config{Metrics: Metrics{}.complete(), Follow: func(run func(context.Context)) { go run(ctx) }}
		if err := c.loadManifests(m); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, "a.yaml")
		for i, text := range []string{"kind: Pod", ""} {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			time.Sleep(configfile.Interval)
			synctest.Wait()
			if applied != 1+i {
				t.Errorf("%s: applied %d", text, applied)
			}
		}
	})
}
