package merge

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/yaml"

	"plinth/object"
)

var rewrite = flag.Bool("update", false, "write upstream's outcomes into testdata")

// section is a part of a scenario file: "-- head --" and what follows it.
type section struct{ head, text string }

// sections divides a file into sections; the first one has no head.
func sections(text string) []section {
	all := []section{{}}
	for line := range strings.Lines(text) {
		head, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "-- ")
		if head, dashes := strings.CutSuffix(head, " --"); ok && dashes {
			all = append(all, section{head: head})
			continue
		}
		all[len(all)-1].text += line
	}
	return all
}

// readHistory makes a history from the sections of a scenario file. It skips outcomes.
func readHistory(all []section) (*history, error) {
	h := &history{}
	var latest *kind
	schemas := false // whether the next kind is a change of schemas
	for _, s := range all[1:] {
		verbOf, rest, _ := strings.Cut(s.head, " ")
		var err error
		switch verbOf {
		case "outcome", "instead":
		case "schema":
			schemas = true
		case "builtin", "kind":
			if latest, err = readKind(verbOf, rest, s.text); err != nil {
				return nil, err
			}
			if schemas {
				h.steps = append(h.steps, step{verb: reschema, kind: latest})
			} else {
				h.kind = latest
			}
			schemas = false
		case "version":
			if latest == nil {
				return nil, errors.New("a version before a kind")
			}
			err = latest.readVersion(rest, s.text)
		default:
			var op step
			if op, err = readStep(verb(verbOf), rest, s.text); err == nil {
				h.steps = append(h.steps, op)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%q: %w", s.head, err)
		}
	}
	if h.kind == nil {
		return nil, errors.New("no kind")
	}
	h.kind.finish()
	for _, op := range h.steps {
		if op.kind != nil {
			op.kind.finish()
		}
	}
	return h, nil
}

func readKind(word, rest, text string) (*kind, error) {
	if word == "builtin" {
		for _, k := range builtinKinds() {
			if rest == k.apiVersion(k.versions[0].name)+" "+k.name {
				return k, nil
			}
		}
		return nil, errors.New("not among the built-in kinds under test")
	}
	group, name, ok := strings.Cut(rest, "/")
	if !ok {
		return nil, errors.New("want GROUP/KIND")
	}
	k := &kind{group: group, name: name}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch of, isScale := strings.CutPrefix(key, "scale "); {
		case isScale:
			path, err := strconv.Unquote(value)
			if err != nil {
				return nil, err
			}
			if k.scale == nil {
				k.scale = map[string]string{}
			}
			k.scale[of] = path
		case key == "status":
			k.status = true
		case key == "fragile":
			k.fragile = value
		case key == "forgetful":
			k.forgetful = true
		default:
			return nil, fmt.Errorf("what is %q?", line)
		}
	}
	return k, nil
}

// readVersion adds a version: its name, whether whole objects are atomic, renamed fields of spec, and the schemas of
// the top-level fields. Without schemas the kind has none.
func (k *kind) readVersion(rest, text string) error {
	words := strings.Fields(rest)
	v := &version{name: words[0], renames: map[string]string{}}
	mapType := ""
	for _, word := range words[1:] {
		if word == "atomic" {
			mapType = word
			continue
		}
		first, here, ok := strings.Cut(word, "=")
		if !ok {
			return errors.New("want FIRST=HERE, or atomic")
		}
		v.renames[first] = here
	}
	if strings.TrimSpace(text) != "" {
		v.root = &node{Type: "object", MapType: mapType}
		asJSON, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			return err
		}
		if err := json.Unmarshal(asJSON, &v.root.Properties); err != nil {
			return err
		}
		if v.root.Properties == nil {
			v.root.Properties = map[string]*node{}
		}
		v.root.Properties["apiVersion"], v.root.Properties["kind"] = &node{Type: "string"}, &node{Type: "string"}
		v.root.Properties["metadata"] = &node{Ref: "#/components/schemas/" + metaModel}
	}
	k.versions = append(k.versions, v)
	return nil
}

// readStep reads an operation: its manager, its version and its options.
func readStep(of verb, rest, text string) (step, error) {
	op := step{verb: of}
	switch of {
	case create, update, apply, scale, rescale:
	default:
		return op, errors.New("no operation")
	}
	manager, err := strconv.QuotedPrefix(rest)
	if err != nil {
		return op, err
	}
	if op.manager, err = strconv.Unquote(manager); err != nil {
		return op, err
	}
	words := strings.Fields(rest[len(manager):])
	if len(words) == 0 {
		return op, errors.New("no version")
	}
	op.version = words[0]
	for _, word := range words[1:] {
		wait, isWait := strings.CutPrefix(word, "wait=")
		switch {
		case isWait:
			if op.wait, err = time.ParseDuration(wait); err != nil {
				return op, err
			}
		case word == "force":
			op.force = true
		case word == "echo":
			op.echo = true
		case strings.HasPrefix(word, "/"):
			op.subresource = word[1:]
		default:
			return op, fmt.Errorf("what is %q?", word)
		}
	}
	parsed, err := object.ParseYAML([]byte(text))
	if err != nil {
		return op, err
	}
	op.body, err = parsed.Value.Untyped()
	return op, err
}

// TestScenarios runs the files of testdata through both engines. A file with a different outcome of plinth has the
// reason in its first lines.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	builtinKinds()
	exercised := map[string]bool{}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			all := sections(string(text))
			h, err := readHistory(all)
			if err != nil {
				t.Fatal(err)
			}
			var want string
			var whys []string
			synctest.Test(t, func(*testing.T) { want, whys = h.transcript(all[0].text) })
			for _, why := range whys {
				exercised[why] = true
			}
			if slices.Contains(whys, "") {
				t.Error("a difference that nothing explains")
			}
			if *rewrite {
				if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if string(text) != want {
				t.Errorf("the file should read\n%s", want)
			}
		})
	}
	for i := range explanations {
		if !exercised[explanations[i].name] {
			t.Errorf("no scenario for %q", explanations[i].name)
		}
	}
}

// transcript runs a history through both engines and returns it as a file with their outcomes, and the names of the
// explanations of their differences, "" for an unexplained one.
func (h *history) transcript(why string) (text string, whys []string) {
	var b strings.Builder
	b.WriteString(why + h.kind.text())
	theirs, ours := &state{kind: h.kind}, &state{kind: h.kind}
	for _, op := range h.steps {
		time.Sleep(op.wait)
		want, got := theirs.do(upstream{}, op, time.Now()), ours.do(plinth{}, op, time.Now())
		if op.verb == reschema {
			b.WriteString("-- schema --\n" + op.kind.text())
			continue
		}
		fmt.Fprintf(&b, "-- %s --\n%s-- outcome --\n%s", op, yamlOf(op.body), want)
		if got.String() != want.String() {
			fmt.Fprintf(&b, "-- instead --\n%s", got)
			name := ""
			if e := h.explanation(&difference{op: op, want: want, got: got, kinds: theirs.kind}); e != nil {
				name = e.name
			}
			whys = append(whys, name)
			*ours = *theirs
		}
	}
	return b.String(), whys
}
