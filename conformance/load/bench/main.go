// Command bench measures the reference and Plinth side by side and prints the table of budgets (docs/spec.md): the cost
// of the same work on each, their ratio, and the budget. `make bench` runs it; the reference is built first if
// necessary.
//
// Both servers get the same load from the same machine, and sync every write to disk before they answer. They take
// turns at each row, so that a machine that is slower for some time slows both. Server CPU is user and system time of
// the server's processes (for the reference kube-apiserver and etcd), and resident memory is their sum, too.
//
// The budgets were set on one machine. The column "at this pace" scales them to the machine at hand, by the ratio of
// the reference's figures on both. Figures that miss the scaled budget are marked.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"text/tabwriter"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/load"
)

func main() {
	reader, err := load.Reading(os.Args)
	if !reader {
		err = run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	dir := flag.String("dir", "", "where the servers keep their data; a temporary folder by default")
	only := flag.String("only", "", "measure only this server: plinth or reference")
	rows := flag.String("rows", "", "measure only the rows whose key this regular expression matches")
	profile := flag.String("profile", "", "write a processor profile of Plinth during each row into this folder")
	against := flag.String("compare", "",
		"compare builds of Plinth, a comma between them, with the first of them, instead of Plinth with the reference; flags may stand behind a build; \"now\" is the work tree, \"base\" the last tag or a commit of ten days ago, with which a single build is compared")
	turns := flag.Int("turns", 200, "the number of turns of such a comparison")
	pods := flag.Int("pods", 5000, "the number of Pods")
	objects := flag.Int("objects", 10000, "the number of objects at a restart")
	send := flag.Int("send", 0, "be a plain server that answers with so many bytes, for a comparison")
	followed := flag.String("follow", "", "follow the etcd at this address, for a comparison")
	etcd := flag.Bool("etcd", false, "store Plinth's objects in an etcd, too, and measure both servers without their etcd")
	flag.Parse()
	if *send > 0 {
		return servePlain(*send)
	}
	if *followed != "" {
		return follow(context.Background(), *followed)
	}
	if *etcd {
		if err := os.Setenv("CONFORMANCE_STORE", "etcd"); err != nil {
			return err
		}
		harness.WithoutEtcd = true
	}
	if *only != "" && *only != string(harness.Reference) && *only != string(harness.Plinth) {
		return fmt.Errorf("-only %s: want %s or %s", *only, harness.Reference, harness.Plinth)
	}
	wanted, err := regexp.Compile(*rows)
	if err != nil {
		return err
	}
	if *dir == "" {
		if *dir, err = os.MkdirTemp("", "bench-"); err != nil {
			return err
		}
		defer os.RemoveAll(*dir)
	}
	defer harness.Cleanup()
	if *against != "" {
		harness.Release = true
		return compare(context.Background(), *dir, strings.Split(*against, ","), *turns, wanted.MatchString)
	}
	harness.Release = true
	// Build first: a compiler that runs at the same time would distort the figures.
	if _, err := harness.Program(); err != nil {
		return err
	}
	results := map[harness.Kind]map[string]result{}
	var benches []*bench
	for _, kind := range []harness.Kind{harness.Reference, harness.Plinth} {
		if *only != "" && string(kind) != *only {
			continue
		}
		b := &bench{kind: kind, dir: filepath.Join(*dir, string(kind)), pods: *pods, objects: *objects, profiles: *profile,
			results: map[string]result{}, tallies: map[string]*tally{}}
		benches, results[kind] = append(benches, b), b.results
	}
	if err := takeTurns(context.Background(), benches, wanted.MatchString); err != nil {
		return err
	}
	return printTable(results)
}

// row is one line of the budget table.
type row struct {
	key, work string
	unit      unit
	target    float64 // 0: there is none, the row is for comparison
	most      bool    // the target is an upper bound
	// reference is the reference's figure on the machine where the target was set. On a slower or busier machine, the
	// target is scaled by it. 0 if the target does not depend on the machine's pace.
	reference float64
}

// here returns the target at the pace of this machine.
func (r row) here(reference result, measured bool) float64 {
	if r.reference == 0 || !measured || reference.refuse != "" {
		return r.target
	}
	return r.target * reference.value / r.reference
}

// unit formats a value.
type unit struct {
	name   string
	digits int
}

var (
	seconds  = unit{"s", 3}
	millis   = unit{"ms", 3}
	mebibyte = unit{"MiB", 1}
	kilobyte = unit{"kB", 1}
	mbps     = unit{"MB/s", 0}
	perSec   = unit{"/s", 0}
	lists    = unit{"lists/s", 1}
	times    = unit{"×", 2}
)

var budget = []row{
	{"start-first", "start to ready, first start", seconds, 0.15, true, 2.75},
	{"start-again", "start to ready, restart with 10,000 objects (-objects)", seconds, 0.5, true, 2.75},
	{"rss-idle", "resident memory, five seconds after the start", mebibyte, 0, true, 0},
	{"rss-looked", "resident memory, idle for a minute after kubectl has looked around", mebibyte, 0, true, 0},
	{"anon-looked", "anonymous memory of it", mebibyte, 10, true, 0},
	{"rss-pods", "resident memory, 5,000 two-container Pods added", mebibyte, 90, true, 0},
	{"create", "server CPU per Pod created (durable)", millis, 0.19, true, 1.9},
	{"get", "server CPU per GET of a Pod", millis, 0.06, true, 0.58},
	{"list-json", "LIST 5,000 Pods, JSON", mbps, 600, false, 58},
	{"list-protobuf", "LIST 5,000 Pods, protobuf, 1 % changed", lists, 70, false, 7.3},
	{"list-table", "LIST 5,000 Pods, Table, 1 % changed", lists, 50, false, 4.7},
	{"list-gzip", "LIST 5,000 Pods, gzip JSON, 1 % changed", lists, 40, false, 5.5},
	{"list-metadata", "LIST of the metadata of 5,000 Pods, server CPU", millis, 10, true, 101},
	{"list-metadata-plain", "as many bytes from a plain net/http server, its CPU", millis, 0, true, 0},
	{"apply", "server-side apply over HTTP, server CPU", millis, 0.25, true, 3.6},
	{"user-get", "GET of a user with roles, server CPU against the administrator's", times, 1.05, true, 0},
	{"user-apply", "apply of a user with roles, server CPU against the administrator's", times, 1.05, true, 0},
	{"watch", "watch events of 1.3 kB to 200 watchers", perSec, 250000, false, 69000},
	{"watch-idle", "an idle watch, 100 on a connection", kilobyte, 15, true, 0},
	{"custom-create", "server CPU per custom object with 20 rules created", millis, 0.75, true, 3.77},
	{"custom-get", "server CPU per GET of a custom object", millis, 0.1, true, 1.04},
	{"custom-list", "LIST 3,000 custom objects, JSON", mbps, 170, false, 17},
	{"custom-apply", "server-side apply of a custom object with 20 rules, server CPU", millis, 1.5, true, 7.62},
	{"crd", "CRD of 45 kB created until usable, 200 of them", millis, 5, true, 153},
	{"crd-rss", "resident memory per such CRD, idle for a minute", unit{"MiB", 2}, 0.15, true, 0},
	{"crd-rules", "CRD with 20 rules created until usable, 200 of them", millis, 7.7, true, 38.7},
	{"hooks", "server CPU that 1 matching and 200 other webhooks add to a create", millis, 0.2, true, 1},
	{"policies", "server CPU that 50 policies, of which 5 match, add to a Pod created", millis, 0.08, true, 0.42},
	{"policies-get", "GETs beside a client of a policy as dear as allowed, p99 against that beside another server with it", times, 1.5, true, 0},
	{"hooks-get", "GETs beside 50 requests that wait for a webhook, p99 against that before", times, 2, true, 0},
	{"empty", "namespace of 10,000 objects deleted", seconds, 3, true, 0},
	{"empty-get", "GETs beside it, p99 against that before", times, 2, true, 0},
	{"collect", "owner of 10,000 dependents deleted", seconds, 3, true, 0},
	{"collect-get", "GETs beside it, p99 against that before", times, 2, true, 0},
	{"orphan", "owner of 10,000 dependents orphaned", seconds, 3, true, 0},
	{"orphan-get", "GETs beside it, p99 against that before", times, 2, true, 0},
}

// result is a measured value, or the reason why there is none.
type result struct {
	value  float64
	refuse string
}

func (r result) print(u unit, measured bool) string {
	if !measured {
		return "–"
	}
	if r.refuse != "" {
		return r.refuse
	}
	return fmt.Sprintf("%.*f %s", u.digits, r.value, u.name)
}

func printTable(results map[harness.Kind]map[string]result) error {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "work\treference\tours\tratio\ttarget\tat this pace\t")
	fmt.Fprintln(out, strings.Repeat("-\t", 6))
	for _, r := range budget {
		reference, hasReference := results[harness.Reference][r.key]
		ours, hasOurs := results[harness.Plinth][r.key]
		if !hasReference && !hasOurs {
			continue
		}
		ratio, verdict := "–", ""
		if hasReference && hasOurs && reference.refuse == "" && ours.refuse == "" && ours.value > 0 && reference.value > 0 {
			better := reference.value / ours.value
			if !r.most {
				better = 1 / better
			}
			ratio = fmt.Sprintf("%.1f×", better)
		}
		if r.target == 0 {
			fmt.Fprintf(out, "%s\t%s\t%s\t%s\t–\t–\t\n", r.work, reference.print(r.unit, hasReference),
				ours.print(r.unit, hasOurs), ratio)
			continue
		}
		target := r.here(reference, hasReference)
		if hasOurs && ours.refuse == "" && (r.most && ours.value > target || !r.most && ours.value < target) {
			verdict = "missed"
		}
		bound := "≤"
		if !r.most {
			bound = "≥"
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s %g %s\t%.3g\t%s\n", r.work, reference.print(r.unit, hasReference),
			ours.print(r.unit, hasOurs),
			ratio, bound, r.target, r.unit.name, target, verdict)
	}
	return out.Flush()
}
