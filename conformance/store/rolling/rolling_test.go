package rolling

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	clientv3 "go.etcd.io/etcd/client/v3"

	"plinth/conformance/internal/balancer"
	"plinth/conformance/internal/controlplane"
	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/reference"
)

var (
	duration = flag.Duration("duration", 30*time.Second, "how long users work while servers are restarted")
	nodes    = flag.Int("nodes", 10, "the number of nodes")
	pods     = flag.Int("pods", 100, "the number of Pods that are there at a time: a multiple of 20")
	strict   = flag.Bool("strict", false, "whether errors that do not occur with the reference fail the test, and nodes are "+
		"lost after the time that is usual")
	rewrite = flag.Bool("rewrite", false, "restart kube-apiservers, and add to testdata/errors.txt what is logged then")
	fault   = flag.String("fault", "",
		"what is done that the test has to notice: kill (servers end without notice), blind (the balancer does not ask "+
			"servers whether they are ready) or pod (a Pod is deleted)")
)

// patience is how long the test waits for anything.
var patience = 5 * time.Minute

const (
	replicas = 3
	// errorsFile has the kinds of errors that occur when the reference's servers are restarted.
	errorsFile = "testdata/errors.txt"
)

func TestMain(m *testing.M) { harness.Main(m) }

// Controllers, a scheduler and nodes behind a balancer work on while servers are restarted one after another: no Pod is
// lost, and with -strict no error occurs that does not occur with the reference. Which errors occur is a matter of
// chance where all processes wait for a processor.
//
// SPEC: STORE-2, RUN-1
func TestControllers(t *testing.T) {
	if *rewrite {
		return
	}
	roll(t, harness.Target())
}

// TestControllersOfReference compares the list of known errors with the reference, or adds to it.
func TestControllersOfReference(t *testing.T) {
	if !*rewrite && (!harness.WantReference() || *fault != "") {
		return
	}
	roll(t, harness.Reference)
}

// run is a cluster whose servers are restarted.
type run struct {
	*testing.T
	etcd     *clientv3.Client
	etcdPid  int
	servers  []*replica
	balancer *balancer.Balancer
	plane    *controlplane.Plane
	client   *kubernetes.Clientset
	seen     cache.SharedIndexInformer // of Pods
	ledger   *ledger
	restarts int
	asked    int // the requests that the servers have counted

	mu     sync.Mutex
	failed []controlplane.Error // of the test's own requests
}

// replica is one of the servers.
type replica struct {
	*harness.Server
	cpu time.Duration // of its processes that have ended
}

func roll(t *testing.T, kind harness.Kind) {
	if *pods%20 != 0 {
		t.Fatal("-pods is to be a multiple of 20")
	}
	if *fault != "" {
		patience = time.Minute
	}
	r := raise(t, kind)
	r.must(r.ledger.follow(t.Context(), r.etcd))
	began := time.Now()
	r.must(r.makeNodes())
	worked := make(chan error, 1)
	go func() { worked <- r.work(began.Add(*duration)) }()
	var problems []string
	if err := r.restart(worked); err != nil {
		problems = append(problems, err.Error())
		patience = 0 // what has not happened does not happen any more
	}
	took := time.Since(began)
	problems = append(problems, r.compare()...)
	found := r.errors()
	known, err := controlplane.ReadKinds(errorsFile)
	switch {
	case *rewrite:
		known.Add(found)
		r.must(known.Write(errorsFile,
			"kube-controller-manager, kube-scheduler, KWOK and the test log while kube-apiservers are restarted"))
	case err != nil:
		t.Fatal(err)
	default:
		for _, e := range known.Unexpected(found) {
			text := fmt.Sprintf("%s has at %s an error that it does not have with the reference: %s\n%s", e.Program, e.Place,
				e.Message, e.Kind())
			if r.Log(text); *strict {
				problems = append(problems, text)
			}
		}
	}
	r.report(took, found)
	if len(problems) > 0 {
		r.Log(strings.Join(r.ledger.histories(), "\n"))
	}
	for _, problem := range problems {
		if *fault == "" {
			t.Error(problem)
		} else {
			t.Log(problem)
		}
	}
	if *fault != "" && len(problems) == 0 {
		t.Errorf("the fault %s has not been noticed", *fault)
	}
}

// election gives the programs time to renew their Leases, beyond the ten seconds that they have by default: on a
// machine with other tests, all processes may wait for that long.
var election = []string{"--leader-elect-lease-duration=120s", "--leader-elect-renew-deadline=90s"}

// raise starts an etcd, the servers, the balancer, and the programs behind it.
func raise(t *testing.T, kind harness.Kind) *run {
	t.Helper()
	r := &run{T: t, ledger: newLedger()}
	etcd, err := reference.StartEtcd(t.Context(), reference.EtcdOptions{Dir: t.TempDir()})
	r.must(err)
	r.etcdPid = etcd.Command.Process.Pid
	t.Cleanup(func() { etcd.Command.Process.Kill(); etcd.Command.Wait() })
	r.etcd, err = clientv3.New(clientv3.Config{Endpoints: []string{etcd.URL}, DialTimeout: 10 * time.Second})
	r.must(err)
	t.Cleanup(func() { r.etcd.Close() })
	r.startServers(kind, etcd.URL)
	var behind []*harness.Server
	for _, s := range r.servers {
		behind = append(behind, s.Server)
	}
	b := balancer.New(t, behind...)
	r.balancer = b
	if *fault == "blind" {
		b.Blind()
	}
	config, err := behind[0].Config()
	r.must(err)
	config.Host = b.URL()
	r.client, err = kubernetes.NewForConfig(config)
	r.must(err)
	manager := election
	if !*strict { // nodes are not lost by chance either
		manager = append(slices.Clone(election), "--node-monitor-grace-period=5m")
	}
	r.plane = controlplane.Run(t, behind[0], controlplane.Options{Kwok: true, URL: b.URL(),
		Manager: manager, Scheduler: election})
	factory := informers.NewSharedInformerFactory(r.client, 0)
	r.seen = factory.Core().V1().Pods().Informer()
	factory.Start(t.Context().Done())
	return r
}

// startServers starts the servers at the same moment.
func (r *run) startServers(kind harness.Kind, etcd string) {
	r.Helper()
	keys := r.TempDir()
	r.must(reference.ServiceAccountKeys(keys))
	errs := make([]error, replicas)
	var wait sync.WaitGroup
	for i := range replicas {
		address := fmt.Sprintf("10.77.0.%d", i+1)
		o := harness.Options{Kind: kind, Etcd: etcd, Dir: r.TempDir(), Flags: []string{"--advertise-address=" + address,
			"--service-cluster-ip-range=10.0.0.0/16", "--goaway-chance=0.001", "--shutdown-delay-duration=2s",
			// Without it, a kube-apiserver waits a minute for the clients of its watches to go.
			"--shutdown-watch-termination-grace-period=2s"}}
		if kind == harness.Plinth {
			// Without "*", only the named controllers are enabled: none.
			o.Flags = append(o.Flags, "--controllers=-namespace-controller")
		} else {
			// The harness gives the same keys to all Plinths on one etcd.
			o.Flags = append(o.Flags, "--service-account-signing-key-file="+keys+"/sa.key",
				"--service-account-key-file="+keys+"/sa.pub")
			o.Hostname = fmt.Sprintf("replica-%d", i)
		}
		one := &replica{}
		r.servers = append(r.servers, one)
		wait.Go(func() { one.Server, errs[i] = harness.Start(o) })
	}
	wait.Wait()
	for _, s := range r.servers {
		if s.Server != nil {
			r.Cleanup(func() {
				if r.Failed() {
					kept, err := harness.Keep(s.LogFile(), r.Name())
					r.Logf("the log of %s is kept as %s: %v", s.Kind, kept, err)
				}
				s.Kill()
			})
		}
	}
	r.must(errors.Join(errs...))
}

// restart restarts one server after another until the users have done their work, and each at least once. Between two
// restarts a tenth as many Pods as there are come or go.
func (r *run) restart(worked <-chan error) error {
	for done := false; !done || r.restarts < replicas; {
		s := r.servers[r.restarts%replicas]
		r.count(s)
		if *fault == "kill" {
			s.Kill()
		} else if err := s.Stop(); err != nil {
			return fmt.Errorf("the server has not ended in order: %w", err)
		}
		if err := s.Restart(); err != nil {
			return err
		}
		r.restarts++
		enough := r.ledger.changes() + *pods/10
		for end := time.Now().Add(patience); !done && r.ledger.changes() < enough && time.Now().Before(end); {
			select {
			case err := <-worked:
				if done = true; err != nil {
					return err
				}
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
	for _, s := range r.servers {
		r.count(s)
	}
	return nil
}

// count adds what a server has done until now, as it starts again at nothing.
func (r *run) count(s *replica) {
	request, err := http.NewRequestWithContext(r.Context(), http.MethodGet, s.URL+"/metrics", nil)
	r.must(err)
	request.Header.Set("Authorization", "Bearer "+harness.AdminToken)
	answer, err := s.Client().Do(request)
	r.must(err)
	defer answer.Body.Close()
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		if line := lines.Text(); strings.HasPrefix(line, "apiserver_request_total{") {
			n, err := strconv.ParseFloat(line[strings.LastIndex(line, " ")+1:], 64)
			r.must(err)
			r.asked += int(n)
		}
	}
	s.cpu += r.cpu(s.Pids()[0])
}

// cpu is the time that a process has used.
func (r *run) cpu(pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	r.must(err)
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	r.must(errors.Join(err1, err2))
	return time.Duration(user+system) * 10 * time.Millisecond
}

// compare waits until all that has been ordered has happened, and returns what is wrong then.
func (r *run) compare() (problems []string) {
	if err := r.until("Pods", func(context.Context) error {
		if open := r.ledger.open(); open != "" {
			return errors.New(open)
		}
		return nil
	}); err != nil {
		problems = append(problems, err.Error())
	}
	// What a watch of etcd has told, what an informer behind the balancer has, and what is stored are the same.
	for who, have := range map[string]func() map[types.UID]string{
		"the ledger": r.ledger.copyOf, "an informer": r.informed,
	} {
		if err := r.until(who, func(ctx context.Context) error {
			want, err := r.stored(ctx)
			if have := have(); err == nil && !maps.Equal(have, want) {
				return fmt.Errorf("it has %d Pods, and not the %d that are stored", len(have), len(want))
			}
			return err
		}); err != nil {
			problems = append(problems, err.Error())
		}
	}
	r.ledger.mu.Lock()
	defer r.ledger.mu.Unlock()
	problems = append(problems, r.ledger.wrong...)
	if !r.plane.Runs() {
		problems = append(problems, "kube-controller-manager, kube-scheduler or KWOK has ended")
	}
	if n := r.balancer.Refused(); n > 0 {
		problems = append(problems, fmt.Sprintf("no server was there for %d connections", n))
	}
	if r.restarts < replicas {
		problems = append(problems, fmt.Sprintf("there were %d restarts only", r.restarts))
	}
	made := len(r.ledger.uids)
	if made < *pods {
		problems = append(problems, fmt.Sprintf("%d Pods were made only", made))
	}
	if r.asked < 2*made {
		problems = append(problems, fmt.Sprintf("servers have counted %d requests only for %d Pods", r.asked, made))
	}
	return problems
}

// informed returns the resourceVersions of the Pods that the informer has.
func (r *run) informed() map[types.UID]string {
	have := map[types.UID]string{}
	for _, object := range r.seen.GetStore().List() {
		p := object.(*core.Pod)
		have[p.UID] = p.ResourceVersion
	}
	return have
}

// stored returns the resourceVersions of the Pods in etcd.
func (r *run) stored(ctx context.Context) (map[types.UID]string, error) {
	answer, err := r.etcd.Get(ctx, podsFolder, clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	want := map[types.UID]string{}
	for _, kv := range answer.Kvs {
		p, err := decode[core.Pod](kv.Value)
		if err != nil {
			return nil, err
		}
		want[p.UID] = fmt.Sprint(kv.ModRevision)
	}
	return want, nil
}

// ofRun matches the names of objects, UIDs and Pod IPs, which differ from run to run.
var ofRun = regexp.MustCompile(`\b(kept|rolled|scaled|job|node)-[a-z0-9-]+|\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}` +
	`|\b10\.\d+\.\d+\.\d+`)

// errors returns all errors that have been logged, and those of the test's own requests.
func (r *run) errors() []controlplane.Error {
	found, err := r.plane.Errors()
	r.must(err)
	r.mu.Lock()
	defer r.mu.Unlock()
	found = append(found, r.failed...)
	for i := range found {
		found[i].Message = ofRun.ReplaceAllString(found[i].Message, "*")
	}
	return found
}

func (r *run) report(took time.Duration, found []controlplane.Error) {
	made, gone := r.ledger.totals()
	r.Logf("%s, %d nodes: %d restarts, %d Pods were made, %d have gone, %d are there; %d requests", took.Round(time.Second),
		*nodes, r.restarts, made, gone, made-gone, r.asked)
	for i, s := range r.servers {
		r.Logf("server %d: %s of CPU time", i, s.cpu.Round(10*time.Millisecond))
	}
	r.Logf("etcd: %s of CPU time", r.cpu(r.etcdPid))
	kinds := map[string]int{}
	for _, e := range found {
		kinds[e.Kind()]++
	}
	for _, kind := range slices.SortedFunc(maps.Keys(kinds), func(a, b string) int {
		return cmp.Or(kinds[b]-kinds[a], strings.Compare(a, b))
	}) {
		r.Logf("%5d × %s", kinds[kind], kind)
	}
}

func (r *run) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// try makes a request until it succeeds. Its errors are recorded.
func (r *run) try(what string, request func(context.Context) error) error {
	for end := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(r.Context(), 30*time.Second)
		err := request(ctx)
		cancel()
		if err == nil {
			return nil
		}
		r.mu.Lock()
		r.failed = append(r.failed, controlplane.Error{Program: "test", Place: what, Message: err.Error()})
		r.mu.Unlock()
		if time.Now().After(end) || r.Context().Err() != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
}

// until calls check until it returns nil.
func (r *run) until(what string, check func(context.Context) error) error {
	began := time.Now()
	for {
		err := check(r.Context())
		if err == nil {
			return nil
		}
		if !r.plane.Runs() {
			return fmt.Errorf("%s: %w, and a program has ended", what, err)
		}
		if time.Since(began) > patience || r.Context().Err() != nil {
			return fmt.Errorf("%s: after %s: %w", what, time.Since(began).Round(time.Second), err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}
