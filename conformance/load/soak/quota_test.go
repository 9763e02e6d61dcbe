package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/load"
)

const (
	mapsPath   = "/api/v1/namespaces/quota/configmaps"
	quotasPath = "/api/v1/namespaces/quota/resourcequotas"
)

// limited is writers of ConfigMaps in a namespace with quotas.
type limited struct {
	t       *testing.T
	client  *load.Client
	most    int64 // ConfigMaps that may ever be there
	created atomic.Int64
	refused atomic.Int64
}

func (l *limited) do(method, path, body string) error {
	rq := load.Request{Method: method, Path: path}
	if body != "" {
		rq.Body = []byte(body)
	}
	_, err := l.client.Do(l.t.Context(), rq)
	return err
}

// setQuota creates or replaces a quota of ConfigMaps.
func (l *limited) setQuota(method, path, name string, most int64) {
	l.t.Helper()
	body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":%q},`+
		`"spec":{"hard":{"configmaps":%d,"count/configmaps":%d}}}`, name, most, most+5)
	if err := l.do(method, path, body); err != nil {
		l.t.Fatal(err)
	}
}

// setLimit changes the limit, if the server is there.
func (l *limited) setLimit(most int64) {
	_, _ = l.client.Do(l.t.Context(), load.Request{Method: http.MethodPatch, Path: quotasPath + "/q",
		ContentType: "application/merge-patch+json", Body: fmt.Appendf(nil, `{"spec":{"hard":{"configmaps":%d}}}`,
			most)})
}

// awaitUsed waits until the status of the quota says how much is used.
func (l *limited) awaitUsed(want int64) {
	var quota struct {
		Status struct{ Used map[string]string }
	}
	text := resource.NewQuantity(want, resource.DecimalSI).String()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		body, err := l.client.Do(l.t.Context(), load.Request{Method: http.MethodGet, Path: quotasPath + "/q"})
		if err == nil && json.Unmarshal(body, &quota) == nil && quota.Status.Used["configmaps"] == text {
			return
		}
	}
	l.t.Errorf("the quota says that %v is used, want %d", quota.Status.Used, want)
}

// count is how many ConfigMaps there are.
func (l *limited) count(ctx context.Context) (int64, error) {
	text, err := l.client.Do(ctx, load.Request{Method: http.MethodGet, Path: mapsPath})
	if err != nil {
		return 0, err
	}
	var list struct{ Items []json.RawMessage }
	err = json.Unmarshal(text, &list)
	return int64(len(list.Items)), err
}

// create creates a ConfigMap, and says whether it did.
func (l *limited) create(name string) bool {
	err := l.do(http.MethodPost, mapsPath, fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
	var status *load.StatusError
	switch {
	case err == nil:
		l.created.Add(1)
		return true
	case errors.As(err, &status) && status.Code == http.StatusForbidden:
		l.refused.Add(1)
	case status != nil && status.Code != http.StatusConflict && status.Code < 500:
		l.t.Errorf("POST: %v", err)
	}
	return false
}

// write creates and deletes ConfigMaps until the time, mostly at the limit.
func (l *limited) write(writer int, until time.Time) {
	r := rand.New(rand.NewPCG(uint64(writer), 3))
	var mine []string
	for i := 0; time.Now().Before(until) && !l.t.Failed(); i++ {
		if len(mine) > 0 && r.IntN(3) == 0 {
			_ = l.do(http.MethodDelete, mapsPath+"/"+mine[0], "") // one that is lost stays, and is counted
			mine = mine[1:]
			continue
		}
		name := fmt.Sprintf("w%d-%d", writer, i)
		if l.create(name) {
			mine = append(mine, name)
		}
	}
}

// SPEC: AUTH-5: many writers at a quota that changes, with kill -9 in between: never above it, and at the end all of it
// can be used.
func TestQuota(t *testing.T) {
	if harness.Target() == harness.Reference {
		return // its quota is exact only as long as its controller is, and it restarts on another port
	}
	writers, most, kills := scale(24, 200), scale(int64(60), 1000), scale(2, 5)
	lasts := scale(4*time.Second, time.Minute)
	server := harness.RunTarget(t)
	l := &limited{t: t, client: load.New(server, writers+4), most: most}
	if err := l.client.Namespace(t.Context(), "quota"); err != nil {
		t.Fatal(err)
	}
	l.setQuota(http.MethodPost, quotasPath, "q", most)
	for i := range 19 { // limits that are never reached, and are judged all the same
		l.setQuota(http.MethodPost, quotasPath, fmt.Sprintf("other%d", i), most+int64(i))
	}
	until := time.Now().Add(lasts)
	var work sync.WaitGroup
	for w := range writers {
		work.Go(func() { l.write(w, until) })
	}
	for i, next := 0, time.Now(); time.Now().Before(until); i++ {
		if n, err := l.count(t.Context()); err == nil && n > most {
			t.Errorf("%d ConfigMaps, %d are the limit", n, most)
		}
		if i%20 == 10 {
			l.setLimit(most - int64(i/20%2)*most/10)
		}
		if time.Since(next) > lasts/time.Duration(kills+1) {
			next = time.Now()
			server.Kill()
			l.client.Close()
			if err := server.Restart(); err != nil {
				t.Fatal(err)
			}
		}
	}
	work.Wait()
	l.setLimit(most)
	for i := 0; l.create(fmt.Sprintf("last-%d", i)); i++ {
	}
	if n, err := l.count(t.Context()); err != nil || n != most {
		t.Errorf("%d ConfigMaps at the end (%v), want %d", n, err, most)
	}
	l.awaitUsed(most)
	t.Logf("%d created, %d refused", l.created.Load(), l.refused.Load())
	if l.created.Load() < most || l.refused.Load() < most {
		t.Error("the limit was hardly reached")
	}
}
