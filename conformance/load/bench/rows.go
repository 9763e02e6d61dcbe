package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/load"
	"plinth/conformance/internal/reference"
	"plinth/conformance/internal/shell"
)

// bench measures one server.
type bench struct {
	kind harness.Kind
	// program is the plinth to run; "" for one that is built.
	program string
	more    []string // its flags
	dir     string
	pods    int
	objects int
	etcd    string // the address of one that goes on when the server is started again; "": the server's ends with it
	// profiles is the folder for profiles; "" for none.
	profiles string
	results  map[string]result
	tallies  map[string]*tally // of the rows that are measured in turns

	hookCosts []float64 // what webhooks have added to a create, by turn

	serial int // of the last change
	// patched is how many changes the watches of a comparison are to have seen: those made at all servers of an etcd.
	patched *int
	server  *harness.Server
	client  *load.Client  // on 32 connections
	one     *load.Client  // on one, as client-go has it
	events  *atomic.Int64 // that watchers have seen, in a comparison of builds
}

const (
	connections = 32
	namespace   = "bench"
	podsPath    = "/api/v1/namespaces/" + namespace + "/pods"
)

func (b *bench) set(key string, value float64) {
	b.results[key] = result{value: value}
	fmt.Fprintf(os.Stderr, "%s: %s %.4g\n", b.kind, key, value)
}

// refused records that a server does not support a row yet; it returns any other error.
func (b *bench) refused(err error, keys ...string) error {
	if !load.Refused(err) {
		return err
	}
	for _, key := range keys {
		b.results[key] = result{refuse: "not yet"}
	}
	fmt.Fprintf(os.Stderr, "%s: %s not yet: %.120s\n", b.kind, strings.Join(keys, ", "), err)
	return nil
}

// takeTurns measures the wanted rows: first the start of each server alone, and then, with both running, one step after
// the other.
func takeTurns(ctx context.Context, benches []*bench, wanted func(key string) bool) error {
	for _, b := range benches {
		if err := b.comings(ctx, wanted); err != nil {
			return fmt.Errorf("%s: %w", b.kind, err)
		}
	}
	for _, b := range benches {
		if err := b.start("main"); err != nil {
			return fmt.Errorf("%s: %w", b.kind, err)
		}
		defer func() { b.server.Kill() }()
		if err := b.client.Namespace(ctx, namespace); err != nil {
			return fmt.Errorf("%s: %w", b.kind, err)
		}
	}
	for at, s := range benches[0].steps() {
		if !s.always && !wanted(s.key) {
			continue
		}
		turns := min(s.n, 10)
		if benches[0].profiles != "" {
			turns = 1 // one profile of all of it
		}
		for turn := range turns {
			for _, b := range benches {
				err := b.turn(ctx, b.steps()[at], s.n*turn/turns, s.n*(turn+1)/turns)
				if err != nil {
					return fmt.Errorf("%s: %s: %w", b.kind, s.key, err)
				}
			}
		}
		for _, b := range benches {
			for _, key := range slices.Sorted(maps.Keys(b.tallies)) {
				b.set(key, b.tallies[key].amount/b.tallies[key].by)
			}
			clear(b.tallies)
		}
	}
	return nil
}

// step is a measurement on a running server.
type step struct {
	key     string
	n       int  // units of work that can be done in turns
	always  bool // later steps need what it leaves behind
	measure func(ctx context.Context, from, to int) error
}

func (b *bench) steps() []step {
	whole := func(key string, measure func(context.Context) error) step {
		return step{key: key, n: 1, measure: func(ctx context.Context, _, _ int) error { return measure(ctx) }}
	}
	changed := func(key string, list load.Request, header, contains string) step {
		return whole(key, func(ctx context.Context) error { return b.listChanged(ctx, key, list, header, contains) })
	}
	return []step{
		{key: "create", n: b.pods, always: true, measure: b.create},
		whole("rss-pods", b.rssPods),
		{key: "get", n: 20000, measure: b.get},
		whole("list-json", b.listJSON),
		changed("list-protobuf", load.Request{Accept: "application/vnd.kubernetes.protobuf"}, "Content-Type", "protobuf"),
		changed("list-table", load.Request{Accept: "application/json;as=Table;g=meta.k8s.io;v=v1"}, "Content-Type", "json"),
		changed("list-gzip", load.Request{Header: http.Header{"Accept-Encoding": {"gzip"}}}, "Content-Encoding", "gzip"),
		{key: "list-metadata", n: 150, measure: b.listMetadata},
		{key: "apply", n: 2000, measure: b.apply},
		{key: "user-get", n: 40000, measure: b.userGet},
		{key: "user-apply", n: 8000, measure: b.userApply},
		whole("watch", b.watch),
		{key: "custom-create", n: ruledObjects, measure: b.customCreate},
		{key: "custom-get", n: 10000, measure: b.customGet},
		whole("custom-list", b.customList),
		{key: "custom-apply", n: 1000, measure: b.customApply},
		whole("crd", b.crds),
		whole("crd-rules", b.crdRules),
		{key: "hooks", n: hookedTurns, measure: b.hooks},
		whole("hooks-get", b.hookedReads),
		whole("policies", b.policies),
		whole("empty", b.emptyNamespace),
		whole("collect", b.collectDependents),
		whole("orphan", b.orphanDependents),
	}
}

// turn does a part of a step, unless the server has refused the step before.
func (b *bench) turn(ctx context.Context, s step, from, to int) error {
	if b.results[s.key].refuse != "" {
		return nil
	}
	return b.profiled(ctx, s.key, func() error { return s.measure(ctx, from, to) })
}

// tally adds up what the turns at a row have measured.
type tally struct {
	amount, by float64
	took       time.Duration
}

func (b *bench) add(key string, amount, by float64) {
	if b.tallies[key] == nil {
		b.tallies[key] = &tally{}
	}
	b.tallies[key].amount += amount
	b.tallies[key].by += by
}

// comings measures first starts and restarts.
func (b *bench) comings(ctx context.Context, wanted func(key string) bool) error {
	if wanted("rss-looked") || wanted("anon-looked") {
		if err := b.lookAround(); err != nil {
			return err
		}
	}
	if wanted("start-first") || wanted("rss-idle") || wanted("watch-idle") {
		if err := b.starts(ctx); err != nil {
			return err
		}
	}
	if wanted("start-again") {
		return b.startAgain(ctx)
	}
	return nil
}

// start runs the server on its own folder.
func (b *bench) start(folder string) error {
	var err error
	b.server, err = harness.Start(harness.Options{Kind: b.kind, Program: b.program, Dir: filepath.Join(b.dir, folder),
		Fsync: true, Flags: append(b.flags(), b.more...), Etcd: b.etcd})
	if err != nil {
		return err
	}
	b.client, b.one = load.New(b.server, connections), load.New(b.server, 1)
	return nil
}

// starts measures first starts: the median of five, each in a new folder. The last one is measured idle for a while,
// and with watches: later, they could use memory left over from other work.
func (b *bench) starts(ctx context.Context) error {
	var took []time.Duration
	for i := range 5 {
		if err := b.start(fmt.Sprint("first-", i)); err != nil {
			return err
		}
		took = append(took, b.server.Ready)
		if i == 4 {
			time.Sleep(5 * time.Second)
			rss, err := load.RSS(b.server)
			if err != nil {
				return err
			}
			b.set("rss-idle", float64(rss)/(1<<20))
			if err := b.watchIdle(ctx); err != nil {
				return err
			}
		}
		b.server.Kill()
	}
	slices.Sort(took)
	b.set("start-first", took[len(took)/2].Seconds())
	return nil
}

// lookAround measures the memory of a new server that has nothing to do since kubectl has asked it what it serves and
// has.
func (b *bench) lookAround() error {
	if err := b.start("looked"); err != nil {
		return err
	}
	defer func() { b.server.Kill() }()
	kubectl, err := shell.New(b.dir, b.dir, b.server.Kubeconfig)
	if err != nil {
		return err
	}
	const commands = `set -e; kubectl version; kubectl api-resources; kubectl explain deployment.spec.template
kubectl get all,configmaps,secrets --all-namespaces; kubectl describe namespace default; kubectl get --raw /openapi/v2 | wc -c`
	if out := kubectl.Run(commands, ""); out.Err != nil {
		return fmt.Errorf("looking around: %s", out)
	}
	time.Sleep(time.Minute)
	memory, err := load.MemoryOf(b.server)
	if err != nil {
		return err
	}
	b.set("rss-looked", float64(memory.Anonymous+memory.File)/(1<<20))
	b.set("anon-looked", float64(memory.Anonymous)/(1<<20))
	return nil
}

// startAgain measures a restart with many objects, after a kill: the median of three.
func (b *bench) startAgain(ctx context.Context) error {
	if harness.WithoutEtcd {
		dir := filepath.Join(b.dir, "etcd")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		etcd, err := reference.StartEtcd(ctx, reference.EtcdOptions{Dir: dir, Fsync: true})
		if err != nil {
			return err
		}
		b.etcd = etcd.URL
		defer func() {
			b.etcd = ""
			etcd.Command.Process.Kill()
			etcd.Command.Wait()
		}()
	}
	if err := b.start("again"); err != nil {
		return err
	}
	defer func() { b.server.Kill() }()
	if err := b.client.Namespace(ctx, namespace); err != nil {
		return err
	}
	err := load.Each(connections, b.objects, func(i int) error {
		body := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c-%d"},"data":{"k":"%s"}}`, i,
			strings.Repeat("x", 1000))
		_, err := b.client.Discard(ctx, load.Request{Method: http.MethodPost,
			Path: "/api/v1/namespaces/" + namespace + "/configmaps", Body: body})
		return err
	})
	if err != nil {
		return err
	}
	var took []time.Duration
	for range 3 {
		if err := b.server.Restart(); err != nil {
			return err
		}
		took = append(took, b.server.Ready)
	}
	slices.Sort(took)
	b.set("start-again", took[1].Seconds())
	return nil
}

// spend adds what a piece of work of n units costs the server, in milliseconds, to a row.
func (b *bench) spend(key string, n int, work func() error) error {
	before, err := load.CPU(b.server)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := work(); err != nil {
		return err
	}
	took := time.Since(began)
	after, err := load.CPU(b.server)
	b.add(key, float64((after-before).Microseconds())/1000, float64(n))
	b.tallies[key].took += took
	return err
}

// create adds the Pods that all later steps work on.
func (b *bench) create(ctx context.Context, from, to int) error {
	return b.spend("create", to-from, func() error {
		return load.Each(connections, to-from, func(i int) error {
			name := podName(from + i)
			_, err := b.client.Discard(ctx, load.Request{Method: http.MethodPost, Path: podsPath,
				Body: load.Pod(namespace, name, 0)})
			return err
		})
	})
}

// rssPods measures the server's memory with the Pods, when it is idle.
func (b *bench) rssPods(context.Context) error {
	time.Sleep(3 * time.Second)
	rss, err := load.RSS(b.server)
	if err != nil {
		return err
	}
	b.set("rss-pods", float64(rss)/(1<<20))
	return nil
}

// podPattern is the name of a Pod, with its index.
const podPattern = "web-5d59d67564-%05d"

func podName(i int) string { return fmt.Sprintf(podPattern, i) }

func (b *bench) get(ctx context.Context, from, to int) error {
	return b.spend("get", to-from, func() error {
		return load.Each(8, to-from, func(i int) error {
			_, err := b.one.Discard(ctx, load.Request{Method: http.MethodGet, Path: podsPath + "/" + podName((from+i)%b.pods)})
			return err
		})
	})
}

// listFor lists again and again for a while.
const listFor = 4 * time.Second

func (b *bench) listJSON(ctx context.Context) error { return b.listAgain(ctx, "list-json", podsPath) }

// listAgain measures how many bytes of a collection are read in a second.
func (b *bench) listAgain(ctx context.Context, key, path string) error {
	list := load.Request{Method: http.MethodGet, Path: path}
	if _, err := b.one.Discard(ctx, list); err != nil { // once, to have it warm
		return b.refused(err, key)
	}
	var total int64
	began := time.Now()
	for time.Since(began) < listFor {
		n, err := b.one.Discard(ctx, list)
		if err != nil {
			return err
		}
		total += n
	}
	b.set(key, float64(total)/1e6/time.Since(began).Seconds())
	return nil
}

// listMetadata lists the metadata of all Pods.
// listMetadata lists metadata, and has a plain server send as many bytes.
func (b *bench) listMetadata(ctx context.Context, from, to int) error {
	var size int64
	err := b.spend("list-metadata", to-from, func() (err error) {
		for range to - from {
			size, err = b.one.Discard(ctx, load.Request{Method: http.MethodGet, Path: podsPath,
				Accept: "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || b.kind != harness.Plinth {
		return err
	}
	took, err := plain(ctx, size, to-from)
	b.add("list-metadata-plain", float64(took.Microseconds())/1000, float64(to-from))
	return err
}

// listChanged lists in a representation, and changes 1 % of the Pods between two lists, outside of the measured time.
func (b *bench) listChanged(ctx context.Context, key string, list load.Request, header, contains string) error {
	list.Method, list.Path = http.MethodGet, podsPath
	var spent time.Duration
	n := 0
	for round := 0; spent < listFor; round++ {
		began := time.Now()
		response, err := b.one.Start(ctx, list)
		if err != nil {
			return b.refused(err, key)
		}
		_, err = io.Copy(io.Discard, response.Body)
		response.Body.Close()
		if err != nil {
			return err
		}
		if got := response.Header.Get(header); !strings.Contains(got, contains) {
			return b.refused(&load.StatusError{Code: http.StatusNotAcceptable, Text: header + ": " + got}, key)
		}
		if round > 0 { // the first one warms up
			spent += time.Since(began)
			n++
		}
		if err := b.change(ctx, b.pods/100); err != nil {
			return err
		}
	}
	b.set(key, float64(n)/spent.Seconds())
	return nil
}

// change sets a new label on the next n Pods.
func (b *bench) change(ctx context.Context, n int) error {
	b.serial++
	from := b.serial * n
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{"serial":"%d"}}}`, b.serial)
	return load.Each(8, n, func(i int) error {
		_, err := b.client.Discard(ctx, load.Request{Method: http.MethodPatch,
			Path: podsPath + "/" + podName((from+i)%b.pods),
			Body: patch, ContentType: "application/merge-patch+json"})
		return err
	})
}

// applied returns an apply of a Deployment, whose image changes every time.
func applied(i int) load.Request {
	return load.Request{Method: http.MethodPatch, ContentType: "application/apply-patch+yaml",
		Path: "/apis/apps/v1/namespaces/" + namespace + "/deployments/applied?fieldManager=bench",
		Body: fmt.Appendf(nil,
			`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"applied","labels":{"app":"web"}},"spec":{"replicas":3,"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"web","image":"web:v%d","ports":[{"containerPort":8080,"name":"http"}],"env":[{"name":"A","value":"b"}],"resources":{"limits":{"cpu":"1","memory":"1Gi"}}},{"name":"proxy","image":"proxy:v1"}]}}}}`, i)}
}

func (b *bench) apply(ctx context.Context, from, to int) error {
	if _, err := b.one.Discard(ctx, applied(-1)); err != nil {
		return b.refused(err, "apply")
	}
	return b.spend("apply", to-from, func() error {
		for i := from; i < to; i++ {
			if _, err := b.one.Discard(ctx, applied(i)); err != nil {
				return err
			}
		}
		return nil
	})
}

// watchedSize is the size of an event in bytes. The reference's objects have managedFields, so their data is shorter.
const watchedSize = 1300

// watched creates objects whose events have the right size, and returns the path of their collection.
func (b *bench) watched(ctx context.Context, n int) (string, error) {
	path := "/api/v1/namespaces/" + namespace + "/configmaps"
	create := func(name string, payload int) ([]byte, error) {
		return b.client.Do(ctx, load.Request{Method: http.MethodPost, Path: path,
			Body: fmt.Appendf(nil,
				`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%s","labels":{"serial":"0"}},"data":{"k":"%s"}}`,
				name, strings.Repeat("x", payload))})
	}
	empty, err := create("watched", 0)
	if err != nil {
		return "", err
	}
	const frame = len(`{"type":"MODIFIED","object":}`)
	return path, load.Each(8, n, func(i int) error {
		_, err := create(fmt.Sprint("watched-", i), watchedSize-len(empty)-frame)
		return err
	})
}

// watch lets 200 watchers on 20 connections watch the same objects, and counts the events that reach them.
func (b *bench) watch(ctx context.Context) error {
	const watchers, objects = 200, 100
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	path, err := b.watched(ctx, objects)
	if err != nil {
		return err
	}
	list, err := b.client.Do(ctx, load.Request{Method: http.MethodGet, Path: path + "?fieldSelector=metadata.name%3Dnone"})
	if err != nil {
		return err
	}
	readers := load.New(b.server, 20)
	defer readers.Close()
	var events, size atomic.Int64
	var reading sync.WaitGroup
	for range watchers {
		w := &watcher{client: readers, path: path, version: load.ResourceVersion(list), events: &events, size: &size}
		if err := w.open(ctx); err != nil {
			return err
		}
		reading.Go(func() { w.read(ctx) })
	}
	time.Sleep(500 * time.Millisecond)
	events.Store(0)
	size.Store(0)
	changes := 4000
	if b.kind == harness.Reference {
		changes = 2000 // it takes long enough
	}
	began := time.Now()
	// The writers wait for watchers that lag: the reference ends those that lag too far.
	const lag = 50 * watchers
	err = load.Each(8, changes, func(i int) error {
		for events.Load() < int64(i*watchers-lag) && time.Since(began) < time.Minute {
			time.Sleep(100 * time.Microsecond)
		}
		_, err := b.client.Discard(ctx, load.Request{Method: http.MethodPatch,
			Path: fmt.Sprintf("%s/watched-%d", path, i%objects),
			Body: fmt.Appendf(nil, `{"metadata":{"labels":{"serial":"%d"}}}`, i+1), ContentType: "application/merge-patch+json"})
		return err
	})
	if err != nil {
		return err
	}
	want := int64(changes * watchers)
	for events.Load() < want {
		if time.Since(began) > 2*time.Minute {
			return fmt.Errorf("of %d events %d have come", want, events.Load())
		}
		time.Sleep(time.Millisecond)
	}
	took := time.Since(began).Seconds()
	fmt.Fprintf(os.Stderr, "%s: events of %d bytes\n", b.kind, size.Load()/events.Load())
	b.set("watch", float64(events.Load())/took)
	cancel()
	reading.Wait()
	return nil
}

// watcher counts the events of a watch. If the server ends it for being too slow, it resumes where it was.
type watcher struct {
	client        *load.Client
	path, version string
	stream        io.ReadCloser
	events, size  *atomic.Int64
}

func (w *watcher) open(ctx context.Context) error {
	response, err := w.client.Start(ctx, load.Request{Method: http.MethodGet,
		Path: w.path + "?watch=1&resourceVersion=" + w.version})
	if err == nil {
		w.stream = response.Body
	}
	return err
}

func (w *watcher) read(ctx context.Context) {
	buffer := make([]byte, 64<<10)
	var last []byte // the end of what was read, long enough for at least one whole event
	for {
		n, err := w.stream.Read(buffer)
		w.events.Add(int64(bytes.Count(buffer[:n], []byte("\n"))))
		w.size.Add(int64(n))
		last = append(last[max(0, len(last)-4*watchedSize):], buffer[:n]...)
		if err == nil {
			continue
		}
		w.stream.Close()
		whole := last[:bytes.LastIndexByte(last, '\n')+1]
		if at := bytes.LastIndex(whole, []byte(`"resourceVersion":"`)); at >= 0 {
			w.version = load.ResourceVersion(whole[at:])
		}
		last = last[:0]
		if ctx.Err() != nil || w.open(ctx) != nil {
			return
		}
	}
}

// watchIdle opens 2,000 watches without events, 100 on a connection.
func (b *bench) watchIdle(ctx context.Context) error {
	const n = 2000
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	before, err := load.RSS(b.server)
	if err != nil {
		return err
	}
	readers := load.New(b.server, n/100)
	defer readers.Close()
	for range n {
		response, err := readers.Start(ctx, load.Request{Method: http.MethodGet,
			Path: "/api/v1/namespaces/" + namespace + "/secrets?watch=1"})
		if err != nil {
			return err
		}
		defer response.Body.Close()
	}
	time.Sleep(2 * time.Second)
	after, err := load.RSS(b.server)
	if err != nil {
		return err
	}
	b.set("watch-idle", float64(after-before)/1000/n)
	return nil
}

// crds creates 200 definitions of 45 kB, one after the other: the next one when a list of the objects of the last one
// is answered.
func (b *bench) crds(ctx context.Context) error {
	const n = 200
	before, err := load.RSS(b.server)
	if err != nil {
		return err
	}
	began := time.Now()
	for i := range n {
		_, err := b.client.Discard(ctx, load.Request{Method: http.MethodPost,
			Path: definitionsPath, Body: definition(i)})
		if err != nil {
			return b.refused(err, "crd", "crd-rss")
		}
		if err := b.usable(ctx, fmt.Sprintf("/apis/bench.example.com/v1/thing%ds", i)); err != nil {
			return err
		}
	}
	b.set("crd", float64(time.Since(began).Microseconds())/1000/n)
	time.Sleep(time.Minute)
	after, err := load.RSS(b.server)
	if err != nil {
		return err
	}
	b.set("crd-rss", float64(after-before)/(1<<20)/n)
	return nil
}

// definition is a CustomResourceDefinition of 45 kB, most of it descriptions, as real ones are.
func definition(i int) []byte {
	var properties strings.Builder
	for p := range 120 {
		if p > 0 {
			properties.WriteByte(',')
		}
		fmt.Fprintf(&properties,
			`"field%d":{"type":"object","description":"%s","properties":{"name":{"type":"string"},"count":{"type":"integer","minimum":0},"items":{"type":"array","items":{"type":"string"}}}}`,
			p, strings.Repeat("what it is for, ", 13))
	}
	return fmt.Appendf(nil,
		`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"thing%[1]ds.bench.example.com"},"spec":{"group":"bench.example.com","scope":"Cluster","names":{"plural":"thing%[1]ds","singular":"thing%[1]d","kind":"Thing%[1]d","listKind":"Thing%[1]dList"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{%[2]s}}}}}}]}}`,
		i, properties.String())
}
