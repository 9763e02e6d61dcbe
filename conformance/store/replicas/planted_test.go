package replicas

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// planted is a history with an error that a checker has to find, or with none.
type planted struct {
	name string
	bad  bool
	ops  []*op
	rules
}

// The helpers write ops: from and till are their times.

func showing(from, till int64, state string) *op {
	return &op{text: "get", apply: read, call: from, back: till, shows: true, seen: state}
}

func writing(from, till int64, how outcome, mark string, apply func(string) (string, bool)) *op {
	o := &op{text: "write " + mark, mark: mark, apply: apply, call: from, back: till, outcome: how}
	if how == unknown {
		o.back = never
	}
	if how == done {
		before := "v=none"
		if after, ok := apply(before); ok {
			o.shows, o.seen = true, after
		}
	}
	return o
}

func made(from, till int64, how outcome, mark string) *op {
	o := writing(from, till, how, mark, swap("", "v="+mark))
	if how == done {
		o.shows, o.seen = true, "v="+mark
	}
	return o
}

func swapped(from, till int64, how outcome, before, mark string) *op {
	o := writing(from, till, how, mark, swap("v="+before, "v="+mark))
	if how == done {
		o.shows, o.seen = true, "v="+mark
	}
	return o
}

func removed(from, till int64, how outcome, mark string) *op {
	o := writing(from, till, how, "", swap("v="+mark, ""))
	o.shows = false
	return o
}

var careful = rules{unseenMatters: true}

var histories = []planted{
	{name: "writes one after the other", ops: []*op{made(0, 1, done, "a"), swapped(2, 3, done, "a", "b"), showing(4, 5,
		"v=b")}},
	{name: "a stale read", bad: true, ops: []*op{made(0, 1, done, "a"), swapped(2, 3, done, "a", "b"), showing(4, 5,
		"v=a")}},
	{name: "a read beside a write", ops: []*op{made(0, 1, done, "a"), swapped(2, 5, done, "a", "b"), showing(3, 4,
		"v=a")}},
	{name: "reads that go back", bad: true, ops: []*op{made(0, 1, done, "a"), swapped(2, 9, done, "a", "b"),
		showing(3, 4, "v=b"), showing(5, 6, "v=a")}},
	{name: "a lost update", bad: true, ops: []*op{made(0, 1, done, "a"), swapped(2, 5, done, "a", "b"),
		swapped(3, 6, done, "a", "c"), showing(7, 8, "v=c")}},
	{name: "a write that is gone", bad: true, ops: []*op{made(0, 1, done, "a"), swapped(2, 3, done, "a", "b"),
		showing(4, 5, "")}},
	{name: "a conflict without a reason", bad: true, ops: []*op{made(0, 1, done, "a"), swapped(2, 3, refused, "a", "b")}},
	{name: "a conflict with one", ops: []*op{made(0, 1, done, "a"), swapped(2, 3, done, "a", "b"),
		swapped(4, 5, refused, "a", "c")}},
	{name: "a refused write is there", bad: true, ops: []*op{made(0, 1, done, "a"), swapped(2, 9, done, "a", "b"),
		swapped(2, 3, refused, "a", "c"), showing(10, 11, "v=c")}},
	{name: "an unknown write happens later", ops: []*op{made(0, 1, done, "a"), swapped(2, 3, unknown, "a", "b"),
		showing(4, 5, "v=a"), showing(6, 7, "v=b")}},
	{name: "an unknown write happens never", ops: []*op{made(0, 1, done, "a"), swapped(2, 3, unknown, "a", "b"),
		showing(4, 5, "v=a"), swapped(6, 7, done, "a", "c"), showing(8, 9, "v=c")}},
	{name: "an unknown write happens and does not", bad: true, ops: []*op{made(0, 1, done, "a"),
		swapped(2, 3, unknown, "a", "b"), showing(4, 5, "v=b"), showing(6, 7, "v=a")}},
	{name: "an unknown write happens after it cannot", bad: true, ops: []*op{made(0, 1, done, "a"),
		swapped(2, 3, unknown, "a", "b"), swapped(4, 5, done, "a", "c"), showing(6, 7, "v=c"), showing(8, 9, "v=b")}},
	{name: "a write before it is sent", bad: true, ops: []*op{made(0, 1, done, "a"), showing(2, 3, "v=b"),
		swapped(4, 5, done, "a", "b")}},
	{name: "an unknown write that etcd does not have", bad: true, ops: []*op{made(0, 1, unknown, "a"),
		made(2, 3, refused, "b"), showing(4, 5, "")},
		rules: rules{unseenMatters: true, written: func(string) bool { return false }}},

	{name: "an unknown delete leaves no mark", ops: []*op{made(0, 1, done, "a"), removed(2, 3, unknown, "a"),
		showing(4, 5, "")}, rules: rules{unseenMatters: true, written: func(mark string) bool { return mark == "a" }}},

	{name: "one of two creates wins", rules: careful, ops: []*op{made(0, 5, done, "a"), made(0, 5, refused, "b"),
		showing(6, 7, "v=a")}},
	{name: "two winners", bad: true, rules: careful, ops: []*op{made(0, 5, done, "a"), made(0, 5, done, "b"),
		showing(6, 7, "v=a")}},
	{name: "no winner", bad: true, rules: careful, ops: []*op{made(0, 5, refused, "a"), made(0, 5, refused, "b")}},
	{name: "created again", rules: careful, ops: []*op{made(0, 1, done, "a"), removed(2, 3, done, "a"), made(4, 5, done,
		"b"),
		showing(6, 7, "v=b")}},
	{name: "a revived object", bad: true, rules: careful, ops: []*op{made(0, 1, done, "a"), removed(2, 3, done, "a"),
		showing(4, 5, ""), showing(6, 7, "v=a")}},
	{name: "an unknown create is carried out twice", bad: true, rules: careful, ops: []*op{made(0, 1, unknown, "a"),
		showing(2, 3, "v=a"), removed(4, 5, done, "a"), showing(6, 7, "v=a")}},
	{name: "deleted twice", bad: true, rules: careful, ops: []*op{made(0, 1, done, "a"), removed(2, 3, done, "a"),
		removed(4, 5, done, "a")}},
	{name: "a delete that changed nothing", bad: true, rules: careful, ops: []*op{made(0, 1, done, "a"),
		removed(2, 3, done, "a"), showing(4, 5, "v=a")}},
	{name: "nobody saw why", rules: careful, ops: []*op{made(0, 1, unknown, "a"), made(2, 3, refused, "b"),
		writing(4, 5, unknown, "", func(string) (string, bool) { return "", true }), made(6, 7, done, "c")}},
}

// Each kind of error in a history is found, and nothing is found where there is none.
func TestLinearHistories(t *testing.T) {
	for _, h := range histories {
		if found := linear(h.ops, h.rules, ""); (len(found) > 0) != h.bad {
			t.Errorf("%s: %v", h.name, found)
		}
	}
}

// What was found is in files that people can read.
func TestArtifacts(t *testing.T) {
	dir := t.TempDir()
	i := slices.IndexFunc(histories, func(h planted) bool { return h.name == "a stale read" })
	found := linear(histories[i].ops, rules{}, dir)
	if len(found) != 1 || !strings.Contains(found[0], dir) || !strings.Contains(found[0], "left:") {
		t.Errorf("it says %v", found)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 2 {
		t.Errorf("the files are %v, %v", files, err)
	}
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil || !strings.Contains(string(text), "client 0 replica 0: get done") {
			t.Errorf("%s does not have the history: %v", f.Name(), err)
		}
	}
}

// try is an op whose answer shows a state.
func try(n int64, how outcome, apply func(string) (string, bool), seen string) *op {
	return &op{text: "try", apply: apply, call: 2 * n, back: 2*n + 1, outcome: how, shows: how == done, seen: seen}
}

// What single workloads ask of a server beyond registers is in their models.
func TestModels(t *testing.T) {
	own := func(value string) map[string]string { return map[string]string{"own-m0": value} }
	shared := func(manager, value string) map[string]string {
		return map[string]string{"own-" + manager: value, "shared": value}
	}
	held := func(state string) *op { return try(0, done, swap("", state), state) }
	list := func(n int64, state string) *op { return try(n, done, read, state) }
	for _, h := range []planted{
		{name: "patches of two fields", ops: []*op{try(0, done, swap("", "v=1"), "v=1"),
			try(1, done, setField("a", "x"), "a=x v=1"), try(2, done, setField("b", "y"), "a=x b=y v=1")}},
		{name: "a patch undoes another one", bad: true, ops: []*op{try(0, done, swap("", "v=1"), "v=1"),
			try(1, done, setField("a", "x"), "a=x v=1"), try(2, done, setField("b", "y"), "b=y v=1")}},

		{name: "an apply of fewer fields", ops: []*op{
			try(0, done, applied("m0", shared("m0", "1"), false), "own-m0=1@m0 shared=1@m0"),
			try(1, done, applied("m0", own("2"), false), "own-m0=2@m0")}},
		{name: "a field stays although it is left out", bad: true, ops: []*op{
			try(0, done, applied("m0", shared("m0", "1"), false), "own-m0=1@m0 shared=1@m0"),
			try(1, done, applied("m0", own("2"), false), "own-m0=2@m0 shared=1@m0")}},
		{name: "a conflict", ops: []*op{
			try(0, done, applied("m0", shared("m0", "1"), false), "own-m0=1@m0 shared=1@m0"),
			try(1, refused, applied("m1", shared("m1", "2"), false), "")}},
		{name: "a conflict that is not said", bad: true, ops: []*op{
			try(0, done, applied("m0", shared("m0", "1"), false), "own-m0=1@m0 shared=1@m0"),
			try(1, done, applied("m1", shared("m1", "2"), false), "own-m0=1@m0 own-m1=2@m1 shared=2@m1")}},
		{name: "an apply by force", ops: []*op{
			try(0, done, applied("m0", shared("m0", "1"), false), "own-m0=1@m0 shared=1@m0"),
			try(1, done, applied("m1", shared("m1", "2"), true), "own-m0=1@m0 own-m1=2@m1 shared=2@m1"),
			try(2, done, applied("m0", own("3"), false), "own-m0=3@m0 own-m1=2@m1 shared=2@m1")}},
		{name: "an apply takes what is another's", bad: true, ops: []*op{
			try(0, done, applied("m0", shared("m0", "1"), false), "own-m0=1@m0 shared=1@m0"),
			try(1, done, applied("m1", shared("m1", "2"), true), "own-m0=1@m0 own-m1=2@m1 shared=2@m1"),
			try(2, done, applied("m0", own("3"), false), "own-m0=3@m0 own-m1=2@m1")}},

		{name: "held until released", ops: []*op{held("held=a v=1"), try(1, done, deleted, "deleting=yes held=a v=1"),
			try(2, done, swap("deleting=yes held=a v=1", ""), ""), list(3, "")}},
		{name: "gone before it is released", bad: true, ops: []*op{held("held=a v=1"),
			try(1, done, deleted, "deleting=yes held=a v=1"), list(2, "")}},
		{name: "not deleted any more", bad: true, ops: []*op{held("held=a v=1"),
			try(1, done, deleted, "deleting=yes held=a v=1"), list(2, "held=a v=1")}},
		{name: "written after it is gone", bad: true, ops: []*op{held("held=a v=1"),
			try(1, done, deleted, "deleting=yes held=a v=1"), try(2, done, swap("deleting=yes held=a v=1", ""), ""),
			try(3, done, swap("deleting=yes held=a v=1", "deleting=yes held=a v=2"), "deleting=yes held=a v=2")}},

		{name: "snapshots", ops: []*op{try(0, done, replaceIn("a", "", "1"), "a=1"), list(1, "a=1"),
			try(2, done, replaceIn("b", "", "2"), "a=1 b=2"), list(3, "a=1 b=2"),
			try(4, done, replaceIn("a", "1", ""), "b=2"), list(5, "b=2")}},
		{name: "a torn list", bad: true, ops: []*op{try(0, done, replaceIn("a", "", "1"), "a=1"),
			try(1, done, replaceIn("b", "", "1"), "a=1 b=1"),
			{text: "a", apply: replaceIn("a", "1", "2"), call: 10, back: 20},
			{text: "b", apply: replaceIn("b", "1", "2"), call: 21, back: 30},
			{text: "list", apply: read, call: 11, back: 31, shows: true, seen: "a=1 b=2"}}},
		{name: "a list that lacks an object", bad: true, ops: []*op{try(0, done, replaceIn("a", "", "1"), "a=1"),
			try(1, done, replaceIn("b", "", "2"), "a=1 b=2"), list(2, "b=2")}},
	} {
		if found := linear(h.ops, careful, ""); (len(found) > 0) != h.bad {
			t.Errorf("%s: %v", h.name, found)
		}
	}
}

// The states are read from objects as servers write them.
func TestStates(t *testing.T) {
	applied := object{"metadata": map[string]any{"managedFields": []any{
		map[string]any{"manager": "m0", "fieldsV1": map[string]any{"f:data": map[string]any{"f:a": map[string]any{}}}},
		map[string]any{"manager": "m1", "fieldsV1": map[string]any{"f:data": map[string]any{".": map[string]any{},
			"f:b": map[string]any{}}}}}}, "data": map[string]any{"a": "1", "b": "2"}}
	if got := ownedState(applied); got != "a=1@m0 b=2@m1" {
		t.Errorf("the owners are %q", got)
	}
	held := object{"metadata": map[string]any{"deletionTimestamp": "now", "finalizers": []any{finalizerPrefix + "b",
		finalizerPrefix + "a"}}, "data": map[string]any{"v": "1"}}
	if got := heldState(held); got != "deleting=yes held=ab v=1" {
		t.Errorf("the state is %q", got)
	}
	service := object{"spec": map[string]any{"clusterIP": "10.0.0.1", "ports": []any{map[string]any{"nodePort": 30001.0}}}}
	if got := fmt.Sprint(valuesOf(service)); got != "[the address 10.0.0.1 the port 30001]" {
		t.Errorf("the values are %s", got)
	}
}

func TestSights(t *testing.T) {
	at := func(revision int64, state, uid, deletion string, from, till int64) sight {
		return sight{key: "k", uid: uid, revision: revision, state: state, deletion: deletion, call: from, back: till}
	}
	for name, c := range map[string]struct {
		bad bool
		all []sight
	}{
		"in order": {false, []sight{at(1, "a", "u", "", 0, 1), at(2, "b", "u", "", 2, 3), at(2, "b", "u",
			"", 4, 5)}},
		"beside each other":         {false, []sight{at(2, "b", "u", "", 0, 3), at(1, "a", "u", "", 2, 5)}},
		"a revision of two states":  {true, []sight{at(1, "a", "u", "", 0, 1), at(1, "b", "u", "", 2, 3)}},
		"a revision of two objects": {true, []sight{at(1, "a", "u", "", 0, 1), at(1, "a", "w", "", 2, 3)}},
		"back in time":              {true, []sight{at(2, "b", "u", "", 0, 1), at(1, "a", "u", "", 2, 3)}},
		"being deleted": {false, []sight{at(1, "a", "u", "", 0, 1), at(2, "b", "u", "x", 2, 3), at(3, "c", "w",
			"", 4, 5)}},
		"another deletionTimestamp": {true, []sight{at(1, "a", "u", "x", 0, 1), at(2, "b", "u", "y", 2, 3)}},
		"no deletionTimestamp":      {true, []sight{at(1, "a", "u", "x", 0, 1), at(2, "b", "u", "", 2, 3)}},
	} {
		if found := checkSights(c.all); (len(found) > 0) != c.bad {
			t.Errorf("%s: %v", name, found)
		}
	}
}

func TestRoom(t *testing.T) {
	for name, c := range map[string]struct {
		bad   bool
		stays []stay
	}{
		"one after the other": {false, []stay{{"a", "x", 0, 2}, {"b", "x", 3, never}}},
		"two at once":         {true, []stay{{"a", "x", 0, 5}, {"b", "x", 3, never}}},
		"another place":       {false, []stay{{"a", "x", 0, 5}, {"b", "y", 3, never}}},
		"deleted beforehand":  {false, []stay{{"a", "x", 0, never}, {"b", "x", 3, 2}}},
	} {
		if found := checkRoom(c.stays, 1); (len(found) > 0) != c.bad {
			t.Errorf("%s: %v", name, found)
		}
	}
	var held stays
	held.begin(stay{what: "a", of: "x", from: 1})
	held.end("a", 3)
	held.begin(stay{what: "b", of: "x", from: 2})
	held.listed(room+1, &answer{})
	if all := held.all(); all[0].till != 3 || all[1].till != never || len(held.lists) != 1 {
		t.Errorf("the stays are %+v, %v", all, held.lists)
	}
	changes := []change{{revision: 1, kind: "ADDED", name: "a"}, {revision: 2, kind: "DELETED", name: "a"},
		{revision: 3, kind: "ADDED", name: "b"}, {revision: 4, kind: "MODIFIED", name: "b"}}
	if found := checkCounts(changes, 1); len(found) > 0 {
		t.Error(found)
	}
	if found := checkCounts(append(changes, change{revision: 5, kind: "ADDED", name: "c"}), 1); len(found) != 1 {
		t.Errorf("a quota that is exceeded: %v", found)
	}
	values := []change{{revision: 1, kind: "ADDED", name: "a", state: "1, 2"}, {revision: 2, kind: "MODIFIED",
		name: "a", state: "1"},
		{revision: 3, kind: "ADDED", name: "b", state: "2"}, {revision: 4, kind: "DELETED", name: "a", state: "1"},
		{revision: 5, kind: "ADDED", name: "c", state: "1"}}
	if found := checkOwners(values); len(found) > 0 {
		t.Error(found)
	}
	if found := checkOwners(append(values, change{revision: 6, kind: "ADDED", name: "d",
		state: "3, 2"})); len(found) != 1 {
		t.Errorf("a value of two Services: %v", found)
	}
}

func TestSegments(t *testing.T) {
	of := func(revision int64, kind, name, state string) change {
		return change{revision: revision, kind: kind, name: name, state: state, uid: name, namespace: "n"}
	}
	truth := []change{of(1, "ADDED", "a", "1"), of(2, "ADDED", "b", "1"), of(3, "MODIFIED", "a", "2"), of(5, "DELETED",
		"b", "1"),
		of(6, "ADDED", "b", "3")}
	good := func() *segment {
		return &segment{namespace: "n", start: 2, initial: map[string]change{"a": truth[0], "b": truth[1]},
			events: slices.Clone(truth[2:]), marks: []bookmark{{4, 1}, {5, 2}, {7, 3}}, end: 7}
	}
	if found := checkSegment(good(), truth); len(found) > 0 {
		t.Error(found)
	}
	for name, spoil := range map[string]func(s *segment){
		"an event is missing":         func(s *segment) { s.events = slices.Delete(s.events, 1, 2) },
		"the last event is missing":   func(s *segment) { s.events = s.events[:2] },
		"an event comes twice":        func(s *segment) { s.events = slices.Insert(s.events, 1, s.events[0]) },
		"two events change places":    func(s *segment) { s.events[0], s.events[1] = s.events[1], s.events[0] },
		"an event has another object": func(s *segment) { s.events[0].state = "x" },
		"an event has another UID":    func(s *segment) { s.events[2].uid = "x" },
		"an event has another type":   func(s *segment) { s.events[0].kind = "ADDED" },
		"an event that never was":     func(s *segment) { s.events = append(s.events, of(7, "ADDED", "c", "1")) },
		"a bookmark comes early":      func(s *segment) { s.marks[1].behind = 1 },
		"an event behind a bookmark":  func(s *segment) { s.marks[0].revision = 6 },
		"the list lacks an object":    func(s *segment) { delete(s.initial, "a") },
		"the list has one more":       func(s *segment) { s.initial["c"] = of(2, "ADDED", "c", "1") },
		"the list is of the past":     func(s *segment) { s.known = 3 },
		"the list is older":           func(s *segment) { s.initial["a"] = of(0, "ADDED", "a", "0") },
	} {
		s := good()
		if spoil(s); len(checkSegment(s, truth)) == 0 {
			t.Errorf("%s, and nothing is found", name)
		}
	}
	// Of the same objects, those of one side: a changes to it, b is of it, c never is.
	sides := []change{of(1, "ADDED", "a", "v=<1.1>"), of(2, "ADDED", "b", "v=<1.2>"), of(3, "ADDED", "c", "v=<1.3>"),
		of(4, "MODIFIED", "a", "v=<1.4>"), of(5, "MODIFIED", "a", "v=<2.6>"), of(6, "MODIFIED", "a", "v=<2.7>"),
		of(7, "DELETED", "b", "v=<1.2>"), of(8, "DELETED", "c", "v=<1.3>"), of(9, "MODIFIED", "a", "v=<2.9>"),
		of(10, "DELETED", "a", "v=<2.9>"), of(11, "ADDED", "a", "")}
	one := func() *segment {
		return &segment{namespace: "n", selects: true, start: 2, initial: map[string]change{"b": sides[1]}, end: 12,
			events: []change{of(4, "ADDED", "a", "v=<1.4>"), of(5, "MODIFIED", "a", "v=<2.6>"),
				of(6, "DELETED", "a", "v=<2.6>"), of(7, "DELETED", "b", "v=<1.2>"), of(11, "ADDED", "a", "")},
			marks: []bookmark{{8, 4}, {12, 5}}}
	}
	if found := checkSegment(one(), sides); len(found) > 0 {
		t.Error(found)
	}
	for name, spoil := range map[string]func(s *segment){
		"one that comes is a change":      func(s *segment) { s.events[0].kind = "MODIFIED" },
		"one that goes is a change":       func(s *segment) { s.events[2].kind = "MODIFIED" },
		"one that goes is as it became":   func(s *segment) { s.events[2].state = "v=<2.7>" },
		"one that goes is not seen":       func(s *segment) { s.events = slices.Delete(s.events, 2, 3) },
		"the deletion of another is seen": func(s *segment) { s.events = slices.Insert(s.events, 4, sides[7]) },
		"the list has one of the other":   func(s *segment) { s.initial["a"] = sides[0] },
		"it selects nothing":              func(s *segment) { s.selects = false },
	} {
		s := one()
		if spoil(s); len(checkSegment(s, sides)) == 0 {
			t.Errorf("%s, and nothing is found", name)
		}
	}
	if all, found := agreed(truth[:3], truth[2:]); len(found) > 0 || !slices.Equal(all, truth) {
		t.Errorf("watches that agree: %v, %v", all, found)
	}
	if _, found := agreed(truth, []change{of(3, "MODIFIED", "a", "x")}); len(found) != 1 {
		t.Errorf("watches that disagree: %v", found)
	}
}

func TestReadings(t *testing.T) {
	of := func(revision int64, name, state string) change {
		return change{revision: revision, name: name, state: state, uid: name}
	}
	truth := []change{of(1, "a", "1"), of(2, "b", "1"), of(3, "a", "2")}
	for name, c := range map[string]struct {
		bad bool
		reading
	}{
		"exact":                 {false, reading{"Exact", 2, 2, 0, truth[:2]}},
		"newer":                 {false, reading{"NotOlderThan", 2, 3, 0, truth[1:]}},
		"a get":                 {false, reading{"", 2, 3, 0, truth[2:]}},
		"older":                 {true, reading{"NotOlderThan", 2, 1, 0, truth[:1]}},
		"not exact":             {true, reading{"Exact", 2, 3, 0, truth[1:]}},
		"a newer object":        {true, reading{"Exact", 2, 2, 0, truth[1:]}},
		"an object is missing":  {true, reading{"Exact", 2, 2, 0, truth[:1]}},
		"an older get":          {true, reading{"", 2, 1, 0, truth[:1]}},
		"a get of another time": {true, reading{"", 2, 3, 0, []change{of(3, "a", "1")}}},
	} {
		if found := checkReadings([]reading{c.reading}, truth); (len(found) > 0) != c.bad {
			t.Errorf("%s: %v", name, found)
		}
	}
}

// A seed gives the same faults each time, of all kinds, and always leaves a majority and a replica.
func TestPlan(t *testing.T) {
	c := &cluster{members: make([]*member, size), replicas: []*replica{{disk: &disk{}}}}
	for i := range c.members {
		c.members[i] = &member{disk: &disk{}}
	}
	all, err := wanted("", c)
	if err != nil || len(all) != len(faults) {
		t.Fatalf("%d faults, %v", len(all), err)
	}
	without := &cluster{members: []*member{{}, {}, {}}}
	if some, err := wanted("", without); err != nil || len(some) != len(faults)-2 {
		t.Errorf("without disks that can be filled there are %d, %v", len(some), err)
	}
	if some, err := wanted("fill-member", without); err == nil {
		t.Errorf("without such disks: %v", some)
	}
	describe := func(seed int64) string { return fmt.Sprint(plan(seed, all, time.Hour, 3)) }
	if describe(7) != describe(7) || describe(7) == describe(8) {
		t.Error("the seed does not decide")
	}
	kinds := map[string]int{}
	for seed := range int64(20) {
		planned := plan(seed, all, 10*time.Minute, 3)
		for i, p := range planned {
			kinds[p.name]++
			gone := map[int]bool{}
			for j, o := range planned {
				if o.at > p.at || o.at+o.lasts < p.at {
					continue
				}
				if i != j && p.claims == majority && o.claims == majority {
					t.Errorf("%s begins while there is %s", p, o)
				}
				if o.on == aReplica && o.claims == "process" {
					gone[o.target] = true
				}
			}
			if len(gone) == 3 {
				t.Errorf("no replica is left at %s", p.at)
			}
		}
	}
	for _, f := range faults {
		if kinds[f.name] < 20 {
			t.Errorf("%s happens %d times", f.name, kinds[f.name])
		}
	}
	if some, err := wanted("kill-replica,compact", c); err != nil || len(some) != 2 {
		t.Errorf("two faults by name are %v, %v", some, err)
	}
	if some, err := wanted("", &cluster{}); err != nil || len(some) != 3 {
		t.Errorf("without an etcd there are %d, %v", len(some), err)
	}
	if some, err := wanted("", &cluster{replicas: c.replicas}); err != nil || len(some) != 4 {
		t.Errorf("without an etcd, and with a disk, there are %d, %v", len(some), err)
	}
	for _, bad := range []string{"nothing", "compact"} {
		if some, err := wanted(bad, &cluster{}); err == nil {
			t.Errorf("%s without an etcd: %v", bad, some)
		}
	}
}
