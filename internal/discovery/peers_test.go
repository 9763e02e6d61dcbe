package discovery

import (
	"slices"
	"strings"
	"testing"

	"plinth/internal/builtin"
	"plinth/internal/engine"
	"plinth/object"
)

// groupsOf makes groups of lines "GROUP VERSION RESOURCE:VERB,VERB+SUBRESOURCE …".
func groupsOf(text string) (groups []object.Value) {
	str := object.StringOf
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		var resources []object.Value
		for _, word := range words[2:] {
			word, sub, has := strings.Cut(word, "+")
			name, verbs, _ := strings.Cut(word, ":")
			r := object.Fields("resource", str(name), "verbs", object.Strings(strings.Split(verbs, ",")...))
			if has {
				r = r.With("subresources", object.ListOf(object.Fields("subresource", str(sub))))
			}
			resources = append(resources, r)
		}
		version := object.Fields("version", str(words[1]), "resources", object.ListOf(resources...))
		if n := len(groups); n > 0 && groupName(groups[n-1]) == words[0] {
			groups[n-1] = groupItem(words[0], append(slices.Clone(groups[n-1].At("versions").Items()), version))
		} else {
			groups = append(groups, groupItem(words[0], []object.Value{version}))
		}
	}
	return groups
}

// linesOf is the inverse of groupsOf.
func linesOf(groups []object.Value) string {
	var b strings.Builder
	for _, g := range groups {
		for _, v := range g.At("versions").Items() {
			b.WriteString(groupName(g) + " " + versionName(v))
			for _, r := range v.At("resources").Items() {
				var verbs []string
				for _, verb := range r.At("verbs").Items() {
					verbs = append(verbs, verb.Str())
				}
				b.WriteString(" " + resourceName(r) + ":" + strings.Join(verbs, ","))
				for _, s := range r.At("subresources").Items() {
					b.WriteString("+" + s.At("subresource").Str())
				}
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

// The groups of several servers are merged in the order of their identities, so that all of them make the same list.
//
// SPEC: URI-12, URI-8
func TestMergedGroups(t *testing.T) {
	for name, test := range map[string]struct{ own, peer, want string }{
		"the same": {"a v1 x:get\nb v1 y:get\n", "a v1 x:get\nb v1 y:get\n", ""},
		"another group": {"a v1 x:get\nc v1 y:get\n", "a v1 x:get\nb v1 y:get\nc v1 y:get\n",
			"a v1 x:get\nb v1 y:get\nc v1 y:get\n"},
		"another version":  {"a v2 x:get\n", "a v2 x:get\na v1 x:get\n", "a v2 x:get\na v1 x:get\n"},
		"another resource": {"a v1 x:get\n", "a v1 w:get x:get\n", "a v1 w:get x:get\n"},
		"fewer":            {"a v1 w:get x:get\nb v1 y:get\n", "a v1 w:get\n", "a v1 w:get x:get\nb v1 y:get\n"},
		"other verbs":      {"a v1 x:get,delete\n", "a v1 x:get,list\n", "a v1 x:delete,get,list\n"},
		"a subresource":    {"a v1 x:get\n", "a v1 x:get+status\n", "a v1 x:get+status\n"},
		"nothing":          {"a v1 x:get\n", "", "a v1 x:get\n"},
	} {
		for _, identity := range []string{"k", "o"} { // before and after that of this server
			groups, changed := mergeGroups(groupsOf(test.own), &Peers{Own: "m",
				By: map[string][]object.Value{identity: groupsOf(test.peer)}})
			got := linesOf(groups)
			if want := test.want; changed != (want != "") || changed && got != want {
				t.Errorf("%s, %s: %v\n%swant\n%s", name, identity, changed, got, want)
			}
		}
	}
	if _, changed := mergeGroups(groupsOf("a v1 x:get\n"), &Peers{Own: "m"}); changed {
		t.Error("without peers, it is not the list of this server")
	}
}

// Aggregated discovery of /apis has what peers serve, in every encoding, unless the client wants to know what this
// server serves alone. Other documents are this server's. A document is made once.
//
// SPEC: URI-12, URI-8
func TestDocumentsHavePeers(t *testing.T) {
	var peers *Peers
	d := New(Config{Registry: engine.NewRegistry(builtin.Resources(builtin.Config{})), Version: testVersion,
		Peers: func() *Peers { return peers }})
	get := getter(t, d)
	const accept = "application/json" + aggregatedParams
	const noPeer = accept + ";profile=nopeer"
	has := func(accept string) bool {
		t.Helper()
		return slices.ContainsFunc(get("/apis", accept).At("items").Items(), func(g object.Value) bool {
			return groupName(g) == "later.example"
		})
	}
	if has(accept) {
		t.Error("a group is there that nobody serves")
	}
	own, _, _ := d.Get("/apis", noPeer)
	if alone, _, _ := d.Get("/apis", accept); alone != own {
		t.Error("without peers, another document is made")
	}
	peers = &Peers{Own: "m", By: map[string][]object.Value{"k": groupsOf("later.example v1 things:get\n")}}
	if !has(accept) || has(noPeer) {
		t.Error("it is not there, or it is in the document of this server alone")
	}
	merged, _, _ := d.Get("/apis", accept)
	if again, _, _ := d.Get("/apis", accept); again != merged || merged.ETag == own.ETag ||
		merged.MediaType != accept || own.MediaType != accept {
		t.Errorf("the documents are %s and %s", merged.MediaType, own.MediaType)
	}
	for _, mediaType := range []string{mediaYAML, mediaProtobuf, mediaCBOR} {
		doc, _, err := d.Get("/apis", mediaType+aggregatedParams)
		if err != nil || doc.ETag != merged.ETag || doc.MediaType != mediaType+aggregatedParams ||
			!strings.Contains(string(doc.Body), "later.example") {
			t.Errorf("%s: %v, %v", mediaType, doc, err)
		}
	}
	for _, path := range []string{"/apis", "/api", "/openapi/v2", "/openapi/v3"} {
		if doc, _, err := d.Get(path, mediaJSON); err != nil {
			t.Error(err)
		} else if text, _ := doc.Plain(); strings.Contains(string(text), "later.example") {
			t.Errorf("%s has what another server serves", path)
		}
	}
	if core := get("/api", accept); len(core.At("items").Items()) != 1 {
		t.Error("/api has something else than the core group")
	}
	if before, now, noPeer := d.Merges(); before != 6 || now != 2 || noPeer != 2 {
		t.Errorf("counted %d, %d, %d", before, now, noPeer)
	}
	d.Drop()
	if !has(accept) {
		t.Error("it is not made again")
	}
}

// SPEC: URI-12
func TestWithout(t *testing.T) {
	groups := groupsOf("a v1 x:get\na v2 x:get\nb v1 y:get\n")
	got := linesOf(Without(groups, func(group, version string) bool { return group == "b" || version == "v1" }))
	if got != "a v2 x:get\n" {
		t.Errorf("left is %q", got)
	}
}
