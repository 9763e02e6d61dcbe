package soak

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/load"
)

const podsPath = "/api/v1/namespaces/soak/pods"

// ledger holds what the server has acknowledged: the hash of every object in a response.
type ledger struct {
	mu      sync.Mutex
	objects map[string][sha256.Size]byte
}

func (l *ledger) add(name string, body []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.objects[name] = sha256.Sum256(bytes.TrimSpace(body))
}

// check compares the ledger with the server's objects: GET and LIST return every acknowledged object, byte for byte as
// in the response. Objects that were written but not acknowledged may exist, if they are complete.
func (l *ledger) check(t *testing.T, client *load.Client) {
	t.Helper()
	body, err := client.Do(t.Context(), load.Request{Method: http.MethodGet, Path: podsPath})
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Spec     struct{ Containers []json.RawMessage }
		}
	}
	if err := json.Unmarshal(body, &list); err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, item := range list.Items {
		if listed[item.Metadata.Name] {
			t.Errorf("%s is listed twice", item.Metadata.Name)
		}
		listed[item.Metadata.Name] = true
		if len(item.Spec.Containers) != 2 {
			t.Errorf("%s is half there", item.Metadata.Name)
		}
	}
	var names []string
	for name := range l.objects {
		names = append(names, name)
		if !listed[name] {
			t.Errorf("%s was acknowledged and is not there", name)
		}
	}
	err = load.Each(16, len(names), func(i int) error {
		got, err := client.Do(t.Context(), load.Request{Method: http.MethodGet, Path: podsPath + "/" + names[i]})
		if err != nil {
			return fmt.Errorf("%s: %w", names[i], err)
		}
		if sha256.Sum256(bytes.TrimSpace(got)) != l.objects[names[i]] {
			return fmt.Errorf("%s is not what was acknowledged, but\n%s", names[i], got)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	// Unacknowledged writes that succeeded are added to the ledger.
	for name := range listed {
		if _, known := l.objects[name]; known {
			continue
		}
		got, err := client.Do(t.Context(), load.Request{Method: http.MethodGet, Path: podsPath + "/" + name})
		if err != nil {
			t.Errorf("%s is listed and cannot be read: %v", name, err)
			continue
		}
		l.add(name, got)
	}
}

// SPEC: STORE-1: Pods from 32 connections, then kill -9 in the middle of as many more, ten times over.
func TestKill(t *testing.T) {
	if harness.Target() == harness.Reference {
		return // it restarts on another port, and its durability is etcd's
	}
	pods, kills := scale(400, 5000), scale(4, 10)
	server := harness.RunTarget(t)
	client := load.New(server, 32)
	if err := client.Namespace(t.Context(), "soak"); err != nil {
		t.Fatal(err)
	}
	l := &ledger{objects: map[string][sha256.Size]byte{}}
	create := func(round int) error {
		return load.Each(32, pods, func(i int) error {
			name := fmt.Sprintf("pod-%02d-%05d", round, i)
			body, err := client.Do(t.Context(), load.Request{Method: http.MethodPost, Path: podsPath,
				Body: load.Pod("soak", name, i)})
			if err != nil {
				return err
			}
			l.add(name, body)
			return nil
		})
	}
	began := time.Now()
	if err := create(0); err != nil {
		t.Fatal(err)
	}
	usual := time.Since(began)
	for round := 1; round <= kills; round++ {
		before := len(l.objects)
		failed := make(chan error, 1)
		go func() { failed <- create(round) }()
		time.Sleep(usual/5 + time.Duration(rand.Int64N(int64(usual/2))))
		server.Kill()
		err := <-failed
		client.Close()
		if err := server.Restart(); err != nil {
			t.Fatal(err)
		}
		t.Logf("kill %d: %d of %d Pods were acknowledged (%v), restart in %s with %d objects",
			round, len(l.objects)-before, pods, err != nil, server.Ready.Round(time.Millisecond), len(l.objects))
		l.check(t, client)
		if t.Failed() {
			return
		}
	}
}
