package validation

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// To refuse more than upstream does is an error, whatever it is. To refuse less cannot be one, as long as there are
// rules that we do not have; so what we refuse is written down, kind by kind and verb by verb, and has to stay that:
// the variants are the same in every run, so a rule that is gone, or finds less, changes a number. Whoever adds a rule
// writes the file anew.
var update = flag.Bool("update", false, "write the scores into "+scoresFile)

const scoresFile = "testdata/scores.txt"

// incomplete are the kinds and verbs of which upstream refuses more than we do, with the reason. Of every other one we
// refuse all that upstream refuses.
var incomplete = map[string]string{
	"admissionregistration.k8s.io v1 MutatingAdmissionPolicy create":        notCompiled,
	"admissionregistration.k8s.io v1 MutatingAdmissionPolicy update":        notCompiled,
	"admissionregistration.k8s.io v1 ValidatingAdmissionPolicy create":      notCompiled,
	"admissionregistration.k8s.io v1 ValidatingAdmissionPolicy update":      notCompiled,
	"admissionregistration.k8s.io v1 ValidatingWebhookConfiguration create": notCompiled,
	"admissionregistration.k8s.io v1 ValidatingWebhookConfiguration update": notCompiled,
}

const notCompiled = "the CEL expressions of admission are not compiled: policies and match conditions do nothing yet"

// scores are those of all kinds: of a line of the file, what stands before the colon and behind it.
type scores struct {
	mu       sync.Mutex
	recorded map[string]string
	now      map[string]string
	comment  []byte
}

// kindScores are those of one kind.
type kindScores struct {
	all  *scores
	kind string
}

// readScores reads the file. With other variants than those of the file there is nothing to compare.
func readScores(t *testing.T) *scores {
	s := &scores{recorded: map[string]string{}, now: map[string]string{}}
	text := read(t, scoresFile)
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "#") {
			s.comment = append(append(s.comment, line...), '\n')
			continue
		}
		key, score, ok := strings.Cut(line, ": ")
		if !ok || s.recorded[key] != "" {
			t.Fatalf("%s: %q", scoresFile, line)
		}
		s.recorded[key] = score
	}
	return s
}

func (s *scores) of(k *kindUnderTest) *kindScores {
	return &kindScores{s, strings.Join(strings.Fields(k.gvk.Group+" "+k.gvk.Version+" "+k.gvk.Kind), " ")}
}

// check compares a score with the one that is written down.
func (k *kindScores) check(t *testing.T, verb string, s *score) {
	t.Logf("%s %s: %s", k.kind, verb, s)
	if !fromFile() {
		return
	}
	key := k.kind + " " + verb
	text := fmt.Sprintf(
		"%d compared, %d refused, %d of them by us; %d causes, %d of them ours in the same words, %d ours alone",
		s.compared, s.refused, s.caught, s.causes, s.same, s.extra)
	if _, less := incomplete[key]; less != (s.caught < s.refused) {
		t.Errorf("%s: %d of %d refused; among the incomplete ones: %v", key, s.caught, s.refused, less)
	}
	k.all.mu.Lock()
	defer k.all.mu.Unlock()
	k.all.now[key] = text
	if was := k.all.recorded[key]; was != text && !*update {
		t.Errorf("%s\nis        %s\n%s has %s\nif rules were added, go test ./validation -update", key, text,
			scoresFile, was)
	}
}

// fromFile says whether the variants of this run are those of the file.
func fromFile() bool {
	for _, name := range []string{"objects", "seed"} {
		if f := flag.Lookup(name); f.Value.String() != f.DefValue {
			return false
		}
	}
	return true
}

// write writes the file if it is to be written anew, and else misses what is no longer compared. A run of some kinds
// does neither.
func (s *scores) write(t *testing.T) {
	if !fromFile() || flag.Lookup("test.run").Value.String() != "" &&
		strings.Contains(flag.Lookup("test.run").Value.String(), "/") {
		return
	}
	for key := range incomplete {
		if s.now[key] == "" {
			t.Errorf("%s is among the incomplete ones, and is not compared", key)
		}
	}
	if !*update {
		for key := range s.recorded {
			if s.now[key] == "" {
				t.Errorf("%s is in %s, and is not compared any more", key, scoresFile)
			}
		}
		return
	}
	out := bytes.NewBuffer(s.comment)
	for _, key := range slices.Sorted(maps.Keys(s.now)) {
		fmt.Fprintf(out, "%s: %s\n", key, s.now[key])
	}
	if err := os.WriteFile(scoresFile, out.Bytes(), 0o644); err != nil {
		t.Error(err)
	}
}
