package discovery

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"plinth/internal/apierr"
	"plinth/internal/builtin"
	"plinth/internal/engine"
	"plinth/object"
)

// The tests compare with the responses of the reference, with --feature-gates=CBORServingAndStorage=true, as recorded
// by the last run of
//
//	go test ./internal/discovery -rewrite -reference https://127.0.0.1:PORT -token admintoken
var (
	rewrite   = flag.Bool("rewrite", false, "record the reference's documents under testdata")
	reference = flag.String("reference", "", "URL of a running reference server")
	token     = flag.String("token", "admintoken", "bearer token for it")
)

var aggregatedJSON = mediaJSON + aggregatedParams

// ask gets a document from the reference.
func ask(t testing.TB, path, accept string) []byte {
	t.Helper()
	if *reference == "" {
		t.Fatal("-rewrite needs -reference")
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	rq, err := http.NewRequest(http.MethodGet, *reference+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	rq.Header.Set("Authorization", "Bearer "+*token)
	rq.Header.Set("Accept", accept)
	resp, err := client.Do(rq)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %v", path, resp.Status, err)
	}
	return body
}

// recorded is the discovery of the reference: a line each of URL, Accept header and JSON, separated by tabs.
type recorded struct{ path, accept, body string }

const discoveryFile = "testdata/discovery.txt"

func recordedDiscovery(t testing.TB) []recorded {
	t.Helper()
	if *rewrite {
		recordDiscovery(t)
	}
	data, err := os.ReadFile(discoveryFile)
	if err != nil {
		t.Fatal(err)
	}
	var docs []recorded
	scanner := bufio.NewScanner(bytes.NewReader(data))
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		parts := strings.Split(scanner.Text(), "\t")
		docs = append(docs, recorded{parts[0], parts[1], parts[2]})
	}
	return docs
}

func recordDiscovery(t testing.TB) {
	var out bytes.Buffer
	add := func(path, accept string) object.Value {
		v := parse(t, ask(t, path, accept))
		fmt.Fprintf(&out, "%s\t%s\t%s\n", path, accept, object.AppendJSON(nil, v))
		return v
	}
	add("/version", mediaJSON)
	add("/api", mediaJSON)
	add("/api", aggregatedJSON)
	add("/apis", aggregatedJSON)
	add("/api/v1", mediaJSON)
	for _, g := range add("/apis", mediaJSON).At("groups").Items() {
		add("/apis/"+g.At("name").Str(), mediaJSON)
		for _, v := range g.At("versions").Items() {
			add("/apis/"+v.At("groupVersion").Str(), mediaJSON)
		}
	}
	if err := os.WriteFile(discoveryFile, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

func parse(t testing.TB, data []byte) object.Value {
	t.Helper()
	p, err := object.ParseJSON(data)
	if err != nil {
		t.Fatalf("%v in %.200s", err, data)
	}
	return p.Value
}

// recordedResources makes a table of types from the recorded discovery, which has everything but schemas.
func recordedResources(t testing.TB) []*engine.Resource {
	t.Helper()
	var all []*engine.Resource
	referenceStorage := map[apierr.Type]string{}
	for _, r := range builtin.Resources(builtin.Config{}) {
		if r.Stored != nil {
			referenceStorage[r.Type()] = storageVersionOf(r).version
		}
	}
	byHash, kinds := map[string]*engine.Resource{}, map[*engine.Resource]string{}
	for _, doc := range recordedDiscovery(t) {
		v := parse(t, []byte(doc.body))
		if v.At("kind").Str() != "APIResourceList" {
			continue
		}
		group, version, ok := strings.Cut(v.At("groupVersion").Str(), "/")
		if !ok {
			group, version = "", group
		}
		resources := map[string]*engine.Resource{}
		for _, item := range v.At("resources").Items() {
			name, sub, isSub := strings.Cut(item.At("name").Str(), "/")
			if isSub {
				s := &engine.Subresource{Name: sub, Kind: item.At("kind").Str(), Verbs: texts(item.At("verbs"))}
				s.Group, s.Version = group, version
				if foreign := item.At("version").Str(); foreign != "" {
					s.Group, s.Version = item.At("group").Str(), foreign
				}
				resources[name].Subresources = append(resources[name].Subresources, s)
				continue
			}
			r := &engine.Resource{
				Naming: engine.Naming{
					Group: group, Version: version, Name: name, Singular: item.At("singularName").Str(),
					Kind: item.At("kind").Str(), ListKind: item.At("kind").Str() + "List",
					Namespaced: item.At("namespaced").Bool(), ShortNames: texts(item.At("shortNames")),
					Categories: texts(item.At("categories")), Verbs: texts(item.At("verbs")),
				},
			}
			if hash := item.At("storageVersionHash").Str(); hash != "" {
				kinds[r] = hash
				if byHash[hash] == nil || (storageVersion{group, version, r.Kind}).hash() == hash {
					byHash[hash] = r
				}
			}
			resources[name] = r
			all = append(all, r)
		}
	}
	// Types with one hash share a stored kind: the one whose name the hash is computed from.
	for _, r := range all {
		if hash := kinds[r]; hash != "" {
			first := byHash[hash]
			if first.Stored == nil {
				first.StoredAlone("/" + hash)
			}
			r.Stored, r.Served = first.Stored, engine.VersionOf(r)
			r.Stored.ReferenceStorage = referenceStorage[apierr.Type{Group: r.Group, Name: r.Name}]
		}
	}
	return all
}

func texts(list object.Value) []string {
	var s []string
	for _, item := range list.Items() {
		s = append(s, item.Str())
	}
	return s
}
