package mutants

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// writer is the package of the writer to etcd.
const writer = "internal/store/etcd"

// planted is a bug: a text in a file of the writer, which occurs once, and what stands there with the bug.
type planted struct{ name, file, text, bug string }

// plantedBugs are errors in how the writer tells what has become of a transaction. The simulation has to find each.
var plantedBugs = []planted{
	{"a lost answer is forgotten", "commit.go", "t.lost, t.unwitnessed = true,", "t.lost, t.unwitnessed = false,"},
	{"nobody looks for what has become of it", "commit.go", "if t.lost {\n\t\t\tif at,", "if false {\n\t\t\tif at,"},
	{"an equal change without a witness is nobody's", "commit.go", "case len(equal) > 0 && t.unwitnessed:",
		"case len(equal) > 0 && t.unwitnessed && t.number < 0:"},
	{"every value is taken for one that nobody else writes", "commit.go",
		"s.unique = s.value != nil && (ch.Sidecar.SealedBy != 0 || s.base == 0 && ch.Sidecar.UID != \"\")",
		"s.unique = s.value != nil"},
	{"what a compaction hides is taken for not written", "commit.go", "if missed && (refused != nil || !t.replaces()) {",
		"if missed && t.number < 0 {"},
	{"an absent object is taken for one that was not made", "commit.go", "(refused != nil || !t.replaces())",
		"refused != nil"},
	{"a commit is acknowledged before the server has it", "commit.go",
		"if err := w.arrive(w.ctx, answer.Header.Revision); err != nil {\n\t\t\t\treturn store.Revisions{}, unknown(err)",
		"if err := w.ended(); err != nil {\n\t\t\t\treturn store.Revisions{}, unknown(err)"},
	{"a create is not recalled", "commit.go", "if err := w.recall(a.recallKey); err != nil {",
		"if err := w.recall(0); err != nil {"},
	{"a create compares no key", "commit.go", "if !t.replaces() {\n\t\tif a.recallKey",
		"if t.number < 0 {\n\t\tif a.recallKey"},
	{"the key is never another one", "recall.go", "r.number = max(r.number, number)", "r.number = max(r.number, 0)"},
	{"a lost connection is a refusal", "commit.go",
		"switch status.Code(err) {\n\tcase codes.Unavailable, codes.DeadlineExceeded,",
		"switch status.Code(err) {\n\tcase codes.DeadlineExceeded,"},
	{"the revision is not compared", "commit.go", "a.compares = append(a.compares, isAt(w.prefix+at, revision))",
		"if p.Type != store.ThisRevision {\n\t\t\ta.compares = append(a.compares, isAt(w.prefix+at, revision))\n\t\t}"},
	{"the revision of a fence is not compared", "commit.go",
		"a.compares = append(a.compares, isAt(w.prefix+at, revision))",
		"if p.Type == store.ThisRevision {\n\t\t\ta.compares = append(a.compares, isAt(w.prefix+at, revision))\n\t\t}"},
	{"a fence is judged by a state that is late", "commit.go",
		"if a, err = w.judge(t, pre, sure); err == nil || sure {", "if a, err = w.judge(t, pre, true); err == nil || true {"},
	{"received changes are not noted", "feed.go", "\t\t\ts.revisions = append(s.revisions, revision)\n\t\t\tequal = s",
		"\t\t\tequal = s"},
	{"nobody knows that changes were missed", "load.go", "w.reloads++", "w.reloads += 0"},
	{"the watch begins one revision late", "feed.go", "clientv3.WithRev(w.state.Revision()+1)",
		"clientv3.WithRev(w.state.Revision()+2)"},
	{"progress is one too far", "feed.go", "w.advance(answer.Header.Revision)", "w.advance(answer.Header.Revision + 1)"},
	{"a witness that cannot be read says no", "witness.go", "if err != nil {\n\t\treturn false, err\n\t}\n\treturn len",
		"if err != nil {\n\t\treturn false, nil\n\t}\n\treturn len"},
	{"a refused transaction is taken for one that was carried out", "commit.go", "case err == nil && answer.Succeeded:",
		"case err == nil && answer.Header != nil:"},
	{"after a lost answer the state stays as it is", "commit.go", "\treturn w.arrive(w.ctx, revision)\n",
		"\t_ = revision\n\treturn nil\n"},
	{"another etcd is not noticed", "reads.go", "if cluster == w.id && revision >= had {", "if revision >= had {"},
	{"an older etcd is not noticed", "reads.go", "if cluster == w.id && revision >= had {", "if cluster == w.id {"},
	{"the state takes the objects of another etcd", "load.go",
		"w.same(p.header.ClusterId, p.header.Revision, had)", "w.same(w.id, p.header.Revision, had)"},
	{"the state takes the changes of another etcd", "feed.go",
		"w.same(answer.Header.ClusterId, answer.Header.Revision, w.state.Revision())", "w.ended()"},
	{"another etcd has the witness", "witness.go",
		"err = w.same(answer.Header.ClusterId, answer.Header.Revision, had)", "err = w.same(w.id, max(had, 1), had)"},
	{"what another etcd has carried out is acknowledged", "commit.go",
		"err = w.same(answer.Header.ClusterId, answer.Header.Revision, had)", "err = w.same(w.id, had, had)"},
	{"what another etcd has carried out is refused", "commit.go", "case answer.GetSucceeded(): // in another etcd",
		"case answer.GetSucceeded() && t.number < 0:"},
	{"the bitmap is not compared", "bits.go", "a.compares = append(a.compares, isAt(w.prefix+w.wholePath(), revision))",
		"_ = revision"},
	{"the preconditions of bits are not judged", "commit.go",
		"if w.bits(p.Key) != nil {\n\t\t\tif err := p.Holds(live); err",
		"if w.bits(p.Key) != nil {\n\t\t\tif err := p.Holds(live); false && err"},
	{"a bitmap changes no bits", "feed.go", "if b := w.whole(k); b != nil {", "if b := w.whole(k); false && b != nil {"},
	{"a bitmap that was missed changes no bits", "load.go", "if b := w.whole(k); b != nil {",
		"if b := w.whole(k); false && b != nil {"},
	{"a bitmap that cannot be read keeps its bits", "bits.go", "\tfor names := b.names(whole); len(live)+len(names) > 0; {",
		"\tfor names := b.names(whole); len(live)+len(names) > 0 && whole.Sidecar.Unreadable == nil; {"},
	{"a damaged value is readable", "feed.go", "SealedBy: sealedBy, Unreadable: err}", "SealedBy: sealedBy}"},
	{"bits that were missed keep their versions", "load.go", "r.New, r.Revision, true)...)",
		"r.New, r.Revision, false)...)"},
	{"only the last equal change is asked for", "commit.go", "for _, at := range equal {",
		"for _, at := range equal[max(0, len(equal)-1):] {"},
	{"after a lease is gone, the state is taken for current", "commit.go", "\t\tsure = false\n", "\t\tsure = true\n"},
	{"a change of another base is taken for equal", "feed.go",
		"(s.value == nil) == deleted && (s.base == base || s.base == anyBase) &&", "(s.value == nil) == deleted &&"},
	{"the witness is any transaction's", "witness.go",
		" &&\n\t\tstring(answer.Kvs[0].Value) == strconv.FormatInt(number, 10), nil", ", nil"},
	{"the witness is of any revision", "witness.go",
		"len(answer.Kvs) == 1 && answer.Kvs[0].ModRevision == revision &&", "len(answer.Kvs) == 1 &&"},
	{"a lease that is gone is used again", "commit.go", "\t\t\tw.leases.drop()\n", ""},
	{"a lease that ends before is shared", "leases.go", "l.keys == maxLeaseKeys || l.ends.Before(at) ||",
		"l.keys == maxLeaseKeys ||"},
	{"a lease that ends much later is shared", "leases.go", " || !l.ends.Before(at.Add(longer+time.Second))",
		" || longer < 0"},
	{"what is written once more never expires", "commit.go", ".IgnoreLease = t.changes[i].Again", ".IgnoreLease = false"},
	{"what is encrypted is taken for what others write", "commit.go", "(ch.Sidecar.SealedBy != 0 ||", "(false ||"},
	{"the past begins one revision late", "replay.go", "clientv3.WithRev(after+1)", "clientv3.WithRev(after+2)"},
	{"the past ends where etcd has sent something", "replay.go", "\treturn s.to, nil\n", "\treturn until, nil\n"},
	{"what was read ahead is of any revision", "readahead.go", "s.after <= after && after < s.to", "after < s.to"},
	{"the past is that of one type", "replay.go", "return w.prefix + at\n", "return w.prefix + at + \"c\"\n"},
	{"a change of the past has no value before", "replay.go", "if e.PrevKv != nil {",
		"if e.PrevKv != nil && e.IsCreate() {"},
}

// The simulation of the writer to etcd finds each planted bug; without -all, a few of them are tried. All can be
// planted in the code as it is.
//
// SPEC: STORE-2
func TestPlantedBugs(t *testing.T) {
	if len(plantedBugs) < 50 {
		t.Errorf("there are only %d bugs", len(plantedBugs))
	}
	for i, bug := range plantedBugs {
		t.Run(strings.ReplaceAll(bug.name, " ", "-"), func(t *testing.T) {
			file, text := bug.plant(t)
			if i >= 2 && !*all {
				return
			}
			out, err := simulate(t, file, text)
			switch {
			case err == nil:
				t.Error("nothing has noticed it")
			case !strings.Contains(out, "--- FAIL: TestSimulation"):
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// root is the folder of the product's module.
const root = "../.."

// plant returns the file of a bug, and its text with the bug.
func (p *planted) plant(t *testing.T) (file, changed string) {
	t.Helper()
	file, err := filepath.Abs(filepath.Join(root, writer, p.file))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), p.text); n != 1 {
		t.Fatalf("%s has this text %d times: %s", p.file, n, p.text)
	}
	return file, strings.Replace(string(text), p.text, p.bug, 1)
}

// simulate runs the simulation of a writer in which a file has another text, and returns what it prints.
func simulate(t *testing.T, file, text string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	changed := filepath.Join(dir, filepath.Base(file))
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{file: changed}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		changed: []byte(text), filepath.Join(dir, "overlay.json"): overlay,
	} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	test := exec.CommandContext(ctx, "go", "test", "-vet=off", "-tags=invariants", "-overlay="+filepath.Join(dir,
		"overlay.json"), "./"+writer, "-run=^TestSimulation$", "-simulations=5000")
	test.Dir = root
	out, err := test.CombinedOutput()
	if ctx.Err() != nil {
		t.Fatal("the simulation does not end")
	}
	return string(out), err
}
