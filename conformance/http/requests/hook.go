package requests

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// hook is a server of webhooks, for the scripts that name ${hook}, its URL, and ${ca}, its authority in base64. The
// path of a webhook's URL says how it answers (responses). A step ASKED shows what it was asked since the last one.
type hook struct {
	server *httptest.Server
	mu     sync.Mutex
	asked  []any
}

// newHook starts a server if a script needs one.
func newHook(script *Script) *hook {
	if !slices.ContainsFunc(script.Steps, func(s *Step) bool { return strings.Contains(s.Body, "${hook}") }) {
		return nil
	}
	h := &hook{}
	h.server = httptest.NewTLSServer(http.HandlerFunc(h.answer))
	return h
}

func (h *hook) close() {
	if h != nil {
		h.server.CloseClientConnections()
		h.server.Close()
	}
}

// variables are those of a script.
func (h *hook) variables() map[string]string {
	if h == nil {
		return map[string]string{}
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.server.Certificate().Raw})
	return map[string]string{"hook": h.server.URL, "ca": base64.StdEncoding.EncodeToString(ca)}
}

// replacer replaces what differs in each run.
func (h *hook) replacer() func(string) string {
	if h == nil {
		return func(s string) string { return s }
	}
	v := h.variables()
	fixed := strings.NewReplacer(v["hook"], "<hook>", v["ca"], "<ca>",
		strings.TrimPrefix(v["hook"], "https://"), "<hook>")
	return func(s string) string { return clientPort.ReplaceAllString(fixed.Replace(s), "127.0.0.1:<port>") }
}

var clientPort = regexp.MustCompile(`127\.0\.0\.1:\d{4,5}\b`)

// responses are the "response" members of the answers, by the last part of the path; UID stands for the request's.
var responses = map[string]string{
	"allow":       `{"uid":"UID","allowed":true}`,
	"deny":        `{"uid":"UID","allowed":false}`,
	"message":     `{"uid":"UID","allowed":false,"status":{"message":"it is blue"}}`,
	"reason":      `{"uid":"UID","allowed":false,"status":{"reason":"Conflict"}}`,
	"code":        `{"uid":"UID","allowed":false,"status":{"code":418,"message":"a teapot","reason":"Teapot"}}`,
	"details":     `{"uid":"UID","allowed":false,"status":{"code":422,"details":{"causes":[{"field":"a","message":"b","reason":"c"}]}}}`,
	"success":     `{"uid":"UID","allowed":false,"status":{"status":"Success","code":200,"message":"odd"}}`,
	"warn":        `{"uid":"UID","allowed":true,"warnings":["one","two\nlines","LONG"]}`,
	"warn-deny":   `{"uid":"UID","allowed":false,"warnings":["it was close"]}`,
	"other-uid":   `{"uid":"7a4e1d1c-0000-4000-8000-000000000000","allowed":true}`,
	"no-uid":      `{"allowed":true}`,
	"no-type":     `{"uid":"UID","allowed":true,"patch":"PATCH([])"}`,
	"wrong-type":  `{"uid":"UID","allowed":true,"patchType":"MergePatch","patch":"PATCH([])"}`,
	"no-patch":    `{"uid":"UID","allowed":true,"patchType":"JSONPatch"}`,
	"bad-base64":  `{"uid":"UID","allowed":true,"patchType":"JSONPatch","patch":"&"}`,
	"bad-patch":   `{"uid":"UID","allowed":true,"patchType":"JSONPatch","patch":"PATCH({})"}`,
	"bad-path":    `PATCHES([{"op":"remove","path":"/data/none"}])`,
	"bad-test":    `PATCHES([{"op":"test","path":"/data/color","value":"pink"}])`,
	"bad-op":      `PATCHES([{"op":"spoil","path":"/data"}])`,
	"empty-patch": `PATCHES([])`,
	"set":         `PATCHES([{"op":"add","path":"/data/set","value":"by the hook"}])`,
	"unknown":     `PATCHES([{"op":"add","path":"/nothing","value":"x"}])`,
	"type":        `PATCHES([{"op":"add","path":"/data","value":[1]}])`,
	"null":        `PATCHES([{"op":"replace","path":"","value":null}])`,
	"name":        `PATCHES([{"op":"replace","path":"/metadata/name","value":"other"}])`,
	"namespace":   `PATCHES([{"op":"replace","path":"/metadata/namespace","value":"other"}])`,
	"kind":        `PATCHES([{"op":"replace","path":"/kind","value":"Secret"}])`,
	"version":     `PATCHES([{"op":"replace","path":"/apiVersion","value":"v2"}])`,
	"uid":         `PATCHES([{"op":"add","path":"/metadata/uid","value":"7a4e1d1c-0000-4000-8000-000000000001"}])`,
	"managers":    `PATCHES([{"op":"replace","path":"/metadata/managedFields","value":[{"manager":"m","operation":"Spoil"}]}])`,
	"no-managers": `PATCHES([{"op":"replace","path":"/metadata/managedFields","value":[]}])`,
	"labels":      `PATCHES([{"op":"add","path":"/metadata/labels/hooked","value":"yes"}])`,
	"replicas":    `PATCHES([{"op":"replace","path":"/spec/replicas","value":7}])`,
	"audit":       `{"uid":"UID","allowed":true,"auditAnnotations":{"a":"b"}}`,
}

var patched = regexp.MustCompile(`PATCH(ES)?\((.*)\)"?`)

// response is the one of a name to a request.
func response(name, uid string) string {
	text := responses[name]
	if m := patched.FindStringSubmatch(text); m != nil {
		patch := base64.StdEncoding.EncodeToString([]byte(m[2]))
		if m[1] != "" {
			text = fmt.Sprintf(`{"uid":"UID","allowed":true,"patchType":"JSONPatch","patch":%q}`, patch)
		} else {
			text = strings.Replace(text, m[0], patch+`"`, 1)
		}
	}
	return strings.NewReplacer("UID", uid, "LONG", strings.Repeat("long ", 100)).Replace(text)
}

func (h *hook) answer(w http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body)
	var review map[string]any
	_ = json.Unmarshal(text, &review)
	request, _ := review["request"].(map[string]any)
	name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	h.mu.Lock()
	h.asked = append(h.asked, map[string]any{"path": r.URL.Path, "query": r.URL.RawQuery, "review": review})
	h.mu.Unlock()
	uid, _ := request["uid"].(string)
	const head = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":`
	switch name {
	case "garbage":
		_, _ = io.WriteString(w, "garbage")
	case "empty":
	case "no-response":
		_, _ = io.WriteString(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`)
	case "other-kind":
		_, _ = io.WriteString(w, `{"apiVersion":"v1","kind":"Pod","response":{"allowed":true}}`)
	case "other-version":
		_, _ = io.WriteString(w, strings.Replace(head, "io/v1", "io/v1beta1", 1)+response("allow", uid)+"}")
	case "no-version":
		_, _ = io.WriteString(w, `{"response":`+response("allow", uid)+"}")
	case "status-500", "status-404", "status-403", "status-302":
		var code int
		_, _ = fmt.Sscanf(name, "status-%d", &code)
		if code == http.StatusFound {
			w.Header().Set("Location", h.server.URL+"/allow")
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, "no")
	case "close":
		panic(http.ErrAbortHandler)
	case "slow":
		select {
		case <-r.Context().Done():
		case <-time.After(20 * time.Second):
		}
	case "large":
		_, _ = io.WriteString(w, head+`{"uid":"`+uid+`","allowed":true,"warnings":["`)
		for range 50 {
			_, _ = io.WriteString(w, strings.Repeat("x", 1<<20))
		}
		_, _ = io.WriteString(w, `"]}}`)
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, head+response(name, uid)+"}")
	}
}

// show returns what the hooks were asked since the last call, in the order of their paths: several are asked at once.
func (h *hook) show() ([]byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	slices.SortStableFunc(h.asked, func(a, b any) int {
		path := func(v any) string { return v.(map[string]any)["path"].(string) }
		return strings.Compare(path(a), path(b))
	})
	text, err := json.Marshal(map[string]any{"asked": h.asked})
	h.asked = nil
	return text, err
}
