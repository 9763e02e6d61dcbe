package httpapi

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Equal entity tags stand for equal bytes, whatever representation a client requests, and If-None-Match with the tag of
// an answer gives 304 as long as the object does not change.
//
// SPEC: WRITE-5
func TestEntityTags(t *testing.T) {
	s := newServer(t, nil)
	s.create(configMaps, `{"metadata":{"name":"small"},"data":{"k":"v"}}`)
	s.create(configMaps, `{"metadata":{"name":"large"},"data":{"k":"`+strings.Repeat("v", compressFrom)+`"}}`)
	const meta = ";g=meta.k8s.io;v=v1;as="
	tags := 0
	for _, name := range []string{"small", "large"} {
		bytesOf, versions := map[string]string{}, map[string]bool{}
		for round := range 2 {
			for _, accept := range []string{
				"application/json", "application/yaml", "application/cbor", "application/vnd.kubernetes.protobuf",
				"application/json" + meta + "PartialObjectMetadata",
				"application/json;g=meta.k8s.io;v=v1beta1;as=PartialObjectMetadata",
				"application/vnd.kubernetes.protobuf" + meta + "PartialObjectMetadata",
				"application/json;drop=metadata.managedFields", "application/cbor;drop=metadata.managedFields",
			} {
				for _, encoding := range []string{"", "gzip"} {
					for _, query := range []string{"", "?pretty=1"} {
						header := []string{"Accept", accept, "Accept-Encoding", encoding}
						got := s.do("GET", configMaps+"/"+name+query, "", header...)
						tag := got.header.Get("Etag")
						if got.code != 200 || len(tag) < 5 || tag[0] != '"' ||
							strings.Join(got.header["Vary"], "|") != "Accept, Accept-Encoding" {
							t.Fatalf("%q: %d, ETag %q, Vary %q", header, got.code, tag, got.header["Vary"])
						}
						if had, ok := bytesOf[tag]; ok && had != got.body {
							t.Errorf("round %d: the answers %[3].300q and %[4].300q have the same tag %[2]s", round, tag, had, got.body)
						}
						bytesOf[tag] = got.body
						version, _, _ := strings.Cut(tag, ".")
						versions[version] = true
						again := s.do("GET", configMaps+"/"+name+query, "", append(header, "If-None-Match", tag)...)
						if again.code != 304 || again.body != "" || again.header.Get("Etag") != tag ||
							again.header.Get("Vary") != "Accept, Accept-Encoding" {
							t.Errorf("%q: again: %d %q %v", header, again.code, again.body, again.header)
						}
					}
				}
			}
			s.do("PATCH", configMaps+"/"+name, `{"data":{"round":"1"}}`, "Content-Type", "application/merge-patch+json")
		}
		if tags += len(bytesOf); len(versions) != 2 {
			t.Errorf("versions %v", versions)
		}
	}
	if tags < 2*2*24 {
		t.Errorf("only %d tags", tags)
	}
}

// SPEC: WRITE-5
func TestIfNoneMatchOfReads(t *testing.T) {
	s := newServer(t, nil)
	s.create(configMaps, `{"metadata":{"name":"a"}}`)
	first := s.do("GET", configMaps+"/a", "").header.Get("Etag")
	version, _, _ := strings.Cut(strings.Trim(first, `"`), ".")
	s.do("PATCH", configMaps+"/a", `{"data":{"k":"v"}}`, "Content-Type", "application/merge-patch+json")
	tag := s.do("GET", configMaps+"/a", "").header.Get("Etag")
	yaml := s.do("GET", configMaps+"/a", "", "Accept", "application/yaml").header.Get("Etag")
	now, _, _ := strings.Cut(strings.Trim(tag, `"`), ".")
	for _, c := range []struct {
		header string
		code   int
	}{
		{tag, 304}, {"W/" + tag, 304}, {first + ", " + tag, 304}, {", ," + tag + ",", 304}, {"*", 304},
		{first, 200}, {yaml, 200}, {`"` + now + `"`, 200}, {now, 200}, {`""`, 200}, {`"a,b", "*"`, 200},
		{strings.Trim(tag, `"`), 400}, {`"`, 400}, {"", 400}, {",", 400}, {"*, " + tag, 400}, {tag + ", *", 400},
		{tag + tag, 400},
		{`"a b"`, 400}, {"w/" + tag, 400}, {"W/5", 400}, {"W/*", 400}, {"5 6", 400}, {"* *", 400}, {"-5", 400}, {"W/", 400},
	} {
		if got := s.do("GET", configMaps+"/a", "", "If-None-Match", c.header); got.code != c.code {
			t.Errorf("%s: %d %s, want %d", c.header, got.code, got.body, c.code)
		}
	}
	for _, c := range []struct {
		header []string
		code   int
	}{
		{[]string{"If-Match", now}, 200}, {[]string{"If-Match", version}, 412}, {[]string{"If-Match", first}, 412},
		{[]string{"If-Match", `"`}, 400},
		{[]string{"If-Match", version, "If-None-Match", tag}, 412}, {[]string{"If-Match", tag, "If-None-Match", tag}, 304},
		{[]string{"If-None-Match", "*", "Accept", "application/json;as=Table;g=meta.k8s.io;v=v1"}, 200}, // Tables have no tag
	} {
		if got := s.do("GET", configMaps+"/a", "", c.header...); got.code != c.code {
			t.Errorf("%q: %d %s, want %d", c.header, got.code, got.body, c.code)
		}
	}
	if got := s.do("GET", configMaps+"/nobody", "", "If-Match", "5"); got.code != 404 { // as without If-Match
		t.Errorf("If-Match on an object that does not exist: %d", got.code)
	}
}

// SPEC: WRITE-5
func TestWhatHasNoEntityTag(t *testing.T) { inBubble(t, nil, testWhatHasNoEntityTag) }

func testWhatHasNoEntityTag(t *testing.T, s *server) {
	s.create(configMaps, `{"metadata":{"name":"a"}}`)
	const merge = "application/merge-patch+json"
	for _, c := range []struct {
		method, path, body, accept string
		code                       int
	}{
		{"GET", configMaps + "/a", "", "application/json;as=Table;g=meta.k8s.io;v=v1", 200},
		{"GET", configMaps, "", "", 200},
		{"GET", configMaps + "/nobody", "", "", 404},
		{"GET", configMaps + "/a", "", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", 406},
		{"GET", configMaps + "?watch=1&timeoutSeconds=1", "", "", 200},
		{"POST", configMaps + "?dryRun=All", `{"metadata":{"name":"b"}}`, "", 201},
		{"PUT", configMaps + "/a?dryRun=All", `{"metadata":{"name":"a"},"data":{"k":"v"}}`, "", 200},
		{"PUT", configMaps + "/a?dryRun=All", `{"metadata":{"name":"a"}}`, "", 200},
		{"PATCH", configMaps + "/a?dryRun=All", `{"data":{"k":"v"}}`, "", 200},
		{"DELETE", configMaps + "/a?dryRun=All", "", "", 200},
		{"DELETE", configMaps + "?dryRun=All", "", "", 200},
		{"POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
			`{"spec":{"nonResourceAttributes":{"path":"/","verb":"get"}}}`, "", 201},
		{"DELETE", configMaps + "/a", "", "", 200},
	} {
		header := []string{"Accept", c.accept}
		if c.method == "PATCH" {
			header = append(header, "Content-Type", merge)
		}
		got := s.do(c.method, c.path, c.body, header...)
		if got.code != c.code || got.header.Get("Etag") != "" {
			t.Errorf("%s %s: %d, ETag %q", c.method, c.path, got.code, got.header.Get("Etag"))
		}
	}
}

// The answer of a write has the tag that a read of the object gets, and the tag of any representation is valid in a
// write.
//
// SPEC: WRITE-5
func TestIfMatchOfWrites(t *testing.T) {
	s := newServer(t, nil)
	const merge, apply = "application/merge-patch+json", "application/apply-patch+yaml"
	body := func(n int) string {
		return fmt.Sprintf(
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","finalizers":["x/y"]},"data":{"k":"%d"}}`, n)
	}
	made := s.do("POST", configMaps, body(0), "If-None-Match", "*")
	stale, tag := `"1"`, made.header.Get("Etag")
	for n, write := range []func(tag string) answer{
		func(tag string) answer { return s.do("PUT", configMaps+"/a", body(1), "If-Match", tag) },
		func(tag string) answer {
			return s.do("PATCH", configMaps+"/a", `{"data":{"k":"2"}}`, "Content-Type", merge, "If-Match", tag)
		},
		func(tag string) answer {
			return s.do("PATCH", configMaps+"/a", `[{"op":"replace","path":"/data/k","value":"3"}]`, "Content-Type",
				"application/json-patch+json", "If-Match", tag)
		},
		func(tag string) answer {
			return s.do("PATCH", configMaps+"/a", `{"data":{"k":"4"}}`, "Content-Type", "application/strategic-merge-patch+json",
				"If-Match", tag)
		},
		func(tag string) answer {
			return s.do("PATCH", configMaps+"/a?fieldManager=m&force=1", body(5), "Content-Type", apply, "If-Match", tag)
		},
		func(tag string) answer { return s.do("DELETE", configMaps+"/a", "", "If-Match", tag) },
		func(tag string) answer {
			return s.do("PATCH", configMaps+"/a", `{"metadata":{"finalizers":null}}`, "Content-Type", merge, "If-Match", tag)
		},
	} {
		if read := s.do("GET", configMaps+"/a", "").header.Get("Etag"); read != tag || tag == "" {
			t.Fatalf("write %d: its answer has the tag %s, a read %s", n, tag, read)
		}
		version, _, _ := strings.Cut(strings.Trim(tag, `"`), ".")
		for _, wrong := range []string{stale, "W/" + tag, `"` + version + `x"`, `"0` + version + `"`, `""`} {
			got := write(wrong)
			if status := got.value(t); got.code != 412 || status.At("reason").Str() != "PreconditionFailed" ||
				status.At("details", "name").Str() != "a" {
				t.Errorf("write %d: If-Match: %s: %d %s", n, wrong, got.code, got.body)
			}
		}
		yaml := s.do("GET", configMaps+"/a", "", "Accept", "application/yaml").header.Get("Etag")
		right := []string{tag, yaml, version, `"` + version + `"`, "*", stale + "," + tag}[n%6]
		got := write(right)
		if got.code != 200 {
			t.Fatalf("write %d: If-Match: %s: %d %s", n, right, got.code, got.body)
		}
		stale, tag = tag, got.header.Get("Etag")
	}
	if tag != "" {
		t.Errorf("the removed object has the tag %s", tag)
	}
	for _, c := range []struct {
		name string
		got  answer
		code int
	}{
		{"an apply to an object that does not exist", s.do("PATCH", configMaps+"/a?fieldManager=m", body(1), "Content-Type",
			apply, "If-Match", "*"), 412},
		{"a PATCH of an object that does not exist", s.do("PATCH", configMaps+"/a", `{}`, "Content-Type", merge, "If-Match",
			"*"), 404},
		{"a PUT that does not create", s.do("PUT", configMaps+"/a", body(1), "If-Match", "*"), 404},
		{"a PUT that does not create", s.do("PUT", configMaps+"/a", body(1), "If-None-Match", "*"), 404},
		{"an apply that creates", s.do("PATCH", configMaps+"/a?fieldManager=m", body(1), "Content-Type", apply,
			"If-None-Match", "*"), 201},
		{"an apply to an existing object", s.do("PATCH", configMaps+"/a?fieldManager=m", body(1), "Content-Type", apply,
			"If-None-Match", "*"), 412},
		{"a PUT to an existing object", s.do("PUT", configMaps+"/a", body(1), "If-None-Match", "*"), 412},
		{"a header and a body", s.do("PUT", configMaps+"/a", strings.Replace(body(1), `"name"`,
			`"resourceVersion":"1","name"`, 1), "If-Match", "*"), 409},
		{"a POST", s.do("POST", configMaps, `{"metadata":{"name":"b"}}`, "If-Match", "*"), 412},
		{"an invalid header", s.do("POST", configMaps, `{"metadata":{"name":"b"}}`, "If-Match", "b"), 400},
		{"a collection", s.do("DELETE", configMaps, "", "If-Match", `"1"`), 412},
		{"an invalid header", s.do("DELETE", configMaps, "", "If-Match", "b"), 400},
	} {
		if c.got.code != c.code {
			t.Errorf("%s: %d %s, want %d", c.name, c.got.code, c.got.body, c.code)
		}
	}
}

// SPEC: WRITE-5
func FuzzReadTags(f *testing.F) {
	for _, header := range []string{`"5.1z.j", W/"6"`, "*", "5,6", `"a,b" , ""`, "*,*", `W/"`, "\x00", `"é"`} {
		f.Add(header)
	}
	f.Fuzz(func(t *testing.T, header string) {
		type tag struct {
			weak   bool
			opaque string
		}
		read := func(lines ...string) (list []tag, star, ok bool) {
			star, ok = readTags(lines, func(weak bool, opaque string) { list = append(list, tag{weak, opaque}) })
			return list, star, ok
		}
		list, star, ok := read(header)
		if !ok {
			return
		}
		if star == (len(list) > 0) {
			t.Fatalf("%q: %v and %v", header, star, list)
		}
		if star {
			if strings.Trim(header, " \t,*") != "" {
				t.Fatalf("%q is parsed as *", header)
			}
			return
		}
		// Printed in strict syntax, one per line, they are parsed as the same tags.
		var strict []string
		for _, tag := range list {
			text := `"` + tag.opaque + `"`
			if tag.weak {
				text = "W/" + text
			}
			strict = append(strict, text)
			if n := versionOf(tag.opaque); n < 0 || n > 0 && !strings.HasPrefix(tag.opaque+".", strconv.FormatInt(n, 10)+".") {
				t.Fatalf("%q names version %d", tag.opaque, n)
			}
		}
		if again, _, ok := read(strict...); !ok || !slices.Equal(again, list) {
			t.Fatalf("%q: %v, %v", header, list, again)
		}
		// The header contained only tags, commas and blanks.
		rest := header
		for _, tag := range list {
			at := strings.Index(rest, tag.opaque)
			if at < 0 || strings.Trim(rest[:at], " \t,W/\"") != "" {
				t.Fatalf("%q: text before the tag %q", header, tag.opaque)
			}
			rest = rest[at+len(tag.opaque):]
		}
		if strings.Trim(rest, " \t,\"") != "" {
			t.Fatalf("%q: text behind the last tag", header)
		}
	})
}
