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

// It is always an error to refuse more than upstream does, or less. The number of refusals and of their causes is
// recorded by kind and verb, and must not change: a refusal for another reason than upstream's is one, too. The
// variants are the same in every run, so that a rule that is lost or finds less changes a number. After adding a rule,
// write the file anew with this flag.
var update = flag.Bool("update", false, "write the scores into "+scoresFile)

const scoresFile = "testdata/scores.txt"

// scores are those of all kinds: for each line of the file, the text before the colon and the text after it.
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

// readScores reads the file.
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

// check compares a score with the recorded one, if the run has the variants of the file.
func (k *kindScores) check(t *testing.T, verb string, s *score) {
	t.Logf("%s %s: %s", k.kind, verb, s)
	if !fromFile() {
		return
	}
	key := k.kind + " " + verb
	text := fmt.Sprintf(
		"%d compared, %d refused, %d of them by us; %d causes, %d of them ours in the same words, %d ours alone",
		s.compared, s.refused, s.caught, s.causes, s.same, s.extra)
	if s.caught < s.refused {
		t.Errorf("%s: %d of %d refused", key, s.caught, s.refused)
	}
	k.all.mu.Lock()
	defer k.all.mu.Unlock()
	k.all.now[key] = text
	if was := k.all.recorded[key]; was != text && !*update {
		t.Errorf("%s\nis        %s\n%s has %s\nif rules were added, go test ./oracle/validation -update", key, text,
			scoresFile, was)
	}
}

// fromFile says whether this run has the same variants as the file.
func fromFile() bool {
	for _, name := range []string{"objects", "seed"} {
		if f := flag.Lookup(name); f.Value.String() != f.DefValue {
			return false
		}
	}
	return true
}

// write writes the file if -update is set; otherwise it fails for recorded scores that are no longer compared. A run of
// only some kinds does neither.
func (s *scores) write(t *testing.T) {
	if !fromFile() || flag.Lookup("test.run").Value.String() != "" &&
		strings.Contains(flag.Lookup("test.run").Value.String(), "/") {
		return
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
