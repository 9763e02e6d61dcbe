package validation_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/cel"
	"plinth/internal/crd/validation"
	"plinth/internal/gotypes"
	"plinth/internal/objectmeta"
	"plinth/object"
	"plinth/schema"
)

// served are the options with which the server validates definitions.
var served = validation.Options{
	Metadata: gotypes.Of[metav1.ObjectMeta](),
	CheckRules: func(t *schema.Type, path *field.Path, o validation.RuleOptions) field.ErrorList {
		return cel.Check(t, path, cel.CheckOptions(o))
	},
	CheckDefaultRules: func(t *schema.Type, path *field.Path, v object.Value, budget int64) (field.ErrorList, int64) {
		return cel.Compile(t).ValidateDefault(context.Background(), path, v, budget)
	},
	RuleBudget: cel.Budget,
}

// write is a write of a definition, and its errors.
type write struct {
	line     int
	verb     string
	obj, old object.Value
	want     []string
}

// recorded reads testdata/recorded.txt: the verb, the definition, the one that it replaces, and each error, quoted and
// indented, on a line each.
func recorded(t *testing.T) (writes []*write) {
	t.Helper()
	text, err := os.ReadFile("testdata/recorded.txt")
	if err != nil {
		t.Fatal(err)
	}
	parse := func(line string) object.Value {
		parsed, err := object.ParseJSON([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		return parsed.Value
	}
	for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		switch {
		case line[0] == '#':
		case line[0] == '{' && writes[len(writes)-1].obj == object.Nil:
			writes[len(writes)-1].obj = parse(line)
		case line[0] == '{':
			writes[len(writes)-1].old = parse(line)
		case line[0] == ' ':
			line, err := strconv.Unquote(strings.TrimSpace(line))
			if err != nil {
				t.Fatalf("line %d: %v", i+1, err)
			}
			writes[len(writes)-1].want = append(writes[len(writes)-1].want, line)
		default:
			writes = append(writes, &write{line: i + 1, verb: line})
		}
	}
	return writes
}

// selfType is the name of the type of self, with the time at which it was made.
var selfType = regexp.MustCompile(`selfType\d+`)

// errors are the errors of a write as text, sorted.
func (w *write) errors() (lines []string, err error) {
	path := field.NewPath("metadata")
	var errs field.ErrorList
	switch w.verb {
	case "create":
		errs = append(objectmeta.ObjectMeta(w.obj.At("metadata"), false, validation.Names(w.obj), path),
			validation.Validate(w.obj, served)...)
	case "update":
		errs = append(objectmeta.ObjectMetaUpdate(w.obj.At("metadata"), w.old.At("metadata"), path),
			validation.ValidateUpdate(w.obj, w.old, served)...)
	case "status":
		errs = append(objectmeta.ObjectMetaUpdate(w.obj.At("metadata"), w.old.At("metadata"), path),
			validation.ValidateStatusUpdate(w.obj, w.old)...)
	default:
		return nil, fmt.Errorf("line %d: there is no verb %q", w.line, w.verb)
	}
	for _, e := range errs {
		lines = append(lines, selfType.ReplaceAllString(string(e.Type)+" "+e.Error(), "selfType"))
	}
	slices.Sort(lines)
	return lines, nil
}

// The errors of the definitions in testdata/recorded.txt are those that the reference reported.
//
// SPEC: EXT-1, VAL-1
func TestRecorded(t *testing.T) {
	writes := recorded(t)
	if len(writes) < 200 {
		t.Errorf("there are %d writes", len(writes))
	}
	for _, w := range writes {
		got, err := w.errors()
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, w.want) {
			t.Errorf("line %d: %s %s\nhave %s\nwant %s", w.line, w.verb, object.AppendJSON(nil, w.obj),
				strings.Join(got, "\n     "), strings.Join(w.want, "\n     "))
		}
	}
}
