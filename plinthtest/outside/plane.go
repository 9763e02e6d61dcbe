package outside

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"
)

// Plane is a control plane in another process. Its methods may be used concurrently, unless they take a testing.TB.
type Plane struct {
	t       testing.TB
	service *service
	access  answer
	watches watches
	servers []*http.Server // of webhooks

	mu      sync.Mutex
	running []func() // stop the code that Run runs
	file    string   // the kubeconfig
}

// answer is what the process says of a plane.
type answer struct {
	Plane       string `json:"plane"`
	Host        string `json:"host"`
	CA          string `json:"ca"`
	Token       string `json:"token"`
	DriverToken string `json:"driverToken"`
	Cert        string `json:"cert"`
	Key         string `json:"key"`
	Kubeconfig  string `json:"kubeconfig"`
}

// Image is the objects of a plane at one moment. It does not change, and is shared by the planes that begin with it.
// It is kept in the other process until that ends.
type Image struct{ name string }

// callLimit is how long the other process may take for what it is asked for. It is for the case that it hangs.
const callLimit = 2 * time.Minute

// New returns a new control plane, which ends with the test. It may be used in parallel tests. The first one of a test
// binary starts the process.
func New(t testing.TB, o ...Option) *Plane {
	t.Helper()
	if inBubble() {
		t.Fatal("outside: there is no virtual time: the control plane is in another process, whose clock is the real one; " +
			"a bubble of testing/synctest needs plinthtest.Bubble")
	}
	p, err := newPlane(t, o)
	if err != nil {
		t.Fatalf("outside: %v", err)
	}
	return p
}

func newPlane(t testing.TB, o []Option) (*Plane, error) {
	var all options
	for _, option := range o {
		option(&all)
	}
	p := &Plane{t: t, servers: all.servers}
	t.Cleanup(func() {
		if err := p.close(); err != nil {
			t.Errorf("outside: %v", err)
		}
	})
	if err := errors.Join(all.errs...); err != nil {
		return nil, err
	}
	s, err := theService()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	if err := s.call(ctx, http.MethodPost, "/v1/planes", &all, &p.access); err != nil {
		return nil, err
	}
	p.service = s
	return p, nil
}

// close ends the code under test, and the plane.
func (p *Plane) close() (err error) {
	p.mu.Lock()
	running := p.running
	p.mu.Unlock()
	for _, stop := range running {
		stop()
	}
	if p.service != nil {
		err = p.call(http.MethodDelete, "", nil, nil)
	}
	for _, server := range p.servers {
		err = errors.Join(err, server.Close())
	}
	return err
}

// call asks the process for something about this plane.
func (p *Plane) call(method, path string, body, answer any) error {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	return p.service.call(ctx, method, "/v1/planes/"+p.access.Plane+path, body, answer)
}

// must is call for what fails only if the process is gone.
func (p *Plane) must(method, path string, body, answer any) {
	p.t.Helper()
	if err := p.call(method, path, body, answer); err != nil {
		p.t.Errorf("outside: %v", err)
	}
}

// Host is the URL of the plane, which has a path: https://127.0.0.1:PORT/clusters/NAME.
func (p *Plane) Host() string { return p.access.Host }

// Access is how clients reach a plane that cannot be given a transport. They are the administrator.
type Access struct {
	URL        string
	CA         []byte // PEM
	Token      string // a bearer token
	Cert, Key  []byte // a client certificate, PEM
	Kubeconfig []byte // with the certificate
}

// Access returns the administrator's access.
func (p *Plane) Access() Access {
	a := &p.access
	return Access{URL: a.Host, CA: []byte(a.CA), Token: a.Token, Cert: []byte(a.Cert), Key: []byte(a.Key),
		Kubeconfig: []byte(a.Kubeconfig)}
}

// Kubeconfig returns the file name of the administrator's kubeconfig, for kubectl, Helm and other programs.
func (p *Plane) Kubeconfig() string {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.file == "" {
		file := filepath.Join(p.t.TempDir(), "kubeconfig")
		if err := os.WriteFile(file, []byte(p.access.Kubeconfig), 0o600); err != nil {
			p.t.Fatalf("outside: Kubeconfig: %v", err)
		}
		p.file = file
	}
	return p.file
}

// Run runs the code under test, such as a manager with its controllers, on a goroutine of its own until the plane ends,
// or until stop is called: ctx ends then, and Run's goroutine is waited for.
func (p *Plane) Run(start func(ctx context.Context, p *Plane)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		start(ctx, p)
	}()
	stop = func() {
		cancel()
		<-done
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = append(p.running, stop)
	return stop
}

// Snapshot returns the objects of the plane as they are now, for other planes and for Reset.
func (p *Plane) Snapshot() *Image {
	p.t.Helper()
	var made struct{ Image string }
	p.must(http.MethodPost, "/images", nil, &made)
	return &Image{made.Image}
}

// Reset replaces all objects of the plane by those of an image, which may be of another plane. Watches end, and clients
// that continue them list again. Rules of Fault stay; the record of requests and the history begin anew. No request may
// be under way.
func (p *Plane) Reset(t testing.TB, image *Image) {
	t.Helper()
	if err := p.call(http.MethodPost, "/reset", map[string]string{"image": image.name}, nil); err != nil {
		t.Fatalf("outside: %v", err)
	}
}

// Ref names an object.
type Ref struct {
	// Group is "apps", and Resource "deployments"; the core group is "". Version may be "".
	Group     string `json:"group"`
	Version   string `json:"version"`
	Resource  string `json:"resource"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// String is "apps/deployments default/web".
func (o Ref) String() string {
	resource, name := o.Resource, o.Name
	if o.Group != "" {
		resource = o.Group + "/" + resource
	}
	if o.Namespace != "" {
		name = o.Namespace + "/" + name
	}
	return resource + " " + name
}

func (o Ref) query() string {
	return url.Values{"group": {o.Group}, "version": {o.Version}, "resource": {o.Resource}, "namespace": {o.Namespace},
		"name": {o.Name}}.Encode()
}

// Revision is an object after one of its changes.
type Revision struct {
	ResourceVersion int64           `json:"resourceVersion"`
	Deleted         bool            `json:"deleted"`
	Object          json.RawMessage `json:"object"` // if it was deleted, as it was before
}

// History returns the changes of an object since the plane began, oldest first.
func (p *Plane) History(o Ref) []Revision {
	p.t.Helper()
	var all struct{ Revisions []Revision }
	p.must(http.MethodGet, "/history?"+o.query(), nil, &all)
	return all.Revisions
}

// Wait waits until the object is as holds says, which is called for its state now and after changes, with its JSON;
// nil: there is no object. It fails the test after a minute, with what the object was last.
func (p *Plane) Wait(t testing.TB, o Ref, holds func(object []byte) bool) {
	t.Helper()
	var now struct {
		Revision int64
		Object   json.RawMessage
	}
	for end := time.Now().Add(time.Minute); ; {
		path := fmt.Sprintf("/object?%s&after=%s", o.query(), strconv.FormatInt(now.Revision, 10))
		if err := p.call(http.MethodGet, path, nil, &now); err != nil {
			t.Fatalf("outside: %v", err)
		}
		text := []byte(now.Object)
		if string(text) == "null" {
			text = nil
		}
		if holds(text) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("outside: %s is still %s", o, text)
		}
	}
}

// Owns fails the test unless a manager owns fields of an object, as metadata.managedFields says: each path is that of a
// field or of an item of a list, such as "spec.replicas" or `spec.containers[name="web"].image`.
func (p *Plane) Owns(t testing.TB, o Ref, manager string, paths ...string) {
	t.Helper()
	p.report(t, http.MethodPost, "/owned", map[string]any{"object": o, "manager": manager, "paths": paths})
}

// NoFights fails the test if two managers have overwritten the same field again and again, in turn.
func (p *Plane) NoFights(t testing.TB) {
	t.Helper()
	p.report(t, http.MethodGet, "/fights", nil)
}

// report fails the test with what the process finds wrong.
func (p *Plane) report(t testing.TB, method, path string, body any) {
	t.Helper()
	var found struct{ Errors []string }
	if err := p.call(method, path, body, &found); err != nil {
		t.Errorf("outside: %v", err)
	}
	for _, wrong := range found.Errors {
		t.Errorf("outside: %s", wrong)
	}
}
