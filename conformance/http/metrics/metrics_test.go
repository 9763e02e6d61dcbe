package metrics

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/rest"

	"plinth/conformance/internal/harness"
)

var rewrite = flag.Bool("rewrite", false, "ask the reference and record its metrics in testdata")

func TestMain(m *testing.M) { harness.Main(m) }

const (
	recorded = "testdata/reference.txt"
	// listed is the list that a test of the server holds it to, whether or not a metric has counted something.
	listed = "../../../internal/server/testdata/standardmetrics.txt"
)

// level finds the level of a metric in its help text.
var level = regexp.MustCompile(`^\[(STABLE|BETA)\] `)

// metric is a metric as it is recorded: its type and its labels.
type metric struct {
	kind   string
	labels []string
	marked bool // its help text says STABLE or BETA
}

func (m metric) String() string { return strings.TrimSpace(m.kind + " " + strings.Join(m.labels, " ")) }

// served returns the metrics of a server, after requests of several sorts.
func served(t *testing.T, server *harness.Server) map[string]metric {
	t.Helper()
	config, err := server.Config()
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string) []byte {
		t.Helper()
		answer, err := client.Get(config.Host + path)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		if answer.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s %.200s", path, answer.Status, body)
		}
		return body
	}
	get("/readyz")
	get("/api/v1/nodes")
	get("/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=" +
		"NotOlderThan&allowWatchBookmarks=true")
	all := map[string]metric{}
	for _, page := range []string{"/metrics", "/metrics/slis"} {
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(bytes.NewReader(get(page)))
		if err != nil {
			t.Fatalf("%s: %v", page, err)
		}
		for name, f := range families {
			m := metric{kind: strings.ToLower(f.GetType().String()), marked: level.MatchString(f.GetHelp())}
			for _, pair := range f.GetMetric()[0].GetLabel() {
				m.labels = append(m.labels, pair.GetName())
			}
			slices.Sort(m.labels)
			all[name] = m
		}
	}
	return all
}

// lines reads a file of lines with a name, and what follows it.
func lines(t *testing.T, file string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if name, rest, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name != "#" {
			all[name] = rest
		}
	}
	return all
}

// absent are the metrics of the reference that are not served here. The server's own test has the reasons.
var absent = []string{
	"apiserver_validation_declarative_validation_mismatch_total",
	"apiserver_validation_declarative_validation_panic_total",
	"registered_metrics_total",
}

// alpha are metrics of the list that the reference calls ALPHA; dashboards read them.
var alpha = []string{"apiserver_client_certificate_expiration_seconds", "apiserver_request_sli_duration_seconds"}

// What the reference marks as STABLE or BETA has the same type and labels here, and is in the list that the server is
// held to; and what is in the list and both serve is the same, too.
//
// SPEC: RUN-3
func TestMetrics(t *testing.T) {
	if *rewrite {
		record(t, served(t, harness.Run(t, harness.Options{Kind: harness.Reference})))
	}
	theirs, list := lines(t, recorded), lines(t, listed)
	ours := served(t, harness.Run(t, harness.Options{Kind: harness.Plinth}))
	if len(theirs) < 35 {
		t.Errorf("%s has only %d metrics", recorded, len(theirs))
	}
	for _, name := range slices.Sorted(maps.Keys(theirs)) {
		if want, ok := list[name]; !ok || want != theirs[name] {
			t.Errorf("%s: %q in the reference, %q in %s", name, theirs[name], want, listed)
		}
		switch have, ok := ours[name]; {
		case slices.Contains(absent, name):
			if ok {
				t.Errorf("%s is served, and not absent", name)
			}
		case !ok && counted(theirs[name]):
			t.Logf("%s has counted nothing here", name) // the server's own test knows that it is there
		case !ok:
			t.Errorf("%s is not served", name)
		case have.String() != theirs[name]:
			t.Errorf("%s is a %s, in the reference a %s", name, have, theirs[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if have, ok := ours[name]; ok && have.String() != list[name] {
			t.Errorf("%s is a %s, in %s a %s", name, have, listed, list[name])
		}
	}
	for _, name := range absent {
		if theirs[name] == "" {
			t.Errorf("%s is none of the reference's", name)
		}
	}
}

// counted says whether a metric has labels, so that it is not shown until it has counted something.
func counted(m string) bool { return strings.Contains(m, " ") }

// record writes what the reference serves.
func record(t *testing.T, all map[string]metric) {
	t.Helper()
	var b strings.Builder
	fmt.Fprintln(&b, "# The metrics of the reference whose help texts say STABLE or BETA, after the requests of this package's test,")
	fmt.Fprintln(&b, "# and two that dashboards read. -rewrite writes this file.")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if all[name].marked || slices.Contains(alpha, name) {
			fmt.Fprintln(&b, name, all[name])
		}
	}
	if err := os.WriteFile(recorded, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
