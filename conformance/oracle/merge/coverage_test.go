package merge

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/tools/cover"
)

var coverage = flag.Bool("coverage", false,
	"run scenarios and histories once more, and see that they reach what of upstream a server can reach")

const (
	smd = "sigs.k8s.io/structured-merge-diff/v6"
	// wanted is the percentage of the statements not listed as unreachable that have to be reached, in either package.
	wanted = 95
)

// upstreamPackages are the packages whose coverage is measured.
var upstreamPackages = []string{"merge", "typed"}

// place is where a block of code may begin: behind an opening brace or the colon of a case, or with a statement.
type place struct {
	function string // "Updater.prune"
	text     string // the head, if any, and the first line
}

// sources holds upstream's source, by the path of each file in its module.
type sources map[string]*source

type source struct {
	lines  []string
	places map[token.Position]place // by line and column only
	bodies map[string][2]int        // first and last line of every function
}

// readSources parses upstream's packages.
func readSources(t *testing.T) sources {
	t.Helper()
	args := []string{"list", "-f", "{{.Dir}}"}
	for _, name := range upstreamPackages {
		args = append(args, smd+"/"+name)
	}
	out, err := exec.Command("go", args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	all := sources{}
	for _, dir := range strings.Fields(string(out)) {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if all[filepath.Base(dir)+"/"+filepath.Base(file)], err = parseSource(text); err != nil {
				t.Fatal(err)
			}
		}
	}
	return all
}

func parseSource(text []byte) (*source, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "", text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	s := &source{lines: strings.Split(string(text), "\n"), places: map[token.Position]place{}, bodies: map[string][2]int{}}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		name := f.Name.Name
		if f.Recv != nil {
			of := f.Recv.List[0].Type
			if star, ok := of.(*ast.StarExpr); ok {
				of = star.X
			}
			name = of.(*ast.Ident).Name + "." + name
		}
		s.bodies[name] = [2]int{set.Position(f.Pos()).Line, set.Position(f.End()).Line}
		add := func(at token.Pos, head token.Pos, first []ast.Stmt) {
			p := set.Position(at)
			text := s.line(set.Position(head).Line)
			if len(first) > 0 && set.Position(first[0].Pos()).Line != set.Position(head).Line {
				text += " " + s.line(set.Position(first[0].Pos()).Line)
			}
			s.places[token.Position{Line: p.Line, Column: p.Column}] = place{name, text}
		}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BlockStmt:
				add(n.Lbrace, n.Lbrace, n.List)
			case *ast.CaseClause:
				add(n.Colon+1, n.Colon, n.Body)
			case ast.Stmt:
				add(n.Pos(), n.Pos(), nil)
			}
			return true
		})
	}
	return s, nil
}

func (s *source) line(number int) string { return strings.TrimSpace(s.lines[number-1]) }

// find returns the positions of a text in a function, in order.
func (s *source) find(p place) []token.Position {
	var found []token.Position
	for at, there := range s.places {
		if there == p {
			found = append(found, at)
		}
	}
	slices.SortFunc(found, func(a, b token.Position) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	return found
}

// entry is a line of unreachable.txt.
type entry struct {
	line     int
	file     string
	function string
	at       token.Position // without a line, the whole function
}

func (e entry) holds(file string, s *source, b cover.ProfileBlock) bool {
	if e.file != file {
		return false
	}
	if e.at.Line > 0 {
		return e.at.Line == b.StartLine && e.at.Column == b.StartCol
	}
	of := s.bodies[e.function]
	return of[0] <= b.StartLine && b.EndLine <= of[1]
}

var (
	entryForm = regexp.MustCompile(`^  (\S+\.go) (\S+)(?: \| (?:(\d+) of (\d+): )?(.+))?$`)
	notBlank  = regexp.MustCompile(`^\S.*[.)]$`)
)

// readUnreachable reads the list, and reports each entry that is not in upstream's source.
func readUnreachable(text string, upstream sources) (entries []entry, problems []string) {
	reason, used := "", true
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		bad := func(what string) {
			problems = append(problems, fmt.Sprintf("unreachable.txt:%d: %s: %s", i+1, what, line))
		}
		switch {
		case strings.HasPrefix(line, "#"):
		case line == "":
			if !used {
				bad("the reason before this line is for nothing")
			}
			reason, used = "", true
		case !strings.HasPrefix(line, " ") && reason != "" && used:
			bad("a reason without an empty line before it")
		case !strings.HasPrefix(line, " "):
			reason, used = reason+line+"\n", false
		default:
			m := entryForm.FindStringSubmatch(line)
			if m == nil {
				bad("want FILE FUNCTION, or FILE FUNCTION | TEXT")
				continue
			}
			if used = true; !notBlank.MatchString(strings.ReplaceAll(strings.TrimSpace(reason), "\n", " ")) {
				bad("no reason, in whole sentences, before it")
			}
			e, err := locate(m, upstream)
			if err != nil {
				bad(err.Error())
				continue
			}
			if e.line = i + 1; slices.ContainsFunc(entries, func(o entry) bool {
				return o.file == e.file && o.function == e.function && (o.at == e.at || o.at.Line == 0 || e.at.Line == 0)
			}) {
				bad("listed before")
			}
			entries = append(entries, e)
		}
	}
	return entries, problems
}

// locate finds the source of an entry, which is given in parts: file, function, which of how many, text.
func locate(parts []string, upstream sources) (entry, error) {
	e := entry{file: parts[1], function: parts[2]}
	s := upstream[e.file]
	if s == nil {
		return e, fmt.Errorf("upstream has no such file")
	}
	if _, ok := s.bodies[e.function]; !ok {
		return e, fmt.Errorf("upstream has no such function in this file")
	}
	if parts[5] == "" {
		return e, nil
	}
	which, many := 1, 1
	if parts[3] != "" {
		which, _ = strconv.Atoi(parts[3])
		many, _ = strconv.Atoi(parts[4])
	}
	found := s.find(place{e.function, parts[5]})
	if len(found) != many || which < 1 || which > many {
		return e, fmt.Errorf("upstream has this %d times in this function", len(found))
	}
	e.at = found[which-1]
	return e, nil
}

// tallied counts a package's statements.
type tallied struct {
	all, listed, reached int
	missed               []string // blocks neither listed nor reached
}

func (c tallied) rest() int { return c.all - c.listed }

func (c tallied) percent() float64 { return 100 * float64(c.reached) / float64(c.rest()) }

// measure compares profiles of upstream's packages with the list: how many of the other statements were reached, and
// which entries are wrong, because one of their blocks has been reached or because the profiles have no such block.
func measure(profiles []*cover.Profile, upstream sources, entries []entry) (map[string]*tallied, []string) {
	counts := map[string]*tallied{}
	for _, name := range upstreamPackages {
		counts[name] = &tallied{}
	}
	var problems []string
	used := map[int]bool{}
	for _, p := range profiles {
		file := strings.TrimPrefix(p.FileName, smd+"/")
		s := upstream[file]
		count := counts[strings.Split(file, "/")[0]]
		if s == nil || count == nil {
			continue
		}
		for _, b := range p.Blocks {
			count.all += b.NumStmt
			where := fmt.Sprintf("%s:%d: %s", file, b.StartLine, s.line(b.StartLine))
			if i := slices.IndexFunc(entries, func(e entry) bool { return e.holds(file, s, b) }); i >= 0 {
				used[i] = true
				count.listed += b.NumStmt
				if b.Count > 0 {
					problems = append(problems, fmt.Sprintf("unreachable.txt:%d: this has been reached, %d times: %s", entries[i].line,
						b.Count, where))
				}
				continue
			}
			if b.Count > 0 {
				count.reached += b.NumStmt
			} else if b.NumStmt > 0 {
				count.missed = append(count.missed, where)
			}
		}
	}
	for i, e := range entries {
		if !used[i] {
			problems = append(problems, fmt.Sprintf("unreachable.txt:%d: no block begins there", e.line))
		}
	}
	return counts, problems
}

// TestUnreachable compares unreachable.txt with upstream's source and, with -coverage, with what a run reaches.
func TestUnreachable(t *testing.T) {
	text, err := os.ReadFile("unreachable.txt")
	if err != nil {
		t.Fatal(err)
	}
	source := readSources(t)
	entries, problems := readUnreachable(string(text), source)
	for _, p := range problems {
		t.Error(p)
	}
	if !*coverage || t.Failed() {
		return
	}
	counts, problems := measure(profile(t), source, entries)
	for _, p := range problems {
		t.Error(p)
	}
	for _, name := range upstreamPackages {
		c := counts[name]
		t.Logf(
			"%s: %d statements, %d of them listed as unreachable; of the other %d, %d have been reached: %.1f %% (of all: %.1f %%)",
			name, c.all, c.listed, c.rest(), c.reached, c.percent(), 100*float64(c.reached)/float64(max(c.all, 1)))
		for _, where := range c.missed {
			t.Logf("not reached: %s", where)
		}
		if c.rest() == 0 || c.percent() < wanted {
			t.Errorf("%s: want %d %% of what is not listed", name, wanted)
		}
	}
}

// profile runs scenarios and histories with upstream's packages instrumented.
func profile(t *testing.T) []*cover.Profile {
	t.Helper()
	out := filepath.Join(t.TempDir(), "profile")
	var packages []string
	for _, name := range upstreamPackages {
		packages = append(packages, smd+"/"+name)
	}
	said, err := exec.Command("go", "test", "-count=1", "-timeout", "3h", "-v", "-coverprofile", out, "-coverpkg",
		strings.Join(packages, ","), ".",
		"-run", "^(TestScenarios|TestGoStructs|TestConversionsThatFail|TestHistories)$",
		"-histories", fmt.Sprint(*histories), "-seed", fmt.Sprint(*seed), "-length", fmt.Sprint(*length),
		"-scattered", fmt.Sprint(*scattered)).CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, said)
	}
	profiles, err := cover.ParseProfiles(out)
	if err != nil {
		t.Fatal(err)
	}
	return profiles
}

// TestUnreachableNoticesChanges changes list, source and profile, and requires that each change is reported.
func TestUnreachableNoticesChanges(t *testing.T) {
	code := `package merge

func (u *Updater) update(old, new int) error {
	if err := compare(old, new); err != nil {
		return err
	}
	switch {
	case old == new:
		// The same.
		return nil
	}
	if err := compare(old, new); err != nil {
		return err
	}
	return nil
}

func left() {
	over()
}
`
	profiles := []*cover.Profile{{FileName: smd + "/merge/update.go", Blocks: []cover.ProfileBlock{
		{StartLine: 3, StartCol: 46, EndLine: 4, EndCol: 42, NumStmt: 1, Count: 2},
		{StartLine: 4, StartCol: 42, EndLine: 6, EndCol: 3, NumStmt: 1, Count: 0},
		{StartLine: 7, StartCol: 2, EndLine: 7, EndCol: 9, NumStmt: 1, Count: 2},
		{StartLine: 8, StartCol: 18, EndLine: 10, EndCol: 13, NumStmt: 1, Count: 0},
		{StartLine: 12, StartCol: 2, EndLine: 12, EndCol: 42, NumStmt: 1, Count: 2},
		{StartLine: 12, StartCol: 42, EndLine: 14, EndCol: 3, NumStmt: 1, Count: 1},
		{StartLine: 15, StartCol: 2, EndLine: 15, EndCol: 12, NumStmt: 1, Count: 1},
		{StartLine: 18, StartCol: 13, EndLine: 20, EndCol: 2, NumStmt: 1, Count: 0},
	}}}
	const why, first, same, all = "Because.\n",
		"  merge/update.go Updater.update | 1 of 2: if err := compare(old, new); err != nil { return err\n",
		"  merge/update.go Updater.update | case old == new: return nil\n", "  merge/update.go left\n"
	for _, c := range []struct{ list, code, want string }{
		{why + first + same + "\n" + why + all, code, "reached 5 of 5"},
		{why + first + same, code, "reached 5 of 6; missed merge/update.go:18: func left() {"},
		{why + all, code,
			"reached 5 of 7; missed merge/update.go:4: if err := compare(old, new); err != nil {; missed merge/update.go:8: case old == new:"},
		{why + strings.Replace(first, "1 of", "2 of", 1), code,
			"unreachable.txt:2: this has been reached, 1 times: merge/update.go:12: if err := compare(old, new); err != nil {"},
		{why + "  merge/update.go Updater.update\n", code, "this has been reached, 2 times"},
		{why + "  merge/update.go Updater.update | return err\n", code, "upstream has this 2 times"},
		{why + "  merge/update.go Updater.update | 2 of 2: return err\n", code, "no block begins there"},
		{why + strings.Replace(first, "1 of 2: ", "", 1), code, "upstream has this 2 times"},
		{why + same, strings.Replace(code, "case old == new", "case new == old", 1), "upstream has this 0 times"},
		{why + same, strings.Replace(code, "\t\treturn nil", "\t\treturn done", 1), "upstream has this 0 times"},
		{why + same, "\n\n" + code, "no block begins there"}, // the profile of another source
		{why + all, strings.Replace(code, "left", "right", 1), "upstream has no such function"},
		{why + "  merge/up.go left\n", code, "upstream has no such file"},
		{all, code, "no reason"},
		{"Because\n" + all, code, "no reason"},
		{why + "\n" + why + all, code, "the reason before this line is for nothing"},
		{why + all + why + same, code, "a reason without an empty line before it"},
		{why + all + all, code, "listed before"},
		{why + " merge/update.go left\n", code, "want FILE FUNCTION"},
	} {
		s, err := parseSource([]byte(c.code))
		if err != nil {
			t.Fatal(err)
		}
		upstream := sources{"merge/update.go": s}
		entries, problems := readUnreachable(c.list, upstream)
		counts, more := measure(profiles, upstream, entries)
		got := append(append(problems, more...), fmt.Sprintf("reached %d of %d", counts["merge"].reached,
			counts["merge"].rest()))
		for _, where := range counts["merge"].missed {
			got = append(got, "missed "+where)
		}
		if told := strings.Join(got, "; "); !strings.Contains(told, c.want) || strings.HasPrefix(c.want, "reached") &&
			told != c.want {
			t.Errorf("%s\n%s\nwant: %s", c.list, told, c.want)
		}
	}
}
