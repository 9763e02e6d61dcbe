// Package scenario runs the scenario scripts of tests: steps as text, and below them what they print. A script is a
// file in the testdata of the test's package. It has one directive for each scenario:
//
//	# Why the scenario is there.
//	scenario name-of-it
//	here create a spec={"n":1}
//	here delete a
//	----
//	here create a: created
//	here delete a: deleted
//
// A test plays the lines between the directive and ---- on a bench of its own, and says what they print. It says, too,
// which steps there are: they are described where it plays them. If a scenario has several variants, all of them print
// the same.
//
//	go test ./internal/engine -run TestOutdated/get            play one scenario
//	go test ./internal/engine -run TestOutdated -rewrite       write what is printed now into the script
package scenario

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// A Play plays the steps of a scenario on a new bench and returns what they print.
type Play func(t *testing.T, steps []string) string

// Run plays all scenarios of a script.
func Run(t *testing.T, script string, play Play) {
	t.Helper()
	Variants(t, script, map[string]Play{"": play})
}

// Variants plays all scenarios of a script in each of these ways.
func Variants(t *testing.T, script string, ways map[string]Play) {
	t.Helper()
	played := map[string]bool{}
	datadriven.RunTest(t, script, func(t *testing.T, d *datadriven.TestData) string {
		if d.Cmd != "scenario" || len(d.CmdArgs) != 1 {
			d.Fatalf(t, "a directive is \"scenario\" and a name")
		}
		name := d.CmdArgs[0].Key
		if played[name] {
			d.Fatalf(t, "there are two scenarios %s", name)
		}
		played[name] = true
		steps := strings.Split(strings.TrimSpace(d.Input), "\n")
		printed := map[string]string{}
		for _, way := range slices.Sorted(maps.Keys(ways)) {
			t.Run(strings.TrimSuffix(name+"/"+way, "/"), func(t *testing.T) { printed[way] = ways[way](t, steps) })
		}
		return agreed(t, d, printed)
	})
}

// agreed is what all ways have printed. Without any, as -run has left all of them out, it is what the script expects.
func agreed(t *testing.T, d *datadriven.TestData, printed map[string]string) string {
	t.Helper()
	first := ""
	for i, way := range slices.Sorted(maps.Keys(printed)) {
		if i == 0 {
			first = way
		} else if printed[way] != printed[first] {
			d.Fatalf(t, "%s prints\n%s\nand %s prints\n%s", first, printed[first], way, printed[way])
		}
	}
	if len(printed) == 0 {
		return d.Expected
	}
	return printed[first]
}

// A Step is a line of a scenario: words, of which those with an equals sign are options.
type Step struct {
	Words   []string
	options map[string]string
	used    map[string]bool
}

// Parse parses a line.
func Parse(line string) *Step {
	s := &Step{options: map[string]string{}, used: map[string]bool{}}
	for word := range strings.FieldsSeq(line) {
		if name, value, ok := strings.Cut(word, "="); ok {
			s.options[name] = value
		} else {
			s.Words = append(s.Words, word)
		}
	}
	return s
}

// Word returns a word, or an empty string behind the last one.
func (s *Step) Word(i int) string {
	if i >= len(s.Words) {
		return ""
	}
	return s.Words[i]
}

// Option returns an option, and whether the step has it.
func (s *Step) Option(name string) (value string, ok bool) {
	s.used[name] = true
	value, ok = s.options[name]
	return value, ok
}

// Unused returns an error if there are options that nothing has asked for: a mistyped one would change nothing.
func (s *Step) Unused() error {
	for _, name := range slices.Sorted(maps.Keys(s.options)) {
		if !s.used[name] {
			return fmt.Errorf("there is no option %s", name)
		}
	}
	return nil
}
