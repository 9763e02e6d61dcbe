package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"time"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/load"
)

const (
	hooked, hookedReads = "hooked", "hooked-reads"
	// hookedTurns is how often objects are created without webhooks and then with them, and hookedObjects how many each
	// time.
	hookedTurns, hookedObjects = 8, 1500
	// informed is how long the reference's informer may take to see a change of the configurations.
	informed = 3 * time.Second
	// otherHooks are webhooks that match no request of the row, a half by their rules and a half by their selectors.
	otherHooks = 200
	// waiting is how many requests wait for a webhook.
	waiting = 50
)

// answerReview allows everything. A request at /slow waits until slow is closed.
func answerReview(slow <-chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var review struct{ Request struct{ UID string } }
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/slow" {
			select {
			case <-slow:
			case <-r.Context().Done():
			}
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w,
			`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":true}}`,
			review.Request.UID)
	}
}

// webhook is one webhook for ConfigMaps in the namespace of the row, of those with this label if it is not "".
func webhook(server *httptest.Server, path, name, resource, label string) string {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	selector := ""
	if label != "" {
		selector = fmt.Sprintf(`"objectSelector":{"matchLabels":{"hook":%q}},`, label)
	}
	return fmt.Sprintf(`{"name":"%s.example.com","clientConfig":{"url":"%s%s","caBundle":"%s"},"timeoutSeconds":30,
		"admissionReviewVersions":["v1"],"sideEffects":"None",%s"rules":[{"apiGroups":[""],"apiVersions":["v1"],
		"resources":[%q],"operations":["CREATE"]}]}`, name, server.URL, path, base64.StdEncoding.EncodeToString(ca), selector,
		resource)
}

const webhooksPath = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"

func (b *bench) configure(ctx context.Context, name string, hooks ...string) error {
	_, err := b.client.Discard(ctx, load.Request{Method: http.MethodPost, Path: webhooksPath,
		Body: fmt.Appendf(nil, `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration",
			"metadata":{"name":%q},"webhooks":[%s]}`, name, strings.Join(hooks, ","))})
	b.awaitInformer()
	return err
}

// awaitInformer waits until a server has seen a change of the configurations. Plinth has seen it with the answer.
func (b *bench) awaitInformer() {
	if b.kind == harness.Reference {
		time.Sleep(informed)
	}
}

func (b *bench) unconfigure(ctx context.Context, name string) error {
	_, err := b.client.Discard(ctx, load.Request{Method: http.MethodDelete, Path: webhooksPath + "/" + name})
	b.awaitInformer()
	return err
}

// createHooked creates ConfigMaps, and returns the processor time of the server for one, in milliseconds.
func (b *bench) createHooked(ctx context.Context, round string) (float64, error) {
	before, err := load.CPU(b.server)
	if err != nil {
		return 0, err
	}
	err = load.Each(8, hookedObjects, func(i int) error {
		_, err := b.client.Discard(ctx, load.Request{Method: http.MethodPost, Path: configMaps(hooked),
			Body: fmt.Appendf(nil, `{"metadata":{"name":"%s-%d","labels":{"hook":"none"}},"data":{"a":"b"}}`, round,
				i)})
		return err
	})
	if err != nil {
		return 0, err
	}
	after, err := load.CPU(b.server)
	return float64((after - before).Microseconds()) / 1000 / hookedObjects, err
}

// hooks measures what one matching webhook and many others add to a create: the median of the turns, as a difference of
// two large numbers takes all of their noise. The first turn does not count: it opens the connections, and the heap
// grows.
func (b *bench) hooks(ctx context.Context, from, to int) error {
	if from == 0 {
		if err := b.client.Namespace(ctx, hooked); err != nil {
			return err
		}
	}
	server := httptest.NewTLSServer(answerReview(nil))
	defer server.Close()
	for turn := from; turn < to; turn++ {
		if err := b.hookedTurn(ctx, server, turn); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) hookedTurn(ctx context.Context, server *httptest.Server, turn int) error {
	plain, err := b.createHooked(ctx, fmt.Sprint("plain-", turn))
	if err != nil {
		return err
	}
	all := []string{webhook(server, "/", "one", "configmaps", "")}
	for i := range otherHooks {
		resource, label := "secrets", ""
		if i%2 == 0 {
			resource, label = "configmaps", fmt.Sprint("other", i)
		}
		all = append(all, webhook(server, "/", fmt.Sprint("other", i), resource, label))
	}
	if err := b.configure(ctx, "hooks", all...); err != nil {
		return b.refused(err, "hooks")
	}
	with, err := b.createHooked(ctx, fmt.Sprint("with-", turn))
	if err != nil {
		return err
	}
	if turn > 0 {
		fmt.Fprintf(os.Stderr, "%s: a create %.3f ms, with webhooks %.3f ms\n", b.kind, plain, with)
		b.hookCosts = append(b.hookCosts, with-plain)
		b.results["hooks"] = result{value: load.Quantile(b.hookCosts, 0.5)}
	}
	return b.unconfigure(ctx, "hooks")
}

// hookedReads compares GETs with those beside requests that wait for a webhook.
func (b *bench) hookedReads(ctx context.Context) error {
	if err := b.client.Namespace(ctx, hookedReads); err != nil {
		return err
	}
	slow := make(chan struct{})
	server := httptest.NewTLSServer(answerReview(slow))
	defer server.Close()
	quiet := b.reads()
	time.Sleep(3 * time.Second)
	before, err := quiet()
	if err != nil {
		return err
	}
	if err := b.configure(ctx, "slow", webhook(server, "/slow", "slow", "configmaps", "slow")); err != nil {
		return b.refused(err, "hooks-get")
	}
	waits := load.New(b.server, waiting)
	defer waits.Close()
	var work sync.WaitGroup
	for i := range waiting {
		work.Go(func() {
			_, _ = waits.Discard(ctx, load.Request{Method: http.MethodPost, Path: configMaps(hookedReads),
				Body: fmt.Appendf(nil, `{"metadata":{"name":"waits-%d","labels":{"hook":"slow"}}}`, i)})
		})
	}
	time.Sleep(time.Second)
	busy := b.reads()
	time.Sleep(3 * time.Second)
	beside, err := busy()
	close(slow)
	work.Wait()
	if err != nil {
		return err
	}
	b.set("hooks-get", beside/before)
	return b.unconfigure(ctx, "slow")
}
