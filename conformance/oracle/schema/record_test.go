//go:build mutants

package schema

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"strings"
	"testing"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	kjson "sigs.k8s.io/json"

	"plinth/conformance/internal/recorder"
	"plinth/conformance/internal/vectors"
	"plinth/internal/builtin"
	"plinth/internal/mutants"
	"plinth/internal/proto"
	"plinth/object"
	"plinth/schema"
)

var tries = flag.Int("tries", 1000, "how many random objects of each kind are tried in search of cases to record")

// recordedKinds are kinds that together have all elements of messages.
var recordedKinds = []string{"admissionregistration.k8s.io.v1.ValidatingAdmissionPolicy",
	"apiextensions.k8s.io.v1.CustomResourceDefinition", "apps.v1.ControllerRevision", "apps.v1.Deployment",
	"authentication.k8s.io.v1.TokenReview", "authorization.k8s.io.v1.SubjectAccessReview",
	"autoscaling.v2.HorizontalPodAutoscaler", "certificates.k8s.io.v1.CertificateSigningRequest",
	"coordination.k8s.io.v1.Lease", "core.v1.ConfigMap", "core.v1.Pod", "core.v1.Secret", "core.v1.Service",
	"events.k8s.io.v1.Event", "networking.k8s.io.v1.NetworkPolicy", "policy.v1.PodDisruptionBudget",
	"resource.k8s.io.v1.ResourceClaim", "resource.k8s.io.v1.ResourceSlice"}

// recordedKind is a kind with the types of both sides.
type recordedKind struct {
	name   string
	ours   *schema.Type
	theirs reflect.Type
	vector object.Value
}

// TestRecordMessages searches for objects and messages for which package proto gives the same result as the generated
// code and a mutant of it does not, and writes them into the table of that package:
//
//	go run ./mutants/overlay internal/proto DIR
//	go test -tags mutants -overlay DIR/overlay.json -vet=off ./oracle/schema -run TestRecordMessages
func TestRecordMessages(t *testing.T) {
	var questions []*recorder.Question
	for _, k := range kindsToRecord(t) {
		questions = append(questions, k.written("object", k.object, k.theirObject))
		switch k.name {
		case "core.v1.ConfigMap":
			questions = append(questions, k.written("revision", k.revision, k.theirRevision),
				k.written("lean", k.lean, k.theirLean), k.written("metadata", k.metadata, k.theirMetadata))
		}
		questions = append(questions, k.read(t))
	}
	out := bytes.NewBufferString("# Objects and messages as the generated code writes and reads them: what is asked and " +
		"the kind, the object or message,\n# and the answer, a line each. Each case notices a mutant of this package; " +
		"found by TestRecordMessages of\n# conformance/oracle/schema.\n")
	for _, c := range recorder.Record(t, *tries, questions...) {
		in := string(c.In)
		if strings.HasPrefix(c.Question.Name, "read ") {
			in = hex.EncodeToString(c.In)
		}
		fmt.Fprintf(out, "%s\n%s\n%s\n", c.Question.Name, in, c.Answer)
	}
	if err := os.WriteFile("../../../internal/proto/testdata/recorded.txt", out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

func kindsToRecord(t *testing.T) []*recordedKind {
	upstream := map[string]reflect.Type{recordedKinds[1]: reflect.TypeFor[apiextensions.CustomResourceDefinition]()}
	texts := map[string][]byte{recordedKinds[1]: []byte(recordedDefinition)}
	for _, v := range vectors.All(t) {
		upstream[v.Name], texts[v.Name] = v.Type, v.JSON
	}
	compiled := map[string]*schema.Type{}
	for _, r := range builtin.Resources(builtin.Config{}) {
		group := r.Group
		if group == "" {
			group = "core"
		}
		compiled[group+"."+r.Version+"."+r.Kind] = r.Schema()
	}
	var kinds []*recordedKind
	for _, name := range recordedKinds {
		if compiled[name] == nil || upstream[name] == nil {
			t.Fatalf("%s: no such kind", name)
		}
		kinds = append(kinds, &recordedKind{name, compiled[name], upstream[name], parse(t, texts[name])})
	}
	return kinds
}

const recordedDefinition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"as.b.c"},
"spec":{"group":"b.c","scope":"Namespaced","names":{"plural":"as","kind":"A"},"versions":[{"name":"v1","served":true,"storage":true,
"schema":{"openAPIV3Schema":{"type":"object","maxProperties":3,"minimum":1.5,"maximum":-2e300,"default":{"a":[1,2.50,null]},
"enum":[1,"x",null,{"y":true}],"properties":{
"list":{"type":"array","items":{"type":"string","maxLength":300}},
"tuple":{"items":[{"type":"string"},{"type":"integer"}],"additionalItems":false},
"open":{"additionalProperties":true},"closed":{"additionalProperties":{"multipleOf":2}},
"depends":{"dependencies":{"a":["b","c"],"d":{"required":["e"]}},"not":{"anyOf":[{},{"pattern":"^x"}]}}
}}}}]}}`

// written returns the question for the encoding of an object.
func (k *recordedKind) written(what string, ours func(in []byte) ([]byte, error),
	theirs func(in []byte) ([]byte, error)) *recorder.Question {
	return &recorder.Question{
		Name:  what + " " + k.name,
		Input: k.input,
		Ours: func(in []byte) (string, error) {
			if err := renew(); err != nil {
				return "", err
			}
			first, err := ours(in)
			if err != nil {
				return "", err
			}
			again, err := ours(in) // with used buffers
			if err == nil && !bytes.Equal(first, again) {
				err = errors.New("something else the second time")
			}
			return hex.EncodeToString(first), err
		},
		Theirs: func(in []byte) (string, bool) {
			answer, err := theirs(in)
			return hex.EncodeToString(answer), err == nil
		},
		Smaller: func(in []byte, n int) []byte {
			less := recorder.SmallerJSON(in, n)
			if less == nil {
				return nil
			}
			parsed, err := object.ParseJSON(less)
			if err != nil {
				return []byte{} // for which there is no answer
			}
			return object.AppendObject(nil, parsed.Value)
		},
	}
}

// renew computes the variables of package proto again, as plans are made once. It fails for mutants that end the
// process.
func renew() error {
	active := mutants.Active
	if active > 0 && strings.Contains(mutants.Names[active-1], "plans.mu.Lock()") {
		return errors.New("unlock of unlocked mutex")
	}
	mutants.Set(active)
	return nil
}

// input returns a decoded object without some of its fields.
func (k *recordedKind) input(i int) []byte {
	random := rand.New(rand.NewPCG(*seed, uint64(i)))
	v := k.vector
	for range random.IntN(4) {
		v = mutate(random, v)
	}
	decoded, err := k.ours.Decode(v)
	if err != nil {
		return nil
	}
	v = decoded.Value
	if random.IntN(3) == 0 {
		v = k.ours.Settle(v)
	}
	for range random.IntN(6) {
		v = thinned(random, v)
	}
	return object.AppendObject(nil, v)
}

// thinned returns a value without one of its parts.
func thinned(random *rand.Rand, v object.Value) object.Value {
	if v.Kind() == object.List && v.Len() > 0 {
		i := random.IntN(v.Len())
		return v.WithItem(i, thinned(random, v.Items()[i]))
	}
	if v.Kind() != object.Map || v.Len() == 0 {
		return v
	}
	m := v.Members()[random.IntN(v.Len())]
	leaf := m.Value.Kind() != object.Map && m.Value.Kind() != object.List
	switch {
	case random.IntN(12) == 0: // unknown fields
		return v.With("zz", m.Value).With("AA", object.IntOf(1))
	case leaf && m.Value.Kind() != object.String && random.IntN(2) == 0: // for a time, null means zero here
		return v.With(m.Key, object.Nil)
	case leaf || random.IntN(8) == 0:
		return v.Without(m.Key)
	}
	return v.With(m.Key, thinned(random, m.Value))
}

func (k *recordedKind) object(in []byte) ([]byte, error) {
	out, err := proto.AppendObject(nil, k.ours, in)
	if err != nil {
		return nil, err
	}
	if size, err := proto.Size(k.ours, in); err != nil || size != len(out) {
		return nil, fmt.Errorf("size %d (%w) of %d", size, err, len(out))
	}
	return out, nil
}

// typed decodes an object to its Go type.
func (k *recordedKind) typed(in []byte) (protobufObject, error) {
	into := reflect.New(k.theirs).Interface().(protobufObject)
	_, err := kjson.UnmarshalStrict(in, into) // unknown fields are ignored
	forget(reflect.ValueOf(into).Elem())
	return into, err
}

type protobufObject interface {
	runtime.Object
	metav1.Object
	protobuf
}

func (k *recordedKind) theirObject(in []byte) ([]byte, error) {
	typed, err := k.typed(in)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = serializer.NewSerializer(nil, nil).Encode(typed, &out)
	return out.Bytes(), err
}

// revision encodes an object with its resourceVersion.
func (k *recordedKind) revision(in []byte) ([]byte, error) {
	at, ok := object.Locate(in)
	if !ok {
		return nil, errors.New("no place for resourceVersion")
	}
	return proto.AppendMessage([]byte("before"), k.ours, in, at.Splice, 1<<40)
}

func (k *recordedKind) theirRevision(in []byte) ([]byte, error) {
	typed, err := k.typed(in)
	if err != nil || typed.GetResourceVersion() != "" || typed.GetUID() == "" {
		return nil, errors.New("is no stored object")
	}
	typed.SetResourceVersion(fmt.Sprint(1 << 40))
	message, err := typed.Marshal()
	return append([]byte("before"), message...), err
}

// lean encodes an object without its managedFields.
func (k *recordedKind) lean(in []byte) ([]byte, error) {
	message, err := proto.AppendMessage(nil, k.ours, in, 0, 0)
	return proto.AppendLean([]byte("before"), message), err
}

func (k *recordedKind) theirLean(in []byte) ([]byte, error) {
	typed, err := k.typed(in)
	if err != nil {
		return nil, err
	}
	typed.SetManagedFields(nil)
	message, err := typed.Marshal()
	return append([]byte("before"), message...), err
}

// metadata encodes the metadata of an object, and compares the result with the metadata that package proto finds in the
// message of the object.
func (k *recordedKind) metadata(in []byte) ([]byte, error) {
	if !hasMetadata(in) {
		return nil, errors.New("no metadata")
	}
	start := bytes.Index(in, []byte(`"metadata":`)) + len(`"metadata":`)
	field, err := proto.AppendMetadata([]byte("before"), k.ours.Field("metadata").Type, in[start:], 0, 0)
	if err != nil {
		return nil, err
	}
	message, err := proto.AppendMessage(nil, k.ours, in, 0, 0)
	if found := proto.Metadata(message); err == nil && !bytes.Equal(found, field[len("before"):]) {
		err = fmt.Errorf("the message has the metadata %x", found)
	}
	return field, err
}

func hasMetadata(in []byte) bool {
	parsed, err := object.ParseJSON(in)
	return err == nil && parsed.Value.At("metadata").Kind() == object.Map
}

func (k *recordedKind) theirMetadata(in []byte) ([]byte, error) {
	typed, err := k.typed(in)
	if err != nil || !hasMetadata(in) {
		return nil, errors.New("no metadata")
	}
	meta := reflect.ValueOf(typed).Elem().FieldByName("ObjectMeta").Addr().Interface().(*metav1.ObjectMeta)
	message, err := meta.Marshal()
	if err != nil {
		return nil, err
	}
	field := binary.AppendUvarint([]byte("before\x0a"), uint64(len(message)))
	return append(field, message...), nil
}

// read returns the question for the decoding of a body.
func (k *recordedKind) read(t *testing.T) *recorder.Question {
	worded := map[string]int{}
	t.Cleanup(func() {
		for pair, n := range worded {
			t.Logf("%s: %d times: %s", k.name, n, pair)
		}
	})
	return &recorder.Question{
		Name:  "read " + k.name,
		First: readFirst[k.name],
		Input: func(i int) []byte {
			in := k.input(i)
			if in == nil {
				return nil
			}
			body, err := k.theirObject(in)
			if err != nil {
				return nil
			}
			random := rand.New(rand.NewPCG(*seed, uint64(i)+1<<32))
			for range random.IntN(4) {
				body = damaged(random, body)
			}
			return body
		},
		Ours: func(in []byte) (string, error) {
			if err := renew(); err != nil {
				return "", err
			}
			answer, err := k.ourRead(in)
			if err != nil {
				return "refused: " + err.Error(), nil
			}
			return answer, nil
		},
		Theirs: func(in []byte) (string, bool) {
			mutants.Set(0)
			ours, ourErr := k.ourRead(in)
			theirs, err := k.theirRead(in)
			switch {
			case ourErr != nil && err != nil:
				if ourErr.Error() != err.Error() {
					worded[fmt.Sprintf("%.200s :: %.200s", ourErr, err)]++
					return "", false
				}
				return "refused: " + err.Error(), true
			case ourErr != nil && farYear.MatchString("decode: "+ourErr.Error()):
				return "", false
			case err != nil:
				return "refused: " + err.Error(), !errors.Is(err, errOtherKind)
			case ourErr == nil && ours != theirs && withoutEmpty.Replace(ours) == withoutEmpty.Replace(theirs):
				return "", false
			}
			return theirs, true
		},
		Smaller: smallerBody,
	}
}

func (k *recordedKind) ourRead(in []byte) (string, error) {
	value, err := proto.Parse(k.ours, in)
	if err != nil {
		return "", err
	}
	decoded, err := k.ours.Decode(value)
	return string(object.AppendJSON(nil, decoded.Value)), err
}

var errOtherKind = errors.New("an object of another kind")

// readFirst are bodies that random ones rarely resemble.
var readFirst = map[string][][]byte{
	"core.v1.ConfigMap": {
		[]byte("k8s\x00\x0a\x02\x08\x00"),                                                // apiVersion is a number
		[]byte("k8s\x00\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),                    // a negative length
		body("\xa2\x06\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),                         // in an unknown field
		body("\x12\x01\x1c"), body("\x12\x02\x1b\x1c"), body("\x12\x01\x1b\x1c\x12\x00"), // groups in an entry of a map
	},
	"core.v1.Pod": {
		body("\x12\x06\x72\x04\x22\x02\x05\x06"), body("\x12\x05\x72\x03\x22\x01\x85"), // runs of numbers
		body("\x12\x04\x72\x02\x22\x00"), body("\x12\x08\x72\x06\x20\x05\x22\x02\x06\x07"),
		body("\x12\x06\x72\x04\x20\x05\x20\x06"), body("\x12\x04\x72\x02\x21\x00"),
	},
	"apiextensions.k8s.io.v1.CustomResourceDefinition": {
		inSchema("\x49\x00"), // a short float
		inSchema("\xc2\x01\x09\x0a\x03\x2a\x01x\x12\x02\x2a\x00"),          // both a schema and a list of schemas
		inSchema("\xf2\x01\x07\x08\x01\x12\x03\x2a\x01x"),                  // both a boolean and a schema
		inSchema("\xa2\x01\x02\x12\x00"), inSchema("\xa2\x01\x02\x0a\x00"), // JSON: an unknown field, and empty
	},
	"autoscaling.v2.HorizontalPodAutoscaler": { // a quantity with an unknown field
		body("\x12\x10\x22\x0e\x12\x0c\x12\x0a\x1a\x08\x12\x01\x00\x0a\x03100"),
	},
	"apps.v1.ControllerRevision": {body("\x12\x02\x0a\x00"), body("\x12\x02\x12\x00"), body("\x12\x00")},
}

// body puts a message into an envelope without other fields.
func body(message string) []byte { return proto.Envelope{}.Append(nil, []byte(message)) }

// inSchema returns a definition with this message as its schema.
func inSchema(message string) []byte {
	for _, tag := range []byte{0x0a, 0x22, 0x3a, 0x12} {
		message = string(append([]byte{tag, byte(len(message))}, message...))
	}
	return body(message)
}

// theirRead decodes a body with the generated code.
func (k *recordedKind) theirRead(in []byte) (string, error) {
	var unknown runtime.Unknown
	if _, _, err := serializer.NewSerializer(nil, nil).Decode(in, nil, &unknown); err != nil {
		return "", err
	}
	if unknown.Kind != "" && unknown.Kind != k.theirs.Name() {
		return "", errOtherKind
	}
	back := reflect.New(k.theirs).Interface().(protobufObject)
	if err := back.Unmarshal(unknown.Raw); err != nil {
		return "", err
	}
	quoteManagers(reflect.ValueOf(back))
	meta := reflect.ValueOf(back).Elem().FieldByName("TypeMeta").Addr().Interface().(*metav1.TypeMeta)
	meta.APIVersion, meta.Kind = unknown.APIVersion, unknown.Kind
	text, err := json.Marshal(back)
	if err != nil {
		return "", err
	}
	parsed, err := object.ParseJSON(text)
	return string(object.AppendJSON(nil, parsed.Value)), err
}
