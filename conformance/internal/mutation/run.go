package mutation

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Program is a test program that has mutants in it.
type Program struct {
	binary, dir string
	// reaching holds the tests that reach a mutant, by its number, in the order of specific.
	reaching map[int][]string
	// times are how long the tests took without a mutant, took is the sum.
	times map[string]time.Duration
	took  time.Duration
}

// patience is the time limit of a run of tests with a mutant. A run that exceeds it is repeated with four times the
// limit; if it exceeds that, too, the mutant counts as noticed.
func (p *Program) patience(tests []string) time.Duration {
	limit := 3 * time.Second
	for _, test := range tests {
		limit += 10 * p.times[test]
	}
	return limit
}

// Build builds the tests of a package under an overlay. path is the import path of a package of the module in the
// folder dir; out is a folder for the program.
func Build(dir, overlay, path, out string) (*Program, error) {
	binary := filepath.Join(out, strings.ReplaceAll(strings.Trim(path, "./"), "/", "_")+".test")
	command := exec.Command("go", "test", "-c", "-vet=off", "-tags", "invariants,mutants", "-overlay", overlay, "-o",
		binary, path)
	command.Dir = dir
	if text, err := command.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go test -c %s: %w\n%s", path, err, text)
	}
	command = exec.Command("go", "list", "-f", "{{.Dir}}", path)
	command.Dir = dir
	folder, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w", path, err)
	}
	return &Program{binary: binary, dir: strings.TrimSpace(string(folder)), reaching: map[int][]string{},
		times: map[string]time.Duration{}}, nil
}

// Trace runs each test by itself, without a mutant, and records which mutants of a package it reaches. It leaves out
// the tests for which skip returns true.
func (p *Program) Trace(pkg *Package, skip func(test string) bool) error {
	listing, err := p.run(time.Minute, nil, "-test.list", ".")
	if err != nil {
		return fmt.Errorf("%w\n%s", err, listing)
	}
	reached := map[string]map[string]int{} // how many mutants each test reaches, by file
	for test := range strings.FieldsSeq(string(listing)) {
		if !strings.HasPrefix(test, "Test") || test == inProcess || skip != nil && skip(test) {
			continue
		}
		file := p.binary + ".reached"
		start := time.Now()
		if out, err := p.run(10*time.Minute, []string{"PLINTH_MUTANTS_REACHED=" + file}, "-test.run",
			"^"+test+"$"); err != nil {
			return fmt.Errorf("%s fails without any mutant: %w\n%s", test, err, out)
		}
		p.times[test] = time.Since(start)
		p.took += p.times[test]
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		reached[test] = map[string]int{}
		for number := range bytes.FieldsSeq(text) {
			n, err := strconv.Atoi(string(number))
			if err != nil {
				return err
			}
			p.reaching[n] = append(p.reaching[n], test)
			if m := &pkg.Mutants[n-1]; !m.Global { // every test reaches those
				reached[test][m.file()]++
			}
		}
	}
	for n, tests := range p.reaching {
		specific(tests, pkg.Mutants[n-1].file(), reached)
	}
	if len(p.reaching) == 0 {
		return fmt.Errorf("no test of %s reaches a mutant", p.binary)
	}
	return p.control()
}

// specific sorts tests by how much each is about a file: by the part that its mutants are of those that the test
// reaches, and by how few these are.
func specific(tests []string, file string, reached map[string]map[string]int) {
	all := func(test string) (n int) {
		for _, k := range reached[test] {
			n += k
		}
		return n
	}
	part := func(test string) float64 { return float64(reached[test][file]) / float64(max(1, all(test))) }
	slices.SortStableFunc(tests, func(a, b string) int {
		return cmp.Or(cmp.Compare(part(b), part(a)), cmp.Compare(all(a), all(b)))
	})
}

// control runs all tests as Notices does, but without a mutant: a test that fails here would fail with every mutant.
func (p *Program) control() error {
	var tests []string
	for _, reaching := range p.reaching {
		tests = append(tests, reaching...)
	}
	slices.Sort(tests)
	if out, err := p.try(0, slices.Compact(tests), time.Hour); err != nil {
		return fmt.Errorf("the tests fail without any mutant: %w\n%s", err, out)
	}
	return nil
}

// InProcess runs TestMutants, which tries mutants on the cases of other tests in one process, and returns those that it
// does not notice. Notices no longer runs these tests for them, except for global mutants: values that the program has
// computed from a variable at its start do not change within one process.
func (p *Program) InProcess(mutants []int, tests []string, global func(mutant int) bool) ([]int, error) {
	var text []byte
	for _, n := range mutants {
		text = fmt.Appendln(text, n)
	}
	file := p.binary + ".open"
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, err
	}
	out, err := p.run(time.Hour, []string{"PLINTH_MUTANTS_OPEN=" + file}, "-test.run",
		"^"+inProcess+"$/^("+strings.Join(p.about(mutants, tests, global), "|")+")$", "-test.timeout", "1h")
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	if text, err = os.ReadFile(file); err != nil {
		return nil, err
	}
	var left []int
	for number := range bytes.FieldsSeq(text) {
		n, err := strconv.Atoi(string(number))
		if err != nil {
			return nil, err
		}
		left = append(left, n)
		if !global(n) {
			p.reaching[n] = slices.DeleteFunc(p.reaching[n], func(t string) bool { return slices.Contains(tests, t) })
		}
	}
	return left, nil
}

// about are those of the tests that reach one of the mutants. Every test reaches global ones: if there are no others,
// all tests are about them. They are the names of the subtests of TestMutants, if it has any.
func (p *Program) about(mutants []int, tests []string, global func(mutant int) bool) []string {
	var reaching []string
	for _, n := range mutants {
		if !global(n) {
			reaching = append(reaching, p.reaching[n]...)
		}
	}
	if len(reaching) == 0 {
		return tests
	}
	return slices.DeleteFunc(slices.Clone(tests), func(t string) bool { return !slices.Contains(reaching, t) })
}

// inProcess is the test that tries mutants in one process.
const inProcess = "TestMutants"

// Reaches says whether any test reaches a mutant.
func (p *Program) Reaches(mutant int) bool { return len(p.reaching[mutant]) > 0 }

// Notices says whether a test fails when a mutant is on. The most specific test is about the rules around the mutant,
// most likely: it runs first, by itself, and the others only if it passes.
func (p *Program) Notices(mutant int) (bool, error) {
	tests := p.reaching[mutant]
	if len(tests) > 1 {
		if noticed, err := p.notices(mutant, tests[:1]); noticed || err != nil {
			return noticed, err
		}
		tests = tests[1:]
	}
	return p.notices(mutant, tests)
}

func (p *Program) notices(mutant int, tests []string) (bool, error) {
	if len(tests) == 0 {
		return false, nil
	}
	limit := p.patience(tests)
	_, err := p.try(mutant, tests, limit)
	if errors.Is(err, context.DeadlineExceeded) { // the test hangs, or the machine is busy
		_, err = p.try(mutant, tests, 4*limit)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, context.DeadlineExceeded) {
		return false, err
	}
	return err != nil, nil
}

// try runs tests with a mutant.
func (p *Program) try(mutant int, tests []string, patience time.Duration) ([]byte, error) {
	quoted := make([]string, len(tests))
	for i, test := range tests {
		quoted[i] = regexp.QuoteMeta(test)
	}
	return p.run(patience, []string{"PLINTH_MUTANT=" + strconv.Itoa(mutant)}, "-test.failfast", "-test.run",
		"^("+strings.Join(quoted, "|")+")$")
}

func (p *Program) run(patience time.Duration, env []string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	command := exec.CommandContext(ctx, p.binary, args...)
	command.Dir = p.dir
	command.Env = append(os.Environ(), append(env, "GOMAXPROCS=1", "GOTRACEBACK=none")...)
	out, err := command.CombinedOutput()
	if ctx.Err() != nil {
		return out, ctx.Err()
	}
	return out, err
}

// Survivors are those of the mutants that none of the programs notices, in order. The fastest program runs first, and
// so many mutants are tried at a time.
func Survivors(mutants []int, atATime int, programs ...*Program) ([]int, error) {
	programs = slices.SortedStableFunc(slices.Values(programs), func(a, b *Program) int {
		return cmp.Compare(a.took, b.took)
	})
	work := make(chan int)
	var mu sync.Mutex
	var left []int
	var failed error
	var workers sync.WaitGroup
	for range atATime {
		workers.Go(func() {
			for mutant := range work {
				noticed, err := false, error(nil)
				for _, p := range programs {
					if noticed, err = p.Notices(mutant); noticed || err != nil {
						break
					}
				}
				mu.Lock()
				if err != nil {
					failed = err
				} else if !noticed {
					left = append(left, mutant)
				}
				mu.Unlock()
			}
		})
	}
	for _, mutant := range mutants {
		work <- mutant
	}
	close(work)
	workers.Wait()
	slices.Sort(left)
	return left, failed
}
