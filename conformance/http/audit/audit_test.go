package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"plinth/conformance/http/requests"
	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/records"
)

var rewrite = flag.Bool("rewrite", false, "ask the reference and record its events in testdata")

func TestMain(m *testing.M) { harness.Main(m) }

// least is the minimum number of compared events.
const least = 500

// TestPlinth compares Plinth's events with the recorded ones.
//
// SPEC: AUTH-4
func TestPlinth(t *testing.T) {
	if *rewrite {
		return
	}
	for _, server := range []harness.Options{{Kind: harness.Target()}, {Kind: harness.Plinth, Plane: "tested"}} {
		if server.Plane != "" && harness.Target() == harness.Reference {
			continue
		}
		compared := 0
		for _, script := range records.Load(t, requests.Parse) {
			t.Run(path.Join(server.Plane, records.Name(script.File)), func(t *testing.T) {
				compared += replay(t, server, script)
			})
		}
		if compared < least && flag.Lookup("test.run").Value.String() == "" {
			t.Errorf("only %d events were compared", compared)
		}
	}
}

// TestRecords compares the records with the reference, or makes them.
func TestRecords(t *testing.T) {
	if !*rewrite && !harness.WantReference() {
		return
	}
	for _, script := range records.Load(t, requests.Parse) {
		t.Run(records.Name(script.File), func(t *testing.T) {
			if *rewrite {
				record(t, script)
				return
			}
			for _, step := range script.Steps {
				step.Differs, step.DiffersAt = "", nil
			}
			script.Differs = nil
			replay(t, harness.Options{Kind: harness.Reference}, script)
		})
	}
}

// TestScripts checks that printing a script gives the file, so that recording changes only events.
func TestScripts(t *testing.T) {
	for _, script := range records.Load(t, requests.Parse) {
		records.Unchanged(t, script.File, script.Print())
	}
}

// run sends all steps of a script to a new server with these options, and returns the events of each.
func run(t *testing.T, o harness.Options, script *requests.Script) (*requests.Runner, [][]any) {
	t.Helper()
	policy := ""
	for line := range strings.SplitSeq(script.Head, "\n") {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "# @policy "); ok {
			policy, _ = filepath.Abs(filepath.Join("testdata", name))
		}
	}
	if policy == "" {
		t.Fatal("the head of the script names no policy")
	}
	log := filepath.Join(t.TempDir(), "audit.log")
	o.Flags = []string{"--audit-policy-file", policy, "--audit-log-path", log}
	if o.Kind == harness.Plinth {
		o.Flags = append(o.Flags, "--feature-gates=CBORServingAndStorage=false")
	}
	server := harness.Run(t, o)
	runner := requests.NewRunner(server.URL, server.Client(), script)
	for i, step := range script.Steps {
		sent := *step
		sent.Headers = append(slices.Clone(step.Headers), requests.Header{Name: "Audit-ID", Value: id(i)})
		for _, h := range step.Headers {
			if h.Name == "Content-Type" && h.Value == "application/vnd.kubernetes.protobuf" {
				sent.Body = message(t, step.Body)
			}
		}
		if _, err := runner.Do(&sent, nil); err != nil {
			t.Errorf("%s:%d: %s: %v", script.File, step.Line, step.Title, err)
		}
	}
	runner.Close()
	all := events(t, log, len(script.Steps))
	if o.Plane != "" {
		for _, event := range slices.Concat(all...) {
			leavePlane(t, event.(map[string]any), o.Plane)
		}
	}
	return runner, all
}

// leavePlane checks that an event is of a plane, and removes what says so: the events are those of a lone server else.
func leavePlane(t *testing.T, event map[string]any, plane string) {
	t.Helper()
	uri, inside := strings.CutPrefix(event["requestURI"].(string), "/clusters/"+plane)
	annotations, _ := event["annotations"].(map[string]any)
	if !inside || annotations["plinth/plane"] != plane {
		t.Errorf("the event does not say that it is of the plane: %v", event)
	}
	event["requestURI"] = uri
	delete(annotations, "plinth/plane")
	if len(annotations) == 0 {
		delete(event, "annotations")
	}
}

func id(step int) string { return fmt.Sprintf("step-%d", step) }

// message converts an object from JSON to protobuf.
func message(t *testing.T, text string) string {
	t.Helper()
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(text), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(obj.(runtime.Object), &out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// events reads the log until it no longer grows: some events are written after the client has received the response.
func events(t *testing.T, file string, steps int) [][]any {
	t.Helper()
	size := int64(-1)
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() == size {
			break
		}
		size = info.Size()
	}
	log, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	all := make([][]any, steps)
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		decoder := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		decoder.UseNumber()
		var event map[string]any
		if err := decoder.Decode(&event); err != nil {
			t.Fatalf("%v in %s", err, lines.Text())
		}
		step := 0
		if n, err := fmt.Sscanf(fmt.Sprint(event["auditID"]), "step-%d", &step); n != 1 || err != nil {
			continue // the server's own
		}
		for _, name := range []string{"auditID", "requestReceivedTimestamp", "stageTimestamp"} {
			if event[name] == nil {
				t.Errorf("an event without %s: %s", name, lines.Text())
			}
			delete(event, name)
		}
		annotations, _ := event["annotations"].(map[string]any)
		for name := range annotations {
			if strings.HasPrefix(name, "apiserver.latency.k8s.io/") {
				delete(annotations, name)
			}
		}
		all[step] = append(all[step], event)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// result returns the events of a step as they are recorded.
func result(runner *requests.Runner, step *requests.Step, events []any, recorded *requests.Result) requests.Result {
	if len(events) == 0 || step.UntilStatus != 0 { // such a step is repeated until the server is ready for the next one
		return requests.Result{Head: "nothing"}
	}
	return requests.Result{Head: fmt.Sprintf("%d events", len(events)), Docs: runner.Normalise(step, events, recorded)}
}

func record(t *testing.T, script *requests.Script) {
	runner, all := run(t, harness.Options{Kind: harness.Reference}, script)
	for i, step := range script.Steps {
		step.Answer = result(runner, step, all[i], nil).String()
	}
	if err := os.WriteFile(script.File, script.Print(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// replay compares the events of a script, and returns how many.
func replay(t *testing.T, o harness.Options, script *requests.Script) (compared int) {
	runner, all := run(t, o, script)
	for i, step := range script.Steps {
		want := requests.Recorded(step)
		got := result(runner, step, all[i], &want)
		compared += len(got.Docs)
		for _, d := range append(script.Differs, step.DiffersAt...) {
			d.Apply(&got, &want)
		}
		if wrong := step.Compare(&got, &want, o.Plane != ""); wrong != "" {
			t.Errorf("%s:%d: %s: %s", script.File, step.Line, step.Title, wrong)
		}
		if wrong := step.Gone(); wrong != "" {
			t.Errorf("%s:%d: %s: %s", script.File, step.Line, step.Title, wrong)
		}
		for _, d := range step.DiffersAt {
			if !d.Seen() {
				t.Errorf("%s:%d: %s: the known difference at %v no longer occurs: %s", script.File, step.Line, step.Title,
					d.Paths, d.Reason)
			}
		}
	}
	for _, d := range script.Differs {
		if !d.Seen() {
			t.Errorf("%s: the known difference at %v no longer occurs: %s", script.File, d.Paths, d.Reason)
		}
	}
	return compared
}
