package console

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"plinth/internal/planes/route"
)

// The console of a plane is below the path of the plane: its page, the files of the page, its cookies, which are for no
// other plane, and where a sign-in leads back to.
//
// SPEC: BEY-9, BEY-14
func TestConsoleOfAPlane(t *testing.T) {
	b := newBench(t)
	ask := func(method, path, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, "https://here"+path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		_, inner, err := new(route.Router).Route(r)
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		b.ServeHTTP(w, inner)
		return w
	}
	for _, base := range []string{"", "/clusters/a"} {
		if got := ask(http.MethodGet, base+"/console", "").Header().Get("Location"); got != base+"/console/" {
			t.Errorf("%s/console leads to %s", base, got)
		}
		page := ask(http.MethodGet, base+"/console/r/core/v1/pods", "").Body.String()
		links := regexp.MustCompile(`(?:src|href)="(/[^"]*)"`).FindAllStringSubmatch(page, -1)
		if len(links) < 3 {
			t.Errorf("the page is %s", page)
		}
		for _, link := range links {
			if !strings.HasPrefix(link[1], base+"/console/static/") {
				t.Errorf("below %q, the page has a link to %s", base, link[1])
			} else if w := ask(http.MethodGet, link[1], ""); w.Code != 200 {
				t.Errorf("%s is answered by %d", link[1], w.Code)
			}
		}
		w := ask(http.MethodPost, base+"/console/session", `{"token":"alice"}`)
		if all := w.Result().Cookies(); w.Code != 200 || len(all) != 1 || all[0].Path != base+"/console" {
			t.Errorf("below %q, the cookies are %v", base, all)
		}
		for address, want := range map[string]bool{base + "/console/": true, base + "/console/access?x": true,
			base + "/console/../api": false, "/clusters/b/console/": false, "/console/access": base == "",
			base + "/api": false} {
			if isPage(address, base+Path) != want {
				t.Errorf("below %q, a page at %s: %v", base, address, !want)
			}
		}
	}
}
