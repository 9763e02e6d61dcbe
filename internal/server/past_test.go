package server

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"plinth/internal/access"
	"plinth/internal/auth"
	"plinth/object"
)

// asOf is the query of a request for the past.
func asOf(revision string) string { return "?resourceVersionMatch=Exact&resourceVersion=" + revision }

func versionOf(v object.Value) string { return v.At("metadata", "resourceVersion").Str() }

// What an object was, and the record of who has changed it, are answered in the first plane and in others, beyond what
// watches can continue from, after the object is gone, and after a restart.
//
// SPEC: BEY-4
func TestPast(t *testing.T) {
	s := startPlanes(t, func(c *Config) { c.WatchHistoryBytes = 1 })
	s.create("other", "")
	r := httptest.NewRequest(http.MethodPost, planeMaps, strings.NewReader(mapOf("for", "jane")))
	r.Host = "127.0.0.1"
	r.Header = http.Header{"Content-Type": {"application/yaml"}, "Impersonate-User": {"jane"},
		"Impersonate-Group": {access.Masters}}
	r = r.WithContext(auth.As(r.Context(), &access.Identity{User: access.User{Name: "admin",
		Groups: []string{access.Masters, "system:authenticated"}}}))
	w := httptest.NewRecorder()
	s.handler().ServeHTTP(w, r)
	made := s.want(200, "", http.MethodGet, planeMaps+"/for?history", "").At("changes").Items()
	if len(made) != 1 || made[0].At("user").Str() != "jane" || made[0].At("impersonator").Str() != "admin" ||
		made[0].At("auditID").Str() == "" || made[0].At("auditID").Str() != w.Header().Get("Audit-ID") {
		t.Errorf("%d: the record of what admin has made as jane is %v", w.Code, made)
	}
	first := map[string]string{}
	last := map[string]string{}
	for _, plane := range []string{"", "other"} {
		first[plane] = versionOf(s.want(201, plane, http.MethodPost, planeMaps+"?fieldManager=maker", mapOf("a", "1")))
		s.want(200, plane, http.MethodPatch, planeMaps+"/a?fieldManager=second",
			`{"data": {"value": "2", "more": "x"}}`)
		s.want(200, plane, http.MethodPatch, planeMaps+"/a?dryRun=All", `{"data": {"value": "never"}}`)
		last[plane] = versionOf(s.want(200, plane, http.MethodPatch, planeMaps+"/a?fieldManager=third",
			`{"data": {"more": null}}`))
		s.want(200, plane, http.MethodDelete, planeMaps+"/a", "")
		s.want(201, plane, http.MethodPost, planeMaps, mapOf("b", "other"))
	}
	check := func() {
		t.Helper()
		for _, plane := range []string{"", "other"} {
			was := s.want(200, plane, http.MethodGet, planeMaps+"/a"+asOf(first[plane]), "")
			if was.At("data", "value").Str() != "1" || versionOf(was) != first[plane] {
				t.Errorf("%q: at %s it was %s", plane, first[plane], object.AppendObject(nil, was))
			}
			s.want(404, plane, http.MethodGet, planeMaps+"/b"+asOf(last[plane]), "")
			list := s.want(200, plane, http.MethodGet, planeMaps+asOf(last[plane])+"&fieldSelector=metadata.name=a", "")
			if items := list.At("items").Items(); len(items) != 1 || items[0].At("data", "value").Str() != "2" ||
				versionOf(list) != last[plane] {
				t.Errorf("%q: at %s the list was %s", plane, last[plane], object.AppendObject(nil, list))
			}
			record := s.want(200, plane, http.MethodGet, planeMaps+"/a?history", "")
			var have []string
			for _, c := range record.At("changes").Items() {
				line := fmt.Sprintf("%s %s %s %s%s", c.At("change").Str(), c.At("user").Str(), c.At("verb").Str(),
					object.AppendObject(nil, c.At("patch")), c.At("object", "data", "value").Str())
				if c.At("verb").Str() != "delete" {
					line += " " + c.At("manager").Str()
				}
				have = append(have, line)
			}
			want := []string{
				`deleted admin delete null2`,
				`modified admin patch {"data":{"more":null}} third`,
				`modified admin patch {"data":{"more":"x","value":"2"}} second`,
				`created admin create null1 maker`,
			}
			if !slices.Equal(have, want) || !record.At("complete").Bool() {
				t.Fatalf("%q: the record is (complete: %t)\n%s", plane, record.At("complete").Bool(),
					strings.Join(have, "\n"))
			}
			// The same by the time that the record has of each change.
			for _, c := range record.At("changes").Items() {
				list := s.want(200, plane, http.MethodGet, planeMaps+"?asOf="+c.At("time").Str(), "")
				if versionOf(list) != c.At("resourceVersion").Str() {
					t.Errorf("%q: a list as of %v is one of %s", plane, c.At("time"), versionOf(list))
				}
				code := 200
				if c.At("change").Str() == "deleted" {
					code = 404
				}
				if was := s.want(code, plane, http.MethodGet, planeMaps+"/a?asOf="+c.At("time").Str(),
					""); code == 200 &&
					versionOf(was) != c.At("resourceVersion").Str() {
					t.Errorf("%q: as of %v it was %s", plane, c.At("time"), object.AppendObject(nil, was))
				}
			}
			var paged []string
			for next := ""; ; {
				page := s.want(200, plane, http.MethodGet, planeMaps+"/a?history&limit=1&continue="+next, "")
				for _, c := range page.At("changes").Items() {
					paged = append(paged, string(object.AppendObject(nil, c)))
				}
				if next = page.At("metadata", "continue").Str(); next == "" {
					break
				}
			}
			for i, c := range record.At("changes").Items() {
				if i >= len(paged) || paged[i] != string(object.AppendObject(nil, c)) {
					t.Fatalf("%q: in pages the record is\n%s", plane, strings.Join(paged, "\n"))
				}
			}
		}
	}
	check()
	s = s.restarted()
	check()
	// The window of watches ends, and the past does not: so many bytes that the log is trimmed.
	large := strings.Repeat("x", 100_000)
	for i := range 100 {
		s.want(201, "", http.MethodPost, planeMaps, mapOf(fmt.Sprint("large-", i), large))
		s.want(200, "", http.MethodDelete, planeMaps+fmt.Sprint("/large-", i), "")
	}
	watch := s.want(200, "", http.MethodGet, planeMaps+"?watch=1&timeoutSeconds=1&resourceVersion="+first[""], "")
	if watch.At("object", "reason").Str() != "Expired" {
		t.Errorf("a watch goes on from %s: %s", first[""], object.AppendObject(nil, watch))
	}
	check()
	s = s.restarted()
	check()
	figures := figuresOf(t, s.plane.Storage.Collectors())
	// The revision is that of all planes.
	if revision := float64(s.plane.Store.Revision()); figures["plinth_past_packs"] < 1 ||
		figures["plinth_past_bytes"] < 1000 || figures["plinth_past_revision"] < revision/2 ||
		figures["plinth_past_revision"] > revision+20 || figures["plinth_past_seconds"] <= 0 ||
		figures["plinth_past_seconds"] > 3600 {
		t.Errorf("at %g the figures are %v", revision, figures)
	}
	for _, name := range []string{"plinth_past_failures_total", "plinth_past_failing_seconds"} {
		if value, ok := figures[name]; !ok || value != 0 {
			t.Errorf("%s is %v, %t", name, value, ok)
		}
	}
	s.want(404, "", http.MethodGet, planeMaps+"/nobody?history", "")
	s.want(400, "", http.MethodGet, planeMaps+"/a?history&continue=x", "")
	s.want(400, "", http.MethodGet, planeMaps+"/a"+asOf("0"), "")
	s.want(410, "", http.MethodGet, planeMaps+"/a?asOf=2001-01-01T00:00:00Z", "")
	now := "asOf=2100-01-01T00:00:00Z"
	for _, query := range []string{"asOf=yesterday", now + "&resourceVersion=7", now + "&watch=1"} {
		s.want(400, "", http.MethodGet, planeMaps+"?"+query, "")
	}
	s.want(400, "", http.MethodDelete, planeMaps+"?"+now, "")
	s.want(404, "", http.MethodGet, planeMaps+"/a?"+now, "")
	page := s.want(200, "", http.MethodGet, planeMaps+"?limit=1&"+now, "")
	next := page.At("metadata", "continue").Str()
	rest := s.want(200, "", http.MethodGet, planeMaps+"?"+now+"&continue="+next, "")
	if next == "" || len(rest.At("items").Items()) == 0 || versionOf(rest) != versionOf(page) {
		t.Errorf("what follows %s is %s", object.AppendObject(nil, page), object.AppendObject(nil, rest))
	}
	s.want(410, "other", http.MethodGet, planeMaps+"/a"+asOf("1"), "") // the plane has begun later
	s = s.restarted(func(c *Config) { c.Past.Retention = 0 })
	s.want(410, "", http.MethodGet, planeMaps+"/a"+asOf(first[""]), "")
	s.want(400, "", http.MethodGet, planeMaps+"/a?"+now, "")
	// What the history of watches still has is answered without a past, too.
	s.want(200, "", http.MethodPatch, planeMaps+"/b", `{"data": {"value": "again"}}`)
	record := s.want(200, "", http.MethodGet, planeMaps+"/b?history", "").At("changes").Items()
	if len(record) == 0 || record[0].At("patch", "data", "value").Str() != "again" {
		t.Errorf("without a past the record is %v", record)
	}
	undo := s.want(200, "", http.MethodGet, planeMaps+"/b?undo", "")
	if undo.At("object", "data", "value").Str() != "other" {
		t.Errorf("without a past an undo is %s", object.AppendObject(nil, undo))
	}
	s.want(404, "", http.MethodGet, planeMaps+"/a?history", "")
	if figures := figuresOf(t, s.plane.Storage.Collectors()); len(figures) == 0 || slices.ContainsFunc(
		slices.Collect(maps.Keys(figures)), func(name string) bool { return strings.HasPrefix(name, "plinth_past") }) {
		t.Errorf("without a past the figures are %v", figures)
	}
}

// figuresOf are the metrics without labels of collectors.
func figuresOf(t *testing.T, all []prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	for _, c := range all {
		registry.MustRegister(c)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	figures := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			if len(m.Label) == 0 {
				figures[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return figures
}
