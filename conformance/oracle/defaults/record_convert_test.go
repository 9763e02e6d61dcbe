//go:build mutants

package defaults

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"plinth/conformance/internal/recorder"
	"plinth/conformance/internal/scheme"
	"plinth/object"
)

// TestRecordConversions searches for objects for which our conversions give the same result as upstream and a mutant of
// them does not, and writes them into the table of package convert:
//
//	go run ./mutants/overlay internal/builtin/convert DIR
//	go test -tags mutants -overlay DIR/overlay.json -vet=off ./oracle/defaults -run TestRecordConversions
func TestRecordConversions(t *testing.T) {
	kinds := corpus(t)
	var questions []*recorder.Question
	for _, c := range conversions {
		questions = append(questions, c.question(t, kinds))
	}
	out := bytes.NewBufferString("# What upstream converts objects to: the conversion, the object as it is decoded, and " +
		"the object that it becomes,\n# a line each. Each case notices a mutant of the conversions; found by " +
		"TestRecordConversions of\n# conformance/oracle/defaults.\n")
	for _, c := range recorder.Record(t, *objects, questions...) {
		fmt.Fprintf(out, "%s\n%s\n%s\n", c.Question.Name, c.In, c.Answer)
	}
	if err := os.WriteFile("../../../internal/builtin/convert/testdata/recorded.txt", out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// question returns the question for the result of a conversion.
func (c conversion) question(t *testing.T, kinds map[schema.GroupVersionKind][]document) *recorder.Question {
	documents := c.documents(t, kinds)
	return &recorder.Question{
		Name: c.name,
		Input: func(i int) []byte {
			decoded, _ := c.decoded(t, c.variant(t, documents, i))
			return decoded
		},
		Ours: func(in []byte) (string, error) {
			parsed, err := object.ParseJSON(in)
			if err != nil {
				return "", err
			}
			converted, err := c.convert(parsed.Value)
			return string(object.AppendObject(nil, converted)), err
		},
		Theirs: func(in []byte) (string, bool) {
			if again, ok := c.decoded(t, in); !ok || !bytes.Equal(in, again) {
				return "", false
			}
			return string(canonical(t, upstreamConversion(t, c.from, in, c.to))), true
		},
		Smaller: func(in []byte, n int) []byte {
			less := recorder.SmallerJSON(in, n, "apiVersion", "kind")
			if less == nil {
				return nil
			}
			if decoded, ok := c.decoded(t, less); ok && len(decoded) < len(in) {
				return decoded
			}
			return []byte{} // for which there is no answer
		},
	}
}

// decoded returns an object from a client in the form in which the conversions get it: with all fields that decoding
// sets, and with defaults.
func (c conversion) decoded(t *testing.T, text []byte) ([]byte, bool) {
	typed, err := scheme.Decode(c.from, text)
	if err != nil {
		return nil, false
	}
	scheme.Scheme.Default(typed)
	text, err = json.Marshal(typed)
	if err != nil {
		return nil, false
	}
	return canonical(t, text), true
}

func canonical(t *testing.T, text []byte) []byte {
	return object.AppendObject(nil, parse(t, text))
}
