package mutants

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Recorder searches for inputs that distinguish mutants from the original. It runs in a program that contains the
// mutants.
type Recorder struct {
	// Open are the mutants that no sample notices yet, by number.
	Open  map[int]bool
	tried map[int]int
	// alike counts the samples of a class that were tried on a mutant.
	alike map[attempt]int
}

type attempt struct {
	mutant int
	class  uint64
}

// most is how many samples First tries on a mutant, until Reset, mostAlike how many of a class Noticed tries: samples
// that refuse the same fields for the same types of reasons rarely differ in the mutants that they notice.
const (
	most      = 150
	mostAlike = 6
)

// openFile is the environment variable that names the file of the open mutants, a number a line.
const openFile = "PLINTH_MUTANTS_OPEN"

// NewRecorder returns a Recorder with the open mutants that the file of open mutants lists; without the file, all are
// open.
func NewRecorder() (*Recorder, error) {
	r := &Recorder{Open: map[int]bool{}, tried: map[int]int{}, alike: map[attempt]int{}}
	file := os.Getenv(openFile)
	if file == "" {
		for n := range Count {
			r.Open[n+1] = true
		}
		return r, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for line := range bytes.FieldsSeq(text) {
		n, err := strconv.Atoi(string(line))
		if err != nil {
			return nil, err
		}
		r.Open[n] = true
	}
	return r, nil
}

// Save writes the open mutants to the file that NewRecorder has read.
func (r *Recorder) Save() error {
	var text []byte
	for _, n := range slices.Sorted(maps.Keys(r.Open)) {
		text = append(strconv.AppendInt(text, int64(n), 10), '\n')
	}
	return os.WriteFile(os.Getenv(openFile), text, 0o600)
}

// Sample is an input, and the result for it without a mutant.
type Sample struct {
	run  func() (string, error)
	Says string
	// class is a hash of the lines of Says up to their first colons, without digits.
	class uint64
	// reached are the mutants that could make a difference, in order.
	reached []int
}

// Sample runs an input without a mutant.
func (r *Recorder) Sample(run func() (string, error)) (*Sample, error) {
	s := &Sample{run: run}
	reached := map[int]bool{}
	Reach = func(n int) { reached[n] = true }
	says, err := s.try(0)
	Reach = nil
	s.reached, s.Says, s.class = slices.Sorted(maps.Keys(reached)), says, classOf(says)
	return s, err
}

var digits = regexp.MustCompile(`\d+`)

func classOf(says string) uint64 {
	h := fnv.New64a()
	for line := range strings.Lines(says) {
		head, _, _ := strings.Cut(line, ": ")
		_, _ = h.Write([]byte(digits.ReplaceAllString(head, ""))) // never fails
		_, _ = h.Write([]byte{'\n'})
	}
	return h.Sum64()
}

// reachable is the number of mutants that a run may reach before it counts as endless.
const reachable = 1 << 20

func (s *Sample) try(mutant int) (says string, err error) {
	defer func() {
		Active, Budget = 0, 0
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	Active, Budget = mutant, reachable
	return s.run()
}

// Notices says whether a mutant changes the result of a sample. Variables are initialized again only for mutants in
// their values, as that takes long.
func (s *Sample) Notices(mutant int) bool {
	if _, ok := slices.BinarySearch(s.reached, mutant); ok && s.differs(mutant) {
		return true
	}
	if _, ok := slices.BinarySearch(Globals, mutant); ok {
		Set(mutant)
		defer Set(0)
		return s.differs(mutant)
	}
	return false
}

// Reached are the mutants that could change the result of a sample, except for those in the values of variables.
func (s *Sample) Reached() []int { return s.reached }

func (s *Sample) differs(mutant int) bool {
	says, err := s.try(mutant)
	return err != nil || says != s.Says
}

// Close closes the mutants that a sample notices.
func (r *Recorder) Close(s *Sample) {
	for _, n := range s.reached {
		if r.Open[n] && s.Notices(n) {
			delete(r.Open, n)
		}
	}
}

// First is an open mutant that a sample notices, 0 if no such mutant exists or each has been tried enough.
func (r *Recorder) First(s *Sample) int {
	for _, n := range s.reached {
		if !r.Open[n] || r.tried[n] > most {
			continue
		}
		if r.tried[n]++; s.Notices(n) {
			return n
		}
	}
	return 0
}

// Noticed are the open mutants that a sample notices, except for those that were tried enough on samples of its class.
func (r *Recorder) Noticed(s *Sample) []int {
	var noticed []int
	for _, n := range s.reached {
		a := attempt{n, s.class}
		if !r.Open[n] || r.alike[a] >= mostAlike {
			continue
		}
		if s.Notices(n) {
			noticed = append(noticed, n)
		} else {
			r.alike[a]++
		}
	}
	return noticed
}

// Reset lets every mutant be tried anew.
func (r *Recorder) Reset() {
	clear(r.tried)
	clear(r.alike)
}

// CloseGlobals closes the mutants in the values of variables that one of the samples notices. found, if not nil, is
// called with the first such sample of a mutant; the sample that it returns is tried first on the mutants that follow.
func (r *Recorder) CloseGlobals(samples []*Sample, found func(sample, mutant int) *Sample) {
	var first []*Sample
	for _, n := range Globals {
		if !r.Open[n] {
			continue
		}
		Set(n)
		notices := func(s *Sample) bool { return s.differs(n) }
		known := slices.ContainsFunc(first, notices)
		i := -1
		if !known {
			i = slices.IndexFunc(samples, notices)
		}
		Set(0)
		if known || i >= 0 {
			delete(r.Open, n)
		}
		if i >= 0 && found != nil {
			first = append(first, found(i, n))
		}
	}
}
