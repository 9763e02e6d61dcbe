package plinthtest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"plinth/internal/apierr"
	"plinth/internal/auth"
	"plinth/internal/kubeconfig"
	"plinth/internal/pki"
	"plinth/internal/planes/route"
)

// ServiceVersion is that of the interface of a Service. It is changed when a client of the one before would fail.
const ServiceVersion = 1

// Service makes control planes for tests in another process, which asks for them by HTTP and JSON
// (docs/test-planes.md): `plinth test-server --planes` is one, and the module plinthtest/outside its client. All planes
// are at its port, below /clusters/NAME, as those of `plinth serve --planes` are. Time is that of the clock.
type Service struct {
	url, token string
	http       *http.Server
	admin      pki.Pair // the client certificate of the administrator of all planes

	mu     sync.Mutex
	made   int // planes, images and rules, for their names
	planes map[string]*servedPlane
	images map[string]*Image
	rules  map[string]*Rule            // by plane and name: "p1/r2"
	parsed map[[sha256.Size]byte]*read // definitions, by their text
}

// NewService returns a service that accepts requests at a free port of the loopback address.
func NewService() (*Service, error) {
	serving, admin, err := certificates(sharedKeys(false).authority)
	if err != nil {
		return nil, err
	}
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Service{url: "https://" + listener.Addr().String(), token: rand.Text(), admin: admin,
		planes: map[string]*servedPlane{}, images: map[string]*Image{}, rules: map[string]*Rule{},
		parsed: map[[sha256.Size]byte]*read{}}
	s.http = &http.Server{Handler: s.route(s.handler()), TLSConfig: serving, ConnContext: auth.Remember}
	go func() { _ = s.http.ServeTLS(listener, "", "") }() // until Close
	return s, nil
}

// URL is where the service is.
func (s *Service) URL() string { return s.url }

// Authority is the authority of the certificates of the service and of its planes, as PEM.
func (s *Service) Authority() []byte { return sharedKeys(false).authority.PEM }

// Token is the bearer token of the service.
func (s *Service) Token() string { return s.token }

// Close ends all planes.
func (s *Service) Close() error {
	err := s.http.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.planes {
		err = errors.Join(err, p.close())
	}
	clear(s.planes)
	return err
}

// servedPlane is a plane of a service.
type servedPlane struct {
	*Plane
	closing context.Context // ends when the plane is to end, and its requests with it
	end     context.CancelFunc
}

func served(p *Plane) *servedPlane {
	closing, end := context.WithCancel(context.Background())
	return &servedPlane{p, closing, end}
}

// close ends the requests to the plane, and the plane.
func (p *servedPlane) close() error {
	p.end()
	return p.Plane.close()
}

// plane returns a plane by its name; nil: there is none.
func (s *Service) plane(name string) *servedPlane {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.planes[name]
}

// route passes requests below /clusters/NAME to that plane, and all others to the interface of the service.
func (s *Service) route(own http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, inner, err := new(route.Router).Route(r)
		if err == nil && name == "" {
			own.ServeHTTP(w, r)
			return
		}
		p := s.plane(name)
		if err == nil && p == nil {
			err = apierr.NewNoSuchPath()
		}
		if err != nil {
			route.Refuse(w, err)
			return
		}
		ctx, cancel := context.WithCancel(inner.Context())
		defer cancel()
		defer context.AfterFunc(p.closing, cancel)()
		p.front.ServeHTTP(w, inner.WithContext(ctx))
	})
}

// maxServiceBody bounds the body of a request to a service.
const maxServiceBody = 256 << 20

// requestError is an error that the request has caused.
type requestError struct{ code int }

func (e *requestError) Error() string { return http.StatusText(e.code) }

func bad(format string, args ...any) error {
	return errors.Join(fmt.Errorf(format, args...), &requestError{http.StatusBadRequest})
}

// handler lists what a service can be asked for.
func (s *Service) handler() http.Handler {
	mux := http.NewServeMux()
	answer := func(pattern string, f func(r *http.Request) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { s.answer(w, r, f) })
	}
	onPlane := func(pattern string, f func(r *http.Request, p *Plane) (any, error)) {
		answer(pattern, func(r *http.Request) (any, error) {
			p := s.plane(r.PathValue("plane"))
			if p == nil {
				return nil, &requestError{http.StatusNotFound}
			}
			return f(r, p.Plane)
		})
	}
	answer("POST /v1/planes", s.newPlane)
	answer("DELETE /v1/images/{image}", s.deleteImage)
	answer("DELETE /v1/planes/{plane}", s.deletePlane)
	onPlane("POST /v1/planes/{plane}/users", s.newUser)
	onPlane("POST /v1/planes/{plane}/images", s.newImage)
	onPlane("POST /v1/planes/{plane}/reset", s.resetPlane)
	onPlane("POST /v1/planes/{plane}/faults", s.newFault)
	onPlane("GET /v1/planes/{plane}/faults/{fault}", s.fault)
	onPlane("DELETE /v1/planes/{plane}/faults/{fault}", s.fault)
	onPlane("POST /v1/planes/{plane}/owned", s.owned)
	onPlane("GET /v1/planes/{plane}/object", objectAfter)
	onPlane("GET /v1/planes/{plane}/activity", func(_ *http.Request, p *Plane) (any, error) {
		return p.activity(), nil
	})
	onPlane("GET /v1/planes/{plane}/requests", func(_ *http.Request, p *Plane) (any, error) {
		return map[string]any{"requests": p.Requests()}, nil
	})
	onPlane("GET /v1/planes/{plane}/fights", func(_ *http.Request, p *Plane) (any, error) {
		return map[string]any{"errors": p.fights()}, nil
	})
	onPlane("GET /v1/planes/{plane}/history", func(r *http.Request, p *Plane) (any, error) {
		return map[string]any{"revisions": p.History(refOf(r.URL.Query()))}, nil
	})
	return mux
}

// answer answers a request with JSON.
func (s *Service) answer(w http.ResponseWriter, r *http.Request, f func(r *http.Request) (any, error)) {
	var body any
	err := error(&requestError{http.StatusUnauthorized})
	if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte("Bearer "+s.token)) == 1 {
		r.Body = http.MaxBytesReader(w, r.Body, maxServiceBody)
		body, err = f(r)
	}
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		code := http.StatusUnprocessableEntity
		if wrong := (*requestError)(nil); errors.As(err, &wrong) {
			code = wrong.code
		}
		w.WriteHeader(code)
		body = map[string]string{"error": err.Error()}
	}
	_ = json.NewEncoder(w).Encode(body) // the client may have gone
}

// decode reads the body of a request; a member that is not known is an error.
func decode(r *http.Request, into any) error {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return bad("the body: %w", err)
	}
	return nil
}

// newName makes a name.
func (s *Service) newName(prefix string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.name(prefix)
}

// name is newName for callers that hold mu.
func (s *Service) name(prefix string) string {
	s.made++
	return prefix + strconv.Itoa(s.made)
}

// planeRequest is what a plane is to be made of.
type planeRequest struct {
	Image         string           `json:"image"` // to begin with; "": the objects of a new server
	Definitions   []string         `json:"definitions"`
	Objects       []string         `json:"objects"`
	Controllers   []string         `json:"controllers"`
	FeatureGates  []string         `json:"featureGates"`
	RuntimeConfig []string         `json:"runtimeConfig"`
	Admission     []string         `json:"admission"`
	Webhooks      []webhookRequest `json:"webhooks"`
}

// webhookRequest is a server of webhooks: requests have the path of the clientConfig after its URL.
type webhookRequest struct {
	URL            string   `json:"url"`
	Configurations []string `json:"configurations"`
}

// planeAnswer says how clients reach a plane.
type planeAnswer struct {
	Plane       string `json:"plane"`
	Host        string `json:"host"`
	CA          string `json:"ca"`
	Token       string `json:"token"`       // of the administrator, for the code under test
	DriverToken string `json:"driverToken"` // of the administrator, for the test itself: nothing is recorded
	Cert        string `json:"cert"`        // the administrator's client certificate, as PEM
	Key         string `json:"key"`
	Kubeconfig  string `json:"kubeconfig"`
}

func (s *Service) newPlane(r *http.Request) (any, error) {
	var asked planeRequest
	if err := decode(r, &asked); err != nil {
		return nil, err
	}
	options, err := s.options(&asked)
	if err != nil {
		return nil, err
	}
	p, err := newPlane(r.Context(), options)
	if err != nil {
		return nil, err
	}
	a := planeAnswer{Plane: s.newName("p"), CA: string(s.Authority()), Token: rand.Text(), DriverToken: rand.Text(),
		Cert: string(s.admin.Cert), Key: string(s.admin.Key)}
	a.Host = s.url + "/clusters/" + a.Plane
	text, err := kubeconfig.Merge(nil, &kubeconfig.Entry{Name: "plinth", User: "plinth-admin", Server: a.Host,
		Authority: s.Authority(), Cert: s.admin.Cert, Key: s.admin.Key})
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	a.Kubeconfig = string(text)
	p.front.admitCaller(a.Token, &caller{administrator, false})
	p.front.admitCaller(a.DriverToken, &caller{administrator, true})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.planes[a.Plane] = served(p)
	return &a, nil
}

// options are the options that a request stands for.
func (s *Service) options(asked *planeRequest) ([]Option, error) {
	all := []Option{Controllers(asked.Controllers...), FeatureGates(asked.FeatureGates...),
		RuntimeConfig(asked.RuntimeConfig...), Admission(asked.Admission...)}
	if asked.Image != "" {
		s.mu.Lock()
		image := s.images[asked.Image]
		s.mu.Unlock()
		if image == nil {
			return nil, bad("there is no image %q", asked.Image)
		}
		all = append(all, From(image))
	}
	for _, text := range asked.Definitions {
		known, err := s.definitions(text)
		if err != nil {
			return nil, err
		}
		all = append(all, func(o *options) { o.definitions = append(o.definitions, &definitions{known: known}) })
	}
	for _, hook := range asked.Webhooks {
		to, err := url.Parse(hook.URL)
		if err != nil || to.Host == "" {
			return nil, bad("webhooks: %q is no URL", hook.URL)
		}
		var texts [][]byte
		for _, text := range hook.Configurations {
			texts = append(texts, []byte(text))
		}
		all = append(all, Webhooks(httputil.NewSingleHostReverseProxy(to), texts...))
	}
	for _, text := range asked.Objects {
		all = append(all, Objects([]byte(text)))
	}
	return all, nil
}

// definitions parses definitions, once for each text: planes with them begin with one image.
func (s *Service) definitions(text string) (*read, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := sha256.Sum256([]byte(text))
	if known := s.parsed[key]; known != nil {
		return known, nil
	}
	made := &read{}
	if err := made.add("definitions", []byte(text)); err != nil {
		return nil, err
	}
	s.parsed[key] = made
	return made, nil
}

func (s *Service) deletePlane(r *http.Request) (any, error) {
	name := r.PathValue("plane")
	s.mu.Lock()
	p := s.planes[name]
	if p == nil {
		s.mu.Unlock()
		return nil, &requestError{http.StatusNotFound}
	}
	delete(s.planes, name)
	maps.DeleteFunc(s.rules, func(rule string, _ *Rule) bool { return strings.HasPrefix(rule, name+"/") })
	s.mu.Unlock()
	return struct{}{}, p.close()
}

func (s *Service) newUser(r *http.Request, p *Plane) (any, error) {
	var user User
	if err := decode(r, &user); err != nil {
		return nil, err
	}
	token := rand.Text()
	p.front.admitCaller(token, &caller{user.identity(), false})
	return map[string]string{"token": token}, nil
}

func (s *Service) newImage(_ *http.Request, p *Plane) (any, error) {
	image := p.Snapshot()
	s.mu.Lock()
	defer s.mu.Unlock()
	name := s.name("i")
	s.images[name] = image
	return map[string]string{"image": name}, nil
}

func (s *Service) deleteImage(r *http.Request) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.images, r.PathValue("image"))
	return struct{}{}, nil
}

func (s *Service) resetPlane(r *http.Request, p *Plane) (any, error) {
	var asked struct {
		Image string `json:"image"`
	}
	if err := decode(r, &asked); err != nil {
		return nil, err
	}
	s.mu.Lock()
	image := s.images[asked.Image]
	s.mu.Unlock()
	if image == nil {
		return nil, bad("there is no image %q", asked.Image)
	}
	return struct{}{}, p.reset(r.Context(), image)
}

func (s *Service) newFault(r *http.Request, p *Plane) (any, error) {
	var asked struct {
		On      On         `json:"on"`
		Effects []effectOf `json:"effects"`
	}
	if err := decode(r, &asked); err != nil {
		return nil, err
	}
	var effects []Effect
	for i := range asked.Effects {
		effect, ok := asked.Effects[i].effect()
		if !ok {
			return nil, bad("%+v is no effect", asked.Effects[i])
		}
		effects = append(effects, effect)
	}
	rule := p.Fault(asked.On, effects...)
	s.mu.Lock()
	defer s.mu.Unlock()
	name := s.name("f")
	s.rules[r.PathValue("plane")+"/"+name] = rule
	return map[string]string{"fault": name}, nil
}

// fault says how many requests a fault has concerned; with DELETE it ends it.
func (s *Service) fault(r *http.Request, _ *Plane) (any, error) {
	s.mu.Lock()
	rule := s.rules[r.PathValue("plane")+"/"+r.PathValue("fault")]
	s.mu.Unlock()
	if rule == nil {
		return nil, &requestError{http.StatusNotFound}
	}
	if r.Method == http.MethodDelete {
		rule.Remove()
	}
	return map[string]int{"hits": rule.Hits()}, nil
}

func (s *Service) owned(r *http.Request, p *Plane) (any, error) {
	var asked struct {
		Object  Ref      `json:"object"`
		Manager string   `json:"manager"`
		Paths   []string `json:"paths"`
	}
	if err := decode(r, &asked); err != nil {
		return nil, err
	}
	return map[string]any{"errors": p.notOwned(asked.Object, asked.Manager, asked.Paths)}, nil
}

// refOf is the object that the parameters of a request name.
func refOf(query url.Values) Ref {
	return Ref{Group: query.Get("group"), Version: query.Get("version"), Resource: query.Get("resource"),
		Namespace: query.Get("namespace"), Name: query.Get("name")}
}

// longPoll is how long a request for a later revision waits at most.
const longPoll = 10 * time.Second

// objectAfter answers with an object as it is when the revision of the store is beyond the one in the request, or after
// a while: so a client waits for a change without asking again and again.
func objectAfter(r *http.Request, p *Plane) (any, error) {
	ref := refOf(r.URL.Query())
	k, ok := p.key(ref)
	if !ok {
		return nil, bad("there is no type of %s", ref)
	}
	after, err := strconv.ParseInt(r.URL.Query().Get("after"), 10, 64)
	if err != nil && r.URL.Query().Has("after") {
		return nil, bad("after: %w", err)
	}
	s := p.current().Store
	ctx, cancel := context.WithTimeout(r.Context(), longPoll)
	defer cancel()
	_ = s.WaitFor(ctx, after+1) // or the object as it is
	answer := struct {
		Revision int64           `json:"revision"`
		Object   json.RawMessage `json:"object"` // null: there is none
	}{Revision: s.Revision()}
	if v, ok := s.Get(k); ok {
		answer.Object = v.Data()
	}
	return answer, nil
}
