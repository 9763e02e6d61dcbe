package tokenwebhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"plinth/internal/access"
)

// answering returns a webhook that answers as the function does, and a pointer to the last request that it got.
func answering(version string, answer func(asked string) (string, error)) (*Webhook, *string) {
	asked := new(string)
	return &Webhook{
		Version: version, Audiences: []string{"here", "there"}, Logger: slog.New(slog.DiscardHandler),
		Post: func(_ context.Context, body []byte) ([]byte, error) {
			*asked = string(body)
			text, err := answer(*asked)
			return []byte(text), err
		},
	}, asked
}

// SPEC: AUTH-1
func TestToken(t *testing.T) {
	status := func(text string) string {
		return `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","status":` + text + `}`
	}
	const jane = `"authenticated":true,"user":{"username":"jane","uid":"7","groups":["devs"],"extra":{"a":["b","c"]}}`
	const known = "jane 7 [devs] map[a:[b c]] [here there] <nil>"
	for _, c := range []struct {
		answer    string
		audiences []string
		want      string
	}{
		{status(`{` + jane + `}`), nil, known},
		{`{"status":{` + jane + `}}`, nil, known},
		{status(`{` + jane + `,"audiences":["there","else"]}`), nil, "jane 7 [devs] map[a:[b c]] [there] <nil>"},
		{status(`{` + jane + `,"audiences":["else"]}`), nil, "nobody <nil>"},
		{status(`{` + jane + `}`), []string{"there"}, "jane 7 [devs] map[a:[b c]] [there] <nil>"},
		{status(`{` + jane + `}`), []string{"else"}, "nobody <nil>"},
		{status(`{` + jane + `,"audiences":["else"]}`), []string{"else"}, "jane 7 [devs] map[a:[b c]] [else] <nil>"},
		{status(`{"authenticated":false}`), nil, "nobody <nil>"},
		{status(`{"user":{"username":"jane"}}`), nil, "nobody <nil>"},
		{status(`{"error":"no such token"}`), nil, "nobody no such token"},
		{status(`{"Authenticated":true,"user":{"username":"jane"}}`), nil, "nobody <nil>"},
		{status(`{` + jane + `,"error":"what of it"}`), nil, known},
		{`{"kind":"Status","apiVersion":"v1","status":"Failure"}`, nil, "nobody error"},
		{strings.Replace(status(`{`+jane+`}`), "k8s.io/v1", "k8s.io/v1beta1", 1), nil, "nobody error"},
		{`{"kind":"SubjectAccessReview","status":{` + jane + `}}`, nil, "nobody error"},
		{``, nil, "nobody error"}, {`[]`, nil, "nobody error"}, {`{"status":{"authenticated":"true"}}`, nil, "nobody error"},
		{`null`, nil, "nobody <nil>"},
	} {
		w, asked := answering("v1", func(string) (string, error) { return c.answer, nil })
		id, err := w.Token(t.Context(), "sesame", c.audiences)
		if got := describe(id, err); got != c.want && !(strings.HasSuffix(c.want, " error") && err != nil && id == nil) {
			t.Errorf("response %s for the audiences %s: have %s, want %s", c.answer, c.audiences, got, c.want)
		}
		audiences := c.audiences
		if audiences == nil {
			audiences = []string{"here", "there"}
		}
		text, err := json.Marshal(audiences)
		if err != nil {
			t.Fatal(err)
		}
		want := `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","metadata":{},"spec":{"token":"sesame","audiences":` + string(text) + `},"status":{"user":{}}}`
		if *asked != want {
			t.Errorf("the request: have %s, want %s", *asked, want)
		}
	}
}

// describe returns an identity and an error as one text.
func describe(id *access.Identity, err error) string {
	if id == nil {
		return fmt.Sprint("nobody ", err)
	}
	return fmt.Sprint(id.User.Name, " ", id.User.UID, " ", id.User.Groups, " ", id.User.Extra, " ", id.Audiences, " ", err)
}

// A webhook of version v1beta1 gets reviews of that version. The error of a webhook that fails does not contain the
// token.
//
// SPEC: AUTH-1
func TestVersionsAndErrors(t *testing.T) {
	w, asked := answering("v1beta1", func(string) (string, error) {
		return `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1beta1","status":{"authenticated":true,"user":{"username":"jane"}}}`, nil
	})
	if id, err := w.Token(t.Context(), "sesame", nil); err != nil || id.User.Name != "jane" ||
		!strings.Contains(*asked, `"authentication.k8s.io/v1beta1"`) {
		t.Errorf("a webhook of v1beta1: have %v, %v for the request %s", id, err, *asked)
	}
	down := errors.New("connection refused")
	w, _ = answering("v1", func(string) (string, error) { return "", down })
	if id, err := w.Token(t.Context(), "sesame", nil); id != nil || !errors.Is(err, down) ||
		strings.Contains(err.Error(), "sesame") {
		t.Errorf("a webhook that is down: have %v, %v, want the error %v without the token", id, err, down)
	}
}
