package admission

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// static makes the name of a configuration one of static configurations.
func static(text, name string) string {
	return strings.Replace(text, `"metadata":{"name":"`+name+`"`, `"metadata":{"name":"`+name+`.static.k8s.io"`, 1)
}

// safeLog is the text of a log that is written meanwhile.
type safeLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *safeLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *safeLog) has(part string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), part)
}

// Configurations in files precede those of the API, are asked about configurations of admission, too, and are loaded
// again when a file has changed.
//
// SPEC: AUTH-3
func TestStaticWebhooks(t *testing.T) {
	refused := ""
	h := newHooks(t, func(path string, _ map[string]any) string {
		if path == refused {
			return `{"allowed":false}`
		}
		return `{"allowed":true}`
	})
	dir := t.TempDir()
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	any := func(text string) string { return strings.Replace(text, `["configmaps"]`, `["*"]`, 1) }
	write("b.yaml", static(h.configuration("Mutating", "z", "z", ""), "z")+"\n---\n"+
		any(static(h.configuration("Mutating", "y", "y", ""), "y")))
	write("ignored.txt", "not a manifest")
	settings, _ := json.Marshal(map[string]string{"apiVersion": "apiserver.config.k8s.io/v1",
		"kind": "WebhookAdmissionConfiguration", "staticManifestsDir": dir})
	var follow func(context.Context)
	log := &safeLog{}
	e, registry := newEngineWith(t, Config{Configurations: map[string][]byte{"MutatingAdmissionWebhook": settings},
		Logger: slog.New(slog.NewTextHandler(log, nil)), Follow: func(run func(context.Context)) { follow = run }})
	b := &bench{t, e, registry}
	h.paths() // about the namespaces of the test
	b.configure("mutatingwebhookconfigurations", any(h.configuration("Mutating", "a", "a", "")))
	if got := h.paths(); got != "/y" {
		t.Errorf("about a configuration, asked: %q", got)
	}
	create := func(name, want string) {
		t.Helper()
		err := b.createIn("", "configmaps", "ns", `{"metadata":{"name":"`+name+`"}}`, false)
		if (err != nil) != (refused != "") {
			t.Errorf("got %v", err)
		}
		if got := h.paths(); got != want {
			t.Errorf("asked %q, want %q", got, want)
		}
	}
	create("one", "/y /z /a")
	refused = "/y"
	create("two", "/y")
	refused = ""

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { follow(ctx); close(ended) }()
	defer func() { stop(); <-ended }()
	write("b.yaml", static(h.configuration("Mutating", "x", "x", ""), "x"))
	for i, end := 0, time.Now().Add(30*time.Second); ; i++ {
		if err := b.createIn("", "configmaps", "ns", `{"metadata":{"generateName":"n"}}`, false); err != nil {
			t.Fatal(err)
		}
		if got := h.paths(); got == "/x /a" {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the changed file is not loaded")
		}
		time.Sleep(20 * time.Millisecond)
	}
	write("c.yaml", "kind: Pod") // what is loaded stays
	for end := time.Now().Add(30 * time.Second); !log.has("c.yaml"); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the log does not say that a file cannot be read")
		}
	}
	create("three", "/x /a")
}
