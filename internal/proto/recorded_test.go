package proto_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"testing"

	"plinth/internal/proto"
	"plinth/object"
	"plinth/schema"
)

// Objects are written, and messages read, as the generated code does. Below the comment, testdata/recorded.txt has
// three lines a case: the question and the kind; the object in JSON, or the message; and the answer.
//
// SPEC: MED-3, WRITE-6
func TestRecordedMessages(t *testing.T) {
	text, err := os.ReadFile("testdata/recorded.txt")
	if err != nil {
		t.Fatal(err)
	}
	served := kinds()
	asked, refused := map[string]int{}, 0
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")[3:]
	for i := 0; i+2 < len(lines); i += 3 {
		what, name, _ := strings.Cut(lines[i], " ")
		r := served[name]
		ask := questions[what]
		if r == nil || ask == nil {
			t.Fatalf("line %d: %q is no question", i+4, lines[i])
		}
		in, want := lines[i+1], lines[i+2]
		asked[what]++
		if strings.HasPrefix(want, "refused: ") {
			refused++
		}
		// Twice: the second time with buffers that have been used.
		for range 2 {
			if have, err := ask(r.Schema(), in); err != nil || have != want {
				t.Errorf("line %d: %s of %s\nhave %s (%v)\nwant %s", i+4, lines[i], in, have, err, want)
			}
		}
	}
	for what, floor := range map[string]int{"object": 30, "revision": 1, "lean": 2, "metadata": 1, "read": 60} {
		if asked[what] < floor {
			t.Errorf("%d cases of %s, want at least %d", asked[what], what, floor)
		}
	}
	if refused < 20 {
		t.Errorf("%d messages are refused, want at least 20", refused)
	}
}

// questions are the operations on an object or a message, and how each is answered.
var questions = map[string]func(t *schema.Type, in string) (string, error){
	"object": func(t *schema.Type, in string) (string, error) {
		out, err := proto.AppendObject(nil, t, []byte(in))
		if err != nil {
			return "", err
		}
		if size, err := proto.Size(t, []byte(in)); err != nil || size != len(out) {
			return "", errors.Join(errors.New("the size is another one"), err)
		}
		return hex.EncodeToString(out), nil
	},
	"revision": func(t *schema.Type, in string) (string, error) {
		at, ok := object.Locate([]byte(in))
		if !ok {
			return "", errors.New("no place for resourceVersion")
		}
		out, err := proto.AppendMessage([]byte("before"), t, []byte(in), at.Splice, 1<<40)
		return hex.EncodeToString(out), err
	},
	"lean": func(t *schema.Type, in string) (string, error) {
		message, err := proto.AppendMessage(nil, t, []byte(in), 0, 0)
		return hex.EncodeToString(proto.AppendLean([]byte("before"), message)), err
	},
	"metadata": func(t *schema.Type, in string) (string, error) {
		_, metadata, _ := strings.Cut(in, `"metadata":`)
		field, err := proto.AppendMetadata([]byte("before"), t.Field("metadata").Type, []byte(metadata), 0, 0)
		if err != nil {
			return "", err
		}
		message, err := proto.AppendMessage(nil, t, []byte(in), 0, 0)
		if !bytes.Equal(proto.Metadata(message), field[len("before"):]) {
			return "", errors.Join(errors.New("the message has other metadata"), err)
		}
		return hex.EncodeToString(field), err
	},
	"read": func(t *schema.Type, in string) (string, error) {
		body, err := hex.DecodeString(in)
		if err != nil {
			return "", err
		}
		value, err := proto.Parse(t, body)
		if err != nil {
			return "refused: " + err.Error(), nil
		}
		decoded, err := t.Decode(value)
		if err != nil {
			return "refused: " + err.Error(), nil
		}
		return string(object.AppendJSON(nil, decoded.Value)), nil
	},
}
