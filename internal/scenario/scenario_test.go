package scenario

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Each scenario is played once in each way, with its steps, and what is printed is compared with the script.
func TestVariants(t *testing.T) {
	script := filepath.Join(t.TempDir(), "script.txt")
	text := "# Why.\nscenario first\na b=1\nc\n----\n2 steps\n\nscenario second\nd\n----\n1 steps\n"
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var played []string
	play := func(way string) Play {
		return func(_ *testing.T, steps []string) string {
			played = append(played, way+": "+strings.Join(steps, "; "))
			return string(rune('0'+len(steps))) + " steps"
		}
	}
	Variants(t, script, map[string]Play{"x": play("x"), "y": play("y")})
	if want := []string{"x: a b=1; c", "y: a b=1; c", "x: d", "y: d"}; !slices.Equal(played, want) {
		t.Errorf("played %q, should be %q", played, want)
	}
}

// An option that nothing asks for is an error: a mistyped one would change nothing.
func TestParse(t *testing.T) {
	s := Parse(`here create a spec={"n":"x=y"} dry-run=true`)
	if !slices.Equal(s.Words, []string{"here", "create", "a"}) || s.Word(2) != "a" || s.Word(3) != "" {
		t.Errorf("the words are %q", s.Words)
	}
	if spec, ok := s.Option("spec"); !ok || spec != `{"n":"x=y"}` {
		t.Errorf("spec is %q", spec)
	}
	if err := s.Unused(); err == nil || !strings.Contains(err.Error(), "dry-run") {
		t.Errorf("an option that nothing has asked for: %v", err)
	}
	if _, ok := s.Option("dry-run"); !ok || s.Unused() != nil {
		t.Errorf("dry-run is there: %v, unused: %v", ok, s.Unused())
	}
}
