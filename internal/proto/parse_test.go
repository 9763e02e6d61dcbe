package proto_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"plinth/internal/builtin"
	"plinth/internal/engine"
	"plinth/internal/proto"
	"plinth/object"
	"plinth/schema"
)

// vectors is the folder of k8s.io/api that holds a filled-in object of every kind in every format.
func vectors(tb testing.TB, release string) string {
	tb.Helper()
	dir, err := apiModule()
	if err != nil {
		tb.Fatal(err)
	}
	return filepath.Join(dir, "testdata", release)
}

var apiModule = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/api").Output()
	return strings.TrimSpace(string(out)), err
})

// kinds are the built-in types by the names of their vectors: "apps.v1.Deployment".
func kinds() map[string]*engine.Resource {
	all := map[string]*engine.Resource{}
	for _, r := range builtin.Resources(builtin.Config{}.Every()) {
		group := r.Group
		if group == "" {
			group = "core"
		}
		all[group+"."+r.Version+"."+r.Kind] = r
	}
	return all
}

// withoutVectors are the groups whose modules have no vectors; see TestDefinitions.
var withoutVectors = []string{"apiextensions.k8s.io", "apiregistration.k8s.io"}

// A body in protobuf is parsed as the same value as in JSON.
// SPEC: MED-3
func TestParseVectors(t *testing.T) {
	dir := vectors(t, "HEAD")
	found := 0
	for name, r := range kinds() {
		if slices.Contains(withoutVectors, r.Group) {
			continue
		}
		pb, err := os.ReadFile(filepath.Join(dir, name+".pb"))
		if err != nil {
			t.Errorf("no vector: %v", err)
			continue
		}
		found++
		text, err := os.ReadFile(filepath.Join(dir, name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := object.ParseJSON(text)
		if err != nil {
			t.Fatal(err)
		}
		want, err := r.Schema().Decode(parsed.Value)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		value, err := proto.Parse(r.Schema(), pb)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := r.Schema().Decode(value)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if a, b := object.AppendObject(nil, got.Value), object.AppendObject(nil, want.Value); string(a) != string(b) {
			t.Errorf("%s:\nprotobuf %s\njson     %s", name, a, b)
		}
	}
	if found < 65 {
		t.Errorf("only %d vectors", found)
	}
}

// Messages that the generated code refuses are in testdata/recorded.txt. These are messages that it reads although no
// JSON corresponds to them, and messages that exceed limits of this package alone. SPEC: MED-3, WRITE-6
func TestParseRefuses(t *testing.T) {
	pod, definition := kinds()["core.v1.Pod"].Schema(), kinds()[definitions].Schema()
	whole, err := os.ReadFile(filepath.Join(vectors(t, "HEAD"), "core.v1.Pod.pb"))
	if err != nil {
		t.Fatal(err)
	}
	const noFloat, overflow = "is no finite number", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
	for _, c := range []struct {
		name string
		typ  *schema.Type
		body []byte
		want string
	}{
		{"nothing", pod, nil, "empty data"},
		{"JSON", pod, []byte(`{"kind":"Pod"}`),
			"provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"},
		{"magic cut short", pod, []byte("k8s"),
			"provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"},
		{"magic alone", pod, []byte("k8s\x00"), "empty body"},
		{"cut short", pod, whole[:len(whole)/2], "unexpected EOF"},
		{"a length beyond the end", pod, []byte("k8s\x00\x12\xff\xff\xff\xff\x0f"), "unexpected EOF"},
		{"a group", pod, []byte("k8s\x00\x12\x01\x0b"), "proto: wrong wireType = 3 for field ObjectMeta"},
		{"text where a message belongs", pod, []byte("k8s\x00\x12\x03\x0a\x01x"), "unexpected EOF"},
		{"a number that is too long", pod, enclosed("\x0a" + overflow), "proto: integer overflow"},
		{"one in a group", pod, enclosed("\xa3\x06" + overflow), "proto: integer overflow"},
		{"a port of another wire type", pod, enclosed(nested("\x18\x00", 2, 2, 10, 1, 2, 2)),
			"proto: wrong wireType = 0 for field StrVal"},
		{"no JSON of an object", kinds()["apps.v1.ControllerRevision"].Schema(), enclosed(nested("\x0a\x00", 2)),
			"unexpected end of JSON input"},
		{"a port that is neither", pod, enclosed(nested("\x08\x02", 2, 2, 10, 1, 2, 2)),
			"is neither a number nor text, but 2"},
		{"a float that is none", definition, enclosed(nested("\x49\x00\x00\x00\x00\x00\x00\xf8\x7f", 2, 7, 4, 1)), noFloat},
		{"an infinite one", definition, enclosed(nested("\x49\x00\x00\x00\x00\x00\x00\xf0\x7f", 2, 7, 4, 1)), noFloat},
		{"minus that", definition, enclosed(nested("\x49\x00\x00\x00\x00\x00\x00\xf0\xff", 2, 7, 4, 1)), noFloat},
		{"no JSON", definition, enclosed(nested("{", 2, 7, 4, 1, 8, 1)), "unexpected end of JSON input"},
		{"too deep", definition, enclosed(nots(97, "")), "messages are nested too deep"},
	} {
		v, err := proto.Parse(c.typ, c.body)
		if err == nil || err.Error() != c.want {
			t.Errorf("%s: read as %s, %v; want %s", c.name, object.AppendJSON(nil, v), err, c.want)
		}
	}
	if _, err := proto.Parse(definition, enclosed(nots(96, ""))); err != nil {
		t.Errorf("not too deep: %v", err)
	}
}

const definitions = "apiextensions.k8s.io.v1.CustomResourceDefinition"

// nested is a message nested in others, under these field numbers, the outermost first.
func nested(message string, numbers ...protowire.Number) string {
	for _, number := range slices.Backward(numbers) {
		message = string(protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), message))
	}
	return message
}

// nots is a definition whose schema consists of this many nested schemas, with other content beside each.
func nots(count int, beside string) string {
	message := ""
	for range count {
		message = beside + nested(message, 28)
	}
	return nested(message, 2, 7, 4, 1)
}

func enclosed(message string) []byte { return proto.Envelope{}.Append(nil, []byte(message)) }

// If the envelope can be read and the message cannot, the error carries the apiVersion and kind of the envelope. If the
// object is of another kind, only the envelope is read. SPEC: MED-3
func TestEnvelopes(t *testing.T) {
	pod := kinds()["core.v1.Pod"].Schema()
	_, err := proto.Parse(pod, proto.Envelope{APIVersion: "v2", Kind: "Pod"}.Append(nil, []byte("\x08\x00")))
	var in *proto.MessageError
	if !errors.As(err, &in) || in.APIVersion != "v2" || in.Kind != "Pod" ||
		err.Error() != "proto: wrong wireType = 0 for field ObjectMeta" {
		t.Errorf("%#v", err)
	}
	if empty, err := proto.Parse(pod, enclosed("")); err != nil || empty.Kind() != object.Map || empty.Len() > 0 {
		t.Errorf("an empty message is parsed as %s, %v", object.AppendJSON(nil, empty), err)
	}
	if metadata := proto.Metadata(nil); metadata != nil {
		t.Errorf("no message has metadata %x", metadata)
	}
	other, err := proto.Parse(pod, proto.Envelope{APIVersion: "v1", Kind: "Node"}.Append(nil, []byte("\x08\x00")))
	if text := string(object.AppendJSON(nil, other)); err != nil || text != `{"apiVersion":"v1","kind":"Node"}` {
		t.Errorf("%s, %v", text, err)
	}
	for text, want := range map[string]proto.Envelope{
		`{"apiVersion":"v1","kind":"Pod","metadata":{}}`: {APIVersion: "v1", Kind: "Pod"},
		`{"kind":"\u00e9"}`: {Kind: "é"},
		`{"metadata":{"apiVersion":"v1"},"apiVersion":"v1","kind":"a"}`: {},
		`{}`: {},
	} {
		if have := proto.EnvelopeOf([]byte(text)); have != want {
			t.Errorf("%s: %+v, want %+v", text, have, want)
		}
	}
}

// Bytes in a map may be empty or null. SPEC: MED-3
func TestEmptyBytes(t *testing.T) {
	configMap := kinds()["core.v1.ConfigMap"].Schema()
	v, err := proto.Parse(configMap, enclosed(nested("k", 3, 1)))
	if text := string(object.AppendJSON(nil, v)); err != nil || text != `{"binaryData":{"k":""}}` {
		t.Errorf("%s, %v", text, err)
	}
	b, err := proto.AppendMessage(nil, configMap, []byte(`{"binaryData":{"k":null,"l":""}}`), 0, 0)
	if want := nested("k", 3, 1) + "\x1a\x05\x0a\x01l\x12\x00"; err != nil || !strings.HasSuffix(string(b), want) {
		t.Errorf("%x, %v; want %x", b, err, want)
	}
}

// A message may arrive in parts, at every level. The cost of reading it is linear in its length. SPEC: MED-3
func TestPartsAreReadOnce(t *testing.T) {
	definition := kinds()[definitions].Schema()
	for _, c := range []struct{ name, message string }{
		{"many", strings.Repeat(nested("\x08\x00", 2, 4), 50_000)},
		{"two at each level", nots(40, "\xe2\x01\x00")},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := proto.Parse(definition, enclosed(c.message))
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; err != nil || used > 30<<20 {
			t.Errorf("%s: %d bytes take %d bytes of memory (%v)", c.name, len(c.message), used, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	types := []string{"core.v1.Pod", "apps.v1.Deployment", "autoscaling.v2.HorizontalPodAutoscaler", "core.v1.Secret",
		"flowcontrol.apiserver.k8s.io.v1.FlowSchema"}
	all := kinds()
	for i, name := range types {
		pb, err := os.ReadFile(filepath.Join(vectors(f, "HEAD"), name+".pb"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(i, pb)
	}
	f.Fuzz(func(t *testing.T, i int, body []byte) {
		r := all[types[uint(i)%uint(len(types))]]
		v, err := proto.Parse(r.Schema(), body)
		if err != nil {
			return
		}
		decoded, err := r.Schema().Decode(v)
		if err != nil {
			return
		}
		printed := object.AppendObject(nil, decoded.Value)
		if _, err := object.ParseJSON(printed); err != nil {
			t.Errorf("printed as %s: %v", printed, err)
		}
	})
}

// As in the generated code, a key or a value of a map entry may reach beyond the entry. Many such entries would take
// time quadratic in the length of the body, so they are refused.
//
// SPEC: WRITE-6
func TestEntriesThatReachBeyondTheirEnds(t *testing.T) {
	typ := kinds()["core.v1.ConfigMap"].Schema()
	parse := func(entries int) (object.Value, error) {
		var raw []byte
		for i := range entries { // the key of each is all bytes after it, with a length of four bytes
			length := 7 * (entries - i - 1)
			raw = append(raw, 0x12, 5, 0x0a, byte(length)|0x80, byte(length>>7)|0x80, byte(length>>14)|0x80, byte(length>>21))
		}
		return proto.Parse(typ, proto.Envelope{APIVersion: "v1", Kind: "ConfigMap"}.Append(nil, raw))
	}
	if v, err := parse(10); err != nil || v.At("data").Len() != 10 {
		t.Errorf("10 entries: have %v, %v, want 10 keys", v, err)
	}
	const want = "entries of maps reach too far beyond their ends"
	if v, err := parse(4000); err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("4,000 entries: have %d keys and the error %v, want %q", v.At("data").Len(), err, want)
	}
}

// The bound on bytes after the ends of entries is exact, and is not touched by entries that end where they should.
func TestReachOfEntries(t *testing.T) {
	const entries, filler = 40, 1000
	parse := func(total int) error {
		var raw []byte
		for range entries { // its key is the bytes after it, with a length of four bytes
			length := min(total, filler)
			total -= length
			raw = append(raw, 0x12, 5, 0x0a, byte(length)|0x80, byte(length>>7)|0x80, byte(length>>14)|0x80, byte(length>>21))
		}
		raw = protowire.AppendBytes(protowire.AppendTag(raw, 15, protowire.BytesType), make([]byte, filler))
		_, err := proto.Parse(kinds()["core.v1.ConfigMap"].Schema(), enclosed(string(raw)))
		return err
	}
	const bound = 4096 + 16*(7*entries+3+filler)
	if err := parse(bound); err != nil {
		t.Error(err)
	}
	if err := parse(bound + 1); err == nil {
		t.Error("one byte more is read")
	}
}

// The parts of a message that arrives twice are read as one, but each has to be whole: its last field does not go on in
// the next part.
// SPEC: MED-3
func TestPartsAreWhole(t *testing.T) {
	service := kinds()["core.v1.Service"].Schema()
	name := []byte("\x52\x05abcde") // spec.externalName
	part := func(b []byte) []byte { return append([]byte{0x12, byte(len(b))}, b...) }
	for cut := range len(name) + 1 {
		v, err := proto.ParseMessage(service, append(part(name[:cut]), part(name[cut:])...))
		whole := cut == 0 || cut == len(name)
		if whole && (err != nil || v.At("spec", "externalName").Str() != "abcde") || !whole && err == nil {
			t.Errorf("cut at %d: %v, %v", cut, v, err)
		}
	}
	twice := append(append(part(name), part([]byte("\x52\x01x"))...), part([]byte("\x52\x05y"))...)
	if _, err := proto.ParseMessage(service, twice); err == nil {
		t.Error("the third part is read, and is not whole")
	}
}
