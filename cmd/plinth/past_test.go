package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"plinth/internal/server"
	"plinth/object"
)

// pastServer is a server with a data directory, and a client with the rights of the administrator.
type pastServer struct {
	*remote
	t          *testing.T
	kubeconfig string
}

func startWithPast(t *testing.T) *pastServer {
	dir := t.TempDir()
	c := server.Defaults()
	c.DataDir, c.SecurePort, c.Planes, c.Logger = dir, 0, true, slog.New(slog.DiscardHandler)
	ctx, stop := context.WithCancel(context.Background())
	ready, out := io.Pipe()
	s, err := server.Start(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, out); out.Close() }()
	go io.Copy(io.Discard, ready)
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	p := &pastServer{t: t, kubeconfig: filepath.Join(dir, "kubeconfig")}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if p.remote, err = connect([]string{p.kubeconfig}); err == nil {
			if _, err = p.get("/readyz"); err == nil {
				return p
			}
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

const pastMaps = "/api/v1/namespaces/default/configmaps"

// request sends a request and returns the resourceVersion of the object in the answer.
func (p *pastServer) request(method, path, manager, body string) string {
	p.t.Helper()
	header := http.Header{"Content-Type": {"application/yaml"}}
	if method == http.MethodPatch {
		header.Set("Content-Type", "application/merge-patch+json")
	}
	text, err := p.send(method, path+"?fieldManager="+url.QueryEscape(manager), []byte(body), header)
	if err != nil {
		p.t.Fatal(err)
	}
	parsed, err := object.ParseJSON(text)
	if err != nil {
		p.t.Fatal(err)
	}
	return parsed.Value.At("metadata", "resourceVersion").Str()
}

// run runs a command on the server, and returns what it prints and its exit code.
func (p *pastServer) run(args ...string) (string, int, error) {
	text, err := plinth(append(args, "--kubeconfig", p.kubeconfig)...)
	code := 0
	if exit := (*exitError)(nil); errors.As(err, &exit) {
		code = exit.code
	} else if err != nil {
		code = 1
	}
	return text, code, err
}

// wants runs a command, and looks for texts in what it prints, its error included.
func (p *pastServer) wants(code int, args []string, texts ...string) string {
	p.t.Helper()
	text, got, err := p.run(args...)
	if err != nil {
		text += err.Error()
	}
	if got != code {
		p.t.Errorf("plinth %s: exit code %d, should be %d: %s", strings.Join(args, " "), got, code, text)
	}
	for _, want := range texts {
		if !strings.Contains(text, want) {
			p.t.Errorf("plinth %s does not say %q:\n%s", strings.Join(args, " "), want, text)
		}
	}
	return text
}

// What the commands say of an object's past, on a server: who has changed it, what differs, and how it goes back.
//
// SPEC: BEY-4
func TestPastOfAnObject(t *testing.T) {
	p := startWithPast(t)
	first := p.request(http.MethodPost, pastMaps, "maker",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {color: red, size: small}}")
	second := p.request(http.MethodPatch, pastMaps+"/settings", "painter", `{"data": {"color": "blue"}}`)
	third := p.request(http.MethodPatch, pastMaps+"/settings", "other", `{"data": {"size": null, "shape": "round"}}`)
	name := "cm/settings"

	p.wants(0, []string{"history", name}, "REVISION", first, second, third, "painter", ".data.color",
		".data.shape -.data.size",
		"created", "plinth-admin")
	p.wants(0, []string{"history", name, "--limit", "1"}, third, "There are older ones")
	p.wants(0, []string{"history", name, "--json"}, `"kind":"History"`, `"patch":{"data":{"color":"blue"}}`)
	p.wants(1, []string{"history", name, "--limit", "0"}, "no number of changes")
	p.wants(1, []string{"history", "cm/nobody"}, `configmaps "nobody" not found`)

	text := p.wants(0, []string{"owners", name, "--history"}, "by plinth-admin with painter",
		"by plinth-admin with other")
	for _, line := range strings.Split(text, "\n") {
		if strings.Contains(line, "color: blue") && !strings.Contains(line, "# "+second+" at 2") {
			t.Errorf("the color is blue since %s: %s", second, line)
		}
	}
	p.wants(0, []string{"owners", name, "--history", "--json"}, `"kind":"HistoryLines"`)
	p.wants(1, []string{"owners", "--history", "-f", "x"}, "--history asks a server")

	p.wants(1, []string{"diff", name}, "-  size: small", "+  shape: round", "--- cm/settings ")
	p.wants(1, []string{"diff", name, "--from", first, "--to", second}, "-  color: red", "+  color: blue")
	p.wants(0, []string{"diff", name, "--from", second, "--to", second})
	p.wants(1, []string{"diff", name, "--from", first, "-o", "json"}, `"change":"modified"`,
		`"patch":{"data":{"color":"blue","shape":"round","size":null}}`)
	p.wants(1, []string{"diff", "cm", "--from", first, "-o", "json"}, `"name":"settings"`)
	p.wants(2, []string{"diff", "cm"}, "--from is missing")
	p.wants(2, []string{"diff", name, "--from", "last week"}, "is no resourceVersion, no time")
	p.wants(2, []string{"diff", "cm/nobody", "--from", first}, "was not there at either moment")
	p.wants(2, []string{"diff", name, "--from", "1h"}, "before what is kept")

	p.wants(1, []string{"undo", name, "--change", second}, "--- cm/settings now", "+  color: red", "--yes writes")
	p.wants(0, []string{"undo", name, "--change", second, "--dry-run"}, "+  color: red")
	p.wants(0, []string{"undo", name, "--change", second, "-y"}, "cm/settings is written: resourceVersion ")
	p.wants(0, []string{"undo", name, "--change", second, "-y"}, "there is nothing to undo")
	p.wants(1, []string{"diff", name, "--from", third}, "+  color: red")
	p.request(http.MethodPatch, pastMaps+"/settings", "other", `{"data": {"color": "green"}}`)
	p.wants(1, []string{"undo", name, "--change", second, "-y"}, `.data.color was "red", became "blue", and is "green"`)
	p.wants(0, []string{"undo", name, "--change", second, "-y", "--force"}, "+  color: red")
	p.wants(0, []string{"undo", name, "--to", first, "-y"}, "+  size: small", "-  shape: round")
	p.wants(0, []string{"diff", name, "--from", first})
	p.wants(1, []string{"undo", name, "--to", first, "--change", second}, "give one of them")

	p.request(http.MethodDelete, pastMaps+"/settings", "", "")
	p.wants(0, []string{"history", name}, "deleted")
	p.wants(1, []string{"diff", name}, "-kind: ConfigMap")
	p.wants(0, []string{"undo", name, "-y"}, "+kind: ConfigMap")
	p.wants(0, []string{"diff", name, "--from", "0s"})

	p.wants(0, []string{"purge", name, "--dry-run"}, "7 versions of cm/settings would be removed", "of 9 changes who has",
		"Note: the object stays as it is", "Note: backups")
	p.wants(1, []string{"purge", name}, "7 versions", "nothing was removed: without a terminal, --yes removes")
	p.wants(1, []string{"diff", name, "--from", first}, "uid: ")
	p.wants(0, []string{"purge", name, "-y"}, "7 versions of cm/settings: removed from the disk")
	p.wants(0, []string{"purge", name, "-y"}, "no version of cm/settings would be")
	p.wants(0, []string{"history", name}, "modified, purged", "deleted, purged", "created, purged",
		first, "painter")
	p.wants(2, []string{"diff", name, "--from", first}, "was purged")
	p.wants(1, []string{"undo", name, "--to", first}, "was purged")
	p.wants(1, []string{"purge", "cm/nobody", "-y"}, `configmaps "nobody" not found`)

	// Another plane has another one of the name.
	p.request(http.MethodPost, "/apis/plinth/v1alpha1/planes", "",
		"{apiVersion: plinth/v1alpha1, kind: Plane, metadata: {name: other}}")
	p.wants(1, []string{"diff", name, "--to", "other@", "--from", "0s"}, "-  color: red", "+++ cm/settings other@now")
}
