package authentication

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// hook is a webhook whose answer depends on the token in the review; it records the reviews.
type hook struct {
	*httptest.Server
	mu      sync.Mutex
	answers map[string]hookAnswer
	asked   []string
}

type hookAnswer struct {
	code        int
	contentType string
	body        string
}

func newHook(t *testing.T, answers map[string]hookAnswer) *hook {
	t.Helper()
	h := &hook{answers: answers}
	h.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		var review struct{ Spec struct{ Token string } }
		if err := json.Unmarshal(body, &review); err != nil {
			t.Error(err)
		}
		h.mu.Lock()
		h.asked = append(h.asked, fmt.Sprint(r.Method, " ", r.URL, " ", r.Header.Get("Content-Type"), " ",
			r.Header.Get("Authorization"), " ", strings.TrimSpace(string(body))))
		h.mu.Unlock()
		a := h.answers[review.Spec.Token]
		if a.contentType == "" {
			a.contentType = "application/json"
		}
		w.Header().Set("Content-Type", a.contentType)
		if a.code == 0 {
			a.code = 200
		}
		w.WriteHeader(a.code)
		_, _ = w.Write([]byte(a.body))
	}))
	t.Cleanup(h.Close)
	return h
}

// took returns the reviews since the last call of took.
func (h *hook) took() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	asked := h.asked
	h.asked = nil
	return asked
}

// kubeconfig writes a kubeconfig for the webhook and returns its name.
func (h *hook) kubeconfig(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	ca, file := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw}),
		0o600); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"x","contexts":[{"name":"x","context":{"cluster":"c","user":"u"}}],
"clusters":[{"name":"c","cluster":{"server":"%s/ask","certificate-authority":%q}}],"users":[{"name":"u","user":{"token":"own"}}]}`, h.URL, ca)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// SPEC: AUTH-1
func TestTokenWebhooks(t *testing.T) {
	for _, version := range []string{"v1", "v1beta1"} {
		review := func(status string) string {
			return `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/` + version + `","status":` + status + `}`
		}
		const jane = `"authenticated":true,"user":{"username":"jane","uid":"7","groups":["devs"],"extra":{"Example.com/A":["b","c"]}}`
		answers := map[string]hookAnswer{
			"good":      {body: review(`{` + jane + `}`)},
			"bare":      {body: `{"status":{` + jane + `}}`},
			"here":      {body: review(`{` + jane + `,"audiences":["https://kubernetes.default.svc"]}`)},
			"elsewhere": {body: review(`{` + jane + `,"audiences":["elsewhere"]}`)},
			"nobody":    {body: review(`{"authenticated":false}`)},
			"silent":    {body: review(`{}`)},
			"why":       {body: review(`{"error":"no such token"}`)},
			"both":      {body: review(`{` + jane + `,"error":"what of it"}`)},
			"case":      {body: review(`{"Authenticated":true,"User":{"Username":"jane"}}`)},
			"nameless":  {body: review(`{"authenticated":true,"user":{"groups":["devs"]}}`)},
			"reserved": {body: review(
				`{"authenticated":true,"user":{"username":"system:admin","groups":["system:authenticated"]}}`)},
			"masters":   {body: review(`{"authenticated":true,"user":{"username":"x","groups":["system:masters"]}}`)},
			"created":   {code: 201, body: review(`{` + jane + `}`)},
			"forbidden": {code: 403, body: "no", contentType: "text/plain"},
			"missing": {code: 404,
				body: `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"nothing here","reason":"NotFound","code":404}`},
			"unavailable": {code: 503, body: "later", contentType: "text/plain"},
			"redirected":  {code: 304},
			"empty":       {},
			"text":        {body: "yes", contentType: "text/plain"},
			"list":        {body: `[]`},
			"other":       {body: `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":true}}`},
			"wrong type":  {body: review(`{"authenticated":"true"}`)},
			"unknown":     {body: review(`{` + jane + `,"x":1}`)},
			"twice":       {body: review(`{"authenticated":false,` + jane + `}`)},
			"broken":      {code: 500, body: "broken", contentType: "text/plain"},
		}
		h := newHook(t, answers)
		servers := both(t, "--authentication-token-webhook-config-file", h.kubeconfig(t),
			"--authentication-token-webhook-version", version)
		compared := 0
		for _, token := range slices.Sorted(maps.Keys(answers)) {
			for _, audiences := range []string{"", `,"audiences":["elsewhere"]`,
				`,"audiences":["https://kubernetes.default.svc","elsewhere"]`} {
				if token == "broken" && audiences != "" {
					continue // each takes as long as the pauses between five attempts
				}
				var said, asked []string
				for _, s := range servers {
					said = append(said, reviewed(t, s, token, audiences))
					asked = append(asked, strings.Join(h.took(), "\n"))
				}
				compared++
				if asked[0] != asked[1] {
					t.Errorf("%s%s\nreference asks: %s\nplinth asks:    %s", token, audiences, asked[0], asked[1])
				}
				if said[0] != said[1] && !sameFailure(said) {
					t.Errorf("%s%s\nreference: %s\nplinth:    %s", token, audiences, said[0], said[1])
				}
			}
		}
		if compared < 70 {
			t.Errorf("only %d answers were compared", compared)
		}
	}
}

// sameFailure says whether both report that the response cannot be decoded, each in the words of its library.
func sameFailure(said []string) bool {
	return !slices.ContainsFunc(said, func(s string) bool {
		return strings.Contains(s, `"authenticated":true`) || !strings.Contains(s, `"error":"[invalid bearer token, `) ||
			strings.Contains(s, "201 ") && strings.Contains(s, "userInfo")
	})
}
