package replicas

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// outcome says whether a request was carried out.
type outcome int

const (
	done outcome = iota
	refused
	unknown
)

func (o outcome) String() string { return [...]string{"done", "refused", "unknown"}[o] }

// never is when a request ends of which it is never known whether it was carried out.
const never = math.MaxInt64

// op is one request.
type op struct {
	client, replica int
	key             string // what the model keeps one state of
	text            string // for people
	note            string // how the server answered
	// mark is in every state that the op makes, and in no other op: whoever sees it has seen the op. "" for reads, and
	// for deletes, which leave nothing to see.
	mark string
	// apply is what one server does with a state. It returns false if that server refuses.
	apply      func(state string) (string, bool)
	call, back int64
	outcome    outcome
	shows      bool // the answer has the state: that of a read, or the one after a write
	seen       string
	look       func(state string) string // the part of the state that the answer has; nil: all of it
	whatever   bool                      // it may be refused in any state
}

func (o *op) String() string {
	shown := ""
	if o.shows {
		shown = fmt.Sprintf(" shows %q", o.seen)
	}
	back := "never"
	if o.back != never {
		back = fmt.Sprintf("%.4fs", time.Duration(o.back).Seconds())
	}
	return fmt.Sprintf("%.4fs-%s client %d replica %d: %s %s%s (%s)", time.Duration(o.call).Seconds(), back, o.client,
		o.replica, o.text, o.outcome, shown, o.note)
}

// read returns the state as it is.
func read(state string) (string, bool) { return state, true }

// swap is a write on the condition that the state is an earlier one.
func swap(before, after string) func(string) (string, bool) {
	return func(state string) (string, bool) { return after, state == before }
}

// history is what clients have done and seen in one workload.
type history struct {
	mu  sync.Mutex
	ops []*op
}

func (h *history) add(o *op) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, o)
}

// all returns the ops in the order of their calls.
func (h *history) all() []*op {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.SortedFunc(slices.Values(h.ops), func(a, b *op) int { return cmp.Compare(a.call, b.call) })
}

// rules say how unknown ops of a history may be narrowed, so that the search for an order is short. Neither changes
// which histories have one. (Reads whose outcome is unknown say nothing, and are in no history.)
//
//	an op whose mark somebody saw was carried out before the first of these had its answer
//	an op whose mark is nowhere in the truth was never carried out
//	an op whose mark nobody saw may be left out, if without it no answer is another one: nothing is refused for its
//	sake, and nothing removes what it wrote without showing it
type rules struct {
	// unseenMatters says that an op that nobody saw may have been the reason for an answer.
	unseenMatters bool
	// written says whether a mark is in the truth; nil: there is none.
	written func(mark string) bool
}

// settle narrows the unknown ops of one key.
func (r rules) settle(ops []*op) []*op {
	var settled []*op
	for _, o := range ops {
		if o.outcome != unknown {
			settled = append(settled, o)
			continue
		}
		first := int64(never)
		for _, other := range ops {
			if o.mark != "" && other != o && other.shows && strings.Contains(other.seen, o.mark) {
				first = min(first, other.back)
			}
		}
		switch {
		case first < never:
		case o.mark == "":
		case r.written != nil && !r.written(o.mark), !r.unseenMatters:
			continue
		}
		one := *o
		one.back = first
		settled = append(settled, &one)
	}
	return settled
}

// model is the one server.
var model = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, _ any) (bool, any) {
		o := input.(*op)
		after, fine := o.apply(state.(string))
		switch o.outcome {
		case refused:
			return !fine || o.whatever, state
		case unknown:
			if !fine {
				after = state.(string)
			}
			return true, after
		}
		if o.shows && fine {
			part := after
			if o.look != nil {
				part = o.look(after)
			}
			fine = part == o.seen
		}
		return fine, after
	},
	Hash:              func(state any) uint64 { return maphash.String(seed, state.(string)) },
	DescribeOperation: func(input, _ any) string { return input.(*op).String() },
	DescribeState:     func(state any) string { return state.(string) },
}

var seed = maphash.MakeSeed()

// checkTime is how long the search for an order of one key may take. It needs milliseconds; if it is not enough, that
// is a failure of its own, as nothing is known then.
const checkTime = 2 * time.Minute

// linear checks that the ops of each key have an order, and describes those that have none.
func linear(ops []*op, r rules, artifacts string) (violations []string) {
	keys := map[string][]*op{}
	for _, o := range ops {
		keys[o.key] = append(keys[o.key], o)
	}
	for key, of := range keys {
		settled := r.settle(of)
		var of []porcupine.Operation
		for _, o := range settled {
			of = append(of, porcupine.Operation{ClientId: o.client, Input: o, Call: o.call, Return: o.back})
		}
		result, info := porcupine.CheckOperationsVerbose(model, of, checkTime)
		if result == porcupine.Ok {
			continue
		}
		text := fmt.Sprintf("%s: no order of its %d requests explains the answers (%s)", key, len(of), result)
		if artifacts != "" {
			file := filepath.Join(artifacts, strings.ReplaceAll(key, "/", "-")+".html")
			if err := porcupine.VisualizePath(model, info, file); err == nil {
				text += ", see " + file
			}
			var lines strings.Builder
			for _, o := range settled {
				fmt.Fprintln(&lines, o)
			}
			_ = os.WriteFile(strings.TrimSuffix(file, "html")+"txt", []byte(lines.String()), 0o644)
		}
		violations = append(violations, text+excerpt(settled, info))
	}
	return violations
}

// excerpt is the part of a history at which the longest order ends.
func excerpt(ops []*op, info porcupine.LinearizationInfo) string {
	var longest []porcupine.Operation
	for _, partition := range info.PartialLinearizationsOperations() {
		for _, one := range partition {
			if len(one) > len(longest) {
				longest = one
			}
		}
	}
	placed, state := map[*op]bool{}, ""
	var lines strings.Builder
	for i, p := range longest {
		o := p.Input.(*op)
		placed[o] = true
		_, after := model.Step(state, o, nil)
		state = after.(string)
		if i >= len(longest)-6 {
			fmt.Fprintf(&lines, "\n  in order: %s", o)
		}
	}
	fmt.Fprintf(&lines, "\n  the state: %q", state)
	n := 0
	for _, o := range ops {
		if !placed[o] && n < 8 {
			fmt.Fprintf(&lines, "\n  left:     %s", o)
			n++
		}
	}
	return lines.String()
}

// sight is an object as an answer showed it.
type sight struct {
	key, uid   string
	revision   int64
	state      string
	deletion   string // its deletionTimestamp
	call, back int64
}

// sights are all of one workload.
type sights struct {
	mu  sync.Mutex
	all []sight
}

func (s *sights) add(one sight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, one)
}

// checkSights checks what holds of objects whoever shows them: one resourceVersion is one state; what was shown is not
// unseen later; and a deletionTimestamp stays.
func checkSights(all []sight) (violations []string) {
	type at struct {
		key      string
		revision int64
	}
	states := map[at]sight{}
	deletions := map[string]sight{}
	keys := map[string][]sight{}
	for _, s := range all {
		if first, ok := states[at{s.key, s.revision}]; ok && (first.state != s.state || first.uid != s.uid) {
			violations = append(violations, fmt.Sprintf("%s at revision %d is %q (UID %s), and %q (UID %s)", s.key, s.revision,
				first.state, first.uid, s.state, s.uid))
		}
		states[at{s.key, s.revision}] = s
		keys[s.key] = append(keys[s.key], s)
	}
	for key, of := range keys {
		byCall, byBack := slices.Clone(of), slices.Clone(of)
		slices.SortFunc(byCall, func(a, b sight) int { return cmp.Compare(a.call, b.call) })
		slices.SortFunc(byBack, func(a, b sight) int { return cmp.Compare(a.back, b.back) })
		newest, next := sight{}, 0
		for _, s := range byCall {
			for ; next < len(byBack) && byBack[next].back < s.call; next++ {
				if byBack[next].revision > newest.revision {
					newest = byBack[next]
				}
			}
			if s.revision < newest.revision {
				violations = append(violations, fmt.Sprintf("%s: revision %d was shown by %s, and %d to a request sent at %s",
					key, newest.revision, time.Duration(newest.back), s.revision, time.Duration(s.call)))
			}
		}
		byRevision := byCall
		slices.SortFunc(byRevision, func(a, b sight) int { return cmp.Compare(a.revision, b.revision) })
		for _, s := range byRevision {
			first, deleting := deletions[s.uid]
			switch {
			case deleting && s.deletion != first.deletion:
				violations = append(violations, fmt.Sprintf("%s (UID %s): its deletionTimestamp is %q at revision %d and %q at %d",
					key, s.uid, first.deletion, first.revision, s.deletion, s.revision))
			case s.deletion != "":
				deletions[s.uid] = s
			}
		}
	}
	return violations
}

// artifacts is where a test writes what it found.
func artifacts(t *testing.T) string {
	t.Helper()
	if dir := t.ArtifactDir(); dir != "" && !strings.HasPrefix(dir, os.TempDir()) {
		return dir
	}
	dir, err := os.MkdirTemp("", "replicas-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !t.Failed() {
			os.RemoveAll(dir)
		}
	})
	return dir
}
