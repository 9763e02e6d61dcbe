package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	"plinth/conformance/internal/vectors"
	"plinth/internal/gotypes"
	"plinth/internal/proto"
	"plinth/object"
	"plinth/schema"
)

// message encodes a value of a type, without the envelope.
func message(t *testing.T, typ *schema.Type, v object.Value) []byte {
	t.Helper()
	text := object.AppendObject(nil, v)
	enclosed, err := proto.AppendObject(nil, typ, text)
	if err != nil {
		t.Fatalf("%s: %s: %v", typ.GoName, text, err)
	}
	var unknown runtime.Unknown
	if err := unknown.Unmarshal(enclosed[len("k8s\x00"):]); err != nil {
		t.Fatalf("%s: %v", typ.GoName, err)
	}
	return unknown.Raw
}

// enclose puts a message into an envelope.
func enclose(t *testing.T, message []byte) []byte {
	t.Helper()
	unknown := runtime.Unknown{Raw: message}
	b, err := unknown.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte("k8s\x00"), b...)
}

// compareMessages encodes one value with both, as it is and as it is stored, and decodes each other's message. It says
// whether the value has the type and the type has a message.
func compareMessages(t *testing.T, typ reflect.Type, input object.Value) bool {
	t.Helper()
	compiled := gotypes.OfType(typ)
	into, ok := reflect.New(typ).Interface().(protobuf)
	decoded, err := compiled.Decode(input)
	if !ok || err != nil {
		return false
	}
	if _, err := kjson.UnmarshalStrict(object.AppendJSON(nil, input), into); err != nil {
		return false
	}
	forget(reflect.ValueOf(into).Elem())
	want, err := into.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if got := message(t, compiled, decoded.Value); !bytes.Equal(got, want) {
		t.Errorf("%s: %s\n ours %x\nwant %x", typ, object.AppendJSON(nil, input), got, want)
	}
	back := reflect.New(typ).Interface().(protobuf)
	if err := back.Unmarshal(want); err != nil {
		t.Fatal(err)
	}
	stored, err := back.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if got := message(t, compiled, compiled.Settle(decoded.Value)); !bytes.Equal(got, stored) {
		t.Errorf("%s: stored: %s\n ours %x\nwant %x", typ, object.AppendJSON(nil, input), got, stored)
	}
	compareRead(t, typ, want)
	return true
}

// forget replaces empty bytes by nil where JSON omits them: we store what JSON can represent, which does not include
// them.
func forget(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			forget(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			forget(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Field(i)
			if f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Uint8 {
				if f.Len() == 0 && f.CanSet() && strings.Contains(v.Type().Field(i).Tag.Get("json"), ",omitempty") {
					f.SetZero()
				}
			} else {
				forget(f)
			}
		}
	}
}

// farYear matches our error for a time beyond the years 0000 to 9999, which JSON cannot represent (RFC 3339).
var farYear = regexp.MustCompile(`^decode: parsing time "(-|[0-9]{5,}-)`)

// compareRead decodes a message with both and says whether that is possible.
func compareRead(t *testing.T, typ reflect.Type, message []byte) bool {
	t.Helper()
	compiled := gotypes.OfType(typ)
	back := reflect.New(typ).Interface().(protobuf)
	refused := back.Unmarshal(message)
	quoteManagers(reflect.ValueOf(back))
	if refused == nil {
		_, refused = json.Marshal(back) // only we detect invalid JSON in a field of JSON
	}
	got, err := readMessage(compiled, enclose(t, message))
	switch {
	case err != nil && refused == nil && farYear.MatchString(err.Error()):
		// The reference accepts it and responds with a time that no client can decode.
		return false
	case (err == nil) != (refused == nil):
		t.Errorf("%s: %x: we say %v, they %v", typ, message, err, refused)
	case err == nil:
		// The reference encodes empty fields as null; we omit them.
		if got, want := withoutEmpty.Replace(got), withoutEmpty.Replace(sortedJSON(t, back)); got != want {
			at := 0
			for at < min(len(got), len(want)) && got[at] == want[at] {
				at++
			}
			from := max(0, at-80)
			t.Errorf("%s: %x is read, at %d,\n as   %.200s\nnot as %.200s", typ, message, at, got[from:], want[from:])
		}
	}
	return refused == nil
}

// withoutEmpty removes the members with empty JSON.
var withoutEmpty = strings.NewReplacer(`"fieldsV1":null,`, "", `,"fieldsV1":null`, "", `"fieldsV1":null`, "",
	`"data":null,`, "", `,"parameters":null`, "", `"parameters":null,`, "")

// quoteManagers replaces fieldsV1 that are not JSON by strings, as JSON cannot represent them: the reference decodes
// them and ignores them later, and we decode them to a string.
func quoteManagers(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if fields, ok := v.Interface().(*metav1.FieldsV1); ok && fields != nil {
			if raw := fields.GetRawBytes(); len(raw) > 0 && !json.Valid(raw) {
				text, err := json.Marshal(string(raw))
				if err != nil {
					panic(err) // a string can always be encoded
				}
				fields.SetRawBytes(text)
			}
			return
		}
		if !v.IsNil() {
			quoteManagers(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				quoteManagers(v.Field(i))
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			quoteManagers(v.Index(i))
		}
	}
}

func readMessage(typ *schema.Type, body []byte) (string, error) {
	value, err := proto.Parse(typ, body)
	if err != nil {
		return "", err
	}
	decoded, err := typ.Decode(value)
	if err != nil {
		return "", fmt.Errorf("decode: %w", err)
	}
	return string(object.AppendJSON(nil, decoded.Value)), nil
}

// Every field of every struct, with every replacement.
//
// SPEC: MED-3
func TestEveryFieldInProtobuf(t *testing.T) {
	inputs := make([]object.Value, len(replacements))
	for i, text := range replacements {
		inputs[i] = parse(t, []byte(text))
	}
	same, structs := 0, 0
	for _, typ := range allStructs(t) {
		if compareMessages(t, typ, object.Fields()) {
			structs++
		}
		for _, f := range gotypes.OfType(typ).Fields {
			for _, input := range inputs {
				if compareMessages(t, typ, object.Fields(f.Name, input)) {
					same++
				}
			}
		}
	}
	t.Logf("%d messages of %d structs", same, structs)
	if structs < 750 || same < 40_000 {
		t.Errorf("%d messages of %d structs were compared", same, structs)
	}
}

// SPEC: MED-3
func TestMutatedVectorsInProtobuf(t *testing.T) {
	list := vectors.All(t)
	start := *seed
	same := 0
	for i := range *cases {
		random := rand.New(rand.NewPCG(start, uint64(i)))
		v := list[i%len(list)]
		input := parse(t, v.JSON)
		for range random.IntN(4) {
			input = mutate(random, input)
		}
		if compareMessages(t, v.Type, input) {
			same++
		}
		if t.Failed() {
			t.Fatalf("case %d of -seed %d", i, start)
		}
	}
	t.Logf("%d messages", same)
	if same < *cases/4 {
		t.Errorf("only %d of %d cases were compared", same, *cases)
	}
}

// Messages that are truncated or have changed bytes are decoded like by the generated code, or refused if that refuses
// them.
//
// SPEC: MED-3, WRITE-6
func TestDamagedMessages(t *testing.T) {
	list := vectors.All(t)
	start := *seed
	read := 0
	for i := range *cases {
		random := rand.New(rand.NewPCG(start, uint64(i)))
		v := list[i%len(list)]
		typ := v.Type
		into, ok := reflect.New(typ).Interface().(protobuf)
		if !ok {
			continue
		}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(v.JSON, into); err != nil {
			t.Fatal(err)
		}
		whole, err := into.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if len(whole) == 0 {
			continue
		}
		switch random.IntN(4) {
		case 0:
			whole = whole[:random.IntN(len(whole))]
		case 1: // a part is missing
			from := random.IntN(len(whole))
			whole = append(whole[:from:from], whole[min(len(whole), from+1+random.IntN(4)):]...)
		default:
			for range 1 + random.IntN(2) {
				whole[random.IntN(len(whole))] = byte(random.IntN(256))
			}
		}
		if compareRead(t, typ, whole) {
			read++
		}
		if t.Failed() {
			t.Fatalf("case %d of -seed %d", i, start)
		}
	}
	t.Logf("%d of %d damaged messages can be read", read, *cases)
	if read < *cases/10 || read > *cases*9/10 {
		t.Errorf("%d of %d damaged messages can be read: the cases are lopsided", read, *cases)
	}
}
