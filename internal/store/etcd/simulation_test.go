package etcd

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"plinth/internal/store"
)

var (
	simulations = flag.Int("simulations", 1000, "random runs of TestSimulation, besides those that try every order")
	deviations  = flag.Int("deviations", 1, "how many events of a run are out of turn, when every order is tried")
	seed        = flag.Uint64("seed", 1, "of the random runs of TestSimulation")
)

// A simulation runs the writers of two processes on a model of etcd, and decides what happens when: which request is
// carried out next, which answer is lost, which watch is told of which change.
//
// The problem: what goes wrong in a distributed store goes wrong in one order of events out of thousands, and a test on
// a real etcd tries the orders that it happens to get. Here all goroutines are in a bubble (testing/synctest). When all
// of them wait, the requests and streams that the model has are all that can happen next, and one of them is chosen:
//
//	run = a list of choices, each among the events that were possible then
//
// Choice 0 is what would happen if nothing went wrong: the oldest event. A run deviates from that a few times. All runs
// with a number of deviations are tried, and random ones with more. A history that needs a long row of them has one
// event for it (a process that is slow: all else comes first), or a beginning that is given (setting.first).
//
// The code under test is the writer. The model is in the place of the connection of etcd's client, and of the client's
// watches.
type simulation struct {
	t   *testing.T
	ctx context.Context // ends with the run
	*model
	choose func(possible []event) int
	first  []string // the names of events that happen as soon as they can, in this order, by how they begin
	missed []string // those that could not happen

	mu      sync.Mutex
	pending []*request
	streams []*stream

	// Changes of these that may still happen.
	compactions, expiries, leaders, slowdowns, damages int

	replaceable bool
	replacement *replacement // of the etcd at the beginning; nil: that is still there
	backup      int64        // the revision of the backup of which a replacement is

	slow       int        // the process for which everything else comes first, or nobody
	slowWatch  bool       // only its watch is slow
	restricted bool       // the processes may use no key outside of their prefix; then no request comes late
	sealed     bool       // the values are encrypted
	further    []*process // those that were started while the programs ran
	began      int64      // the revision at which the programs began
	step       int
	log        []string
}

// request is a request of a process that has arrived at the model.
type request struct {
	by     int
	name   string // which decides among those that arrive at the same time
	at     time.Time
	step   int // at which it has arrived
	do     func() (any, error)
	answer chan result
	always bool // nothing can happen to it
	orphan bool // nobody waits for its answer, and it may still be carried out
}

type result struct {
	answer any
	err    error
}

// event is something that can happen.
type event struct {
	name string
	run  func()
}

// arrive waits until a request is answered.
func (s *simulation) arrive(ctx context.Context, r *request) (any, error) {
	r.at, r.answer = time.Now(), make(chan result, 1)
	s.mu.Lock()
	r.step = s.step
	s.pending = append(s.pending, r)
	s.mu.Unlock()
	select {
	case a := <-r.answer:
		return a.answer, a.err
	case <-ctx.Done():
		s.mu.Lock()
		r.orphan = true
		s.mu.Unlock()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

var errLost = status.Error(codes.Unavailable, "the connection is lost")

// possible are the events that can happen now, those that would happen if nothing went wrong first.
func (s *simulation) possible() []event {
	s.mu.Lock()
	defer s.mu.Unlock()
	var o occasion
	for _, same := range s.groups() {
		s.answer(&o, same)
	}
	slices.SortStableFunc(s.streams, func(a, b *stream) int {
		return cmp.Or(cmp.Compare(a.by, b.by), cmp.Compare(a.id, b.id))
	})
	for _, w := range s.streams {
		s.deliver(&o, w)
	}
	if s.compactions > 0 && s.revision > s.compacted+1 {
		o.add(&o.wrong, "compaction", func() { s.compactions--; s.compacted = s.revision })
	}
	// Leases last longer than a request can be under way.
	late := slices.ContainsFunc(s.pending, func(r *request) bool { return r.orphan })
	if s.expiries > 0 && len(s.leases) > 0 && !late {
		o.add(&o.wrong, "leases end", func() { s.expiries--; s.expire() })
	}
	for _, k := range []store.Key{counter, token, bitmap} {
		if key := "/r/r/" + k.Name; s.damages > 0 && s.live[key] != nil {
			o.add(&o.wrong, "damage of "+k.Name, func() { s.damages--; s.spoil(key) })
		}
	}
	if kv := s.live["/r/r/"+bitmap.Name]; kv != nil && string(kv.Value) == damage {
		o.add(&o.wrong, "repair", s.repair)
	}
	if s.replacement == nil && s.replaceable {
		for i := range replacements {
			o.add(&o.wrong, replacements[i].name, func() { s.replaced(&replacements[i]) })
		}
	}
	if len(o.normal) == 0 { // what is slow comes when nothing else can happen
		o.normal, o.slow, s.slow = o.slow, nil, nobody
	}
	all := append(o.normal, o.slow...)
	if len(all) > 0 {
		o.add(&o.wrong, "time", func() { time.Sleep(3 * time.Second) })
	}
	if s.slowdowns > 0 && len(all) > 1 && s.slow == nobody {
		for number := range 2 {
			o.add(&o.wrong, fmt.Sprintf("slow %d", number), func() { s.slowdowns--; s.slow, s.slowWatch = number, false })
			o.add(&o.wrong, fmt.Sprintf("slow watch of %d", number), func() {
				s.slowdowns--
				s.slow, s.slowWatch = number, true
			})
		}
	}
	return append(all, o.wrong...)
}

// occasion is what can happen: if nothing goes wrong; then, too, but later; and only if something goes wrong.
type occasion struct{ normal, slow, wrong []event }

func (*occasion) add(to *[]event, name string, run func()) { *to = append(*to, event{name, run}) }

// add adds what happens if nothing goes wrong to a process.
func (s *simulation) add(o *occasion, by int, name string, run func()) {
	if s.slow == by && (!s.slowWatch || strings.HasSuffix(name, "watch")) {
		o.add(&o.slow, name, run)
		return
	}
	o.add(&o.normal, name, run)
}

// groups are the pending requests, in their order; those that are the same, and came at the same time, are one. They
// have the same answer, so that it does not matter which of their clients was the first one, which the scheduler has
// decided.
func (s *simulation) groups() (all [][]*request) {
	order := func(a, b *request) int {
		return cmp.Or(a.lateness()-b.lateness(), a.at.Compare(b.at), a.step-b.step, cmp.Compare(a.by, b.by),
			cmp.Compare(a.name, b.name))
	}
	slices.SortStableFunc(s.pending, order)
	for i, r := range s.pending {
		if i > 0 && order(s.pending[i-1], r) == 0 {
			all[len(all)-1] = append(all[len(all)-1], r)
		} else {
			all = append(all, []*request{r})
		}
	}
	return all
}

// answer adds what can happen to requests that are the same.
func (s *simulation) answer(o *occasion, same []*request) {
	each := func(do func(r *request)) func() {
		return func() {
			for _, r := range same {
				do(r)
			}
		}
	}
	r := same[0]
	name := fmt.Sprintf("%d's %s", r.by, r.name)
	if r.orphan {
		s.add(o, r.by, "late "+name, each(func(r *request) { s.drop(r); _, _ = r.do() }))
		o.add(&o.wrong, "never "+name, each(s.drop))
		return
	}
	s.add(o, r.by, name, each(func(r *request) {
		s.drop(r)
		answer, err := r.do()
		r.answer <- result{answer, err}
	}))
	if r.always {
		return
	}
	o.add(&o.wrong, "lost "+name, each(func(r *request) { s.drop(r); r.answer <- result{nil, errLost} }))
	o.add(&o.wrong, "unanswered "+name, each(func(r *request) {
		s.drop(r)
		_, _ = r.do()
		r.answer <- result{nil, errLost}
	}))
	if !s.restricted {
		o.add(&o.wrong, "delayed "+name, each(func(r *request) {
			r.orphan = true
			r.answer <- result{nil, errLost}
		}))
	}
}

// deliver adds what can happen to a watch.
func (s *simulation) deliver(o *occasion, w *stream) {
	if w.due(s.model) {
		s.add(o, w.by, fmt.Sprintf("%d's watch", w.by), func() { s.send(w, false) })
		o.add(&o.wrong, fmt.Sprintf("whole watch of %d", w.by), func() { s.send(w, true) })
	}
	if w.progress {
		o.add(&o.wrong, fmt.Sprintf("lost progress of %d", w.by), func() { w.progress = false })
	}
	if s.leaders > 0 && w.due(s.model) {
		// Its member has lost its leader, and the watch ends.
		o.add(&o.wrong, fmt.Sprintf("no leader for %d", w.by), func() {
			s.leaders--
			s.mu.Lock()
			defer s.mu.Unlock()
			w.close(s)
		})
	}
}

// replaced puts another etcd in the place of the one that is there. What is under way is lost.
func (s *simulation) replaced(by *replacement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replacement = by
	s.replace(by, s.backup)
	for _, w := range s.streams {
		w.progress, w.cut = false, true
	}
	begun := func(r *request) bool { return !r.always }
	for _, r := range s.pending {
		if begun(r) && !r.orphan {
			r.answer <- result{nil, errLost}
		}
	}
	s.pending = slices.DeleteFunc(s.pending, begun)
}

// gone says whether another etcd is in the place of the one that the processes follow, of which they have to tell
// nothing.
func (s *simulation) gone() bool { return s.replacement != nil && s.replacement.noticed() }

// followed are the etcds that the processes have to follow.
func (s *simulation) followed() []*model {
	switch {
	case s.gone():
		return []*model{s.before}
	case s.replacement != nil:
		return []*model{s.before, s.model}
	}
	return []*model{s.model}
}

// lateness orders the requests whose answer nobody waits for behind all others.
func (r *request) lateness() int {
	if r.orphan {
		return 1
	}
	return 0
}

func (s *simulation) drop(r *request) {
	s.pending = slices.DeleteFunc(s.pending, func(other *request) bool { return other == r })
}

// mostSteps is how many events a run has at most, and longest how long nothing may happen in it.
const (
	mostSteps = 2000
	longest   = 5 * time.Minute
)

// until lets events happen until something is done, and returns an error if that does not come to an end.
func (s *simulation) until(done <-chan struct{}) error {
	for steps, idle := 0, time.Duration(0); steps < mostSteps && idle < longest; {
		synctest.Wait()
		s.step++
		select {
		case <-done:
			return nil
		default:
		}
		if !s.normal() {
			wait := max(time.Millisecond, idle)
			time.Sleep(wait)
			idle += wait
			continue
		}
		next := s.next()
		s.log = append(s.log, next.name)
		next.run()
		steps, idle = steps+1, 0
	}
	return errors.New("it does not come to an end")
}

// next is the event that happens next.
func (s *simulation) next() event {
	all := s.possible()
	if len(s.first) > 0 {
		if i := slices.IndexFunc(all, func(e event) bool { return strings.HasPrefix(e.name, s.first[0]) }); i >= 0 {
			s.first = s.first[1:]
			return all[i]
		}
	}
	return all[s.choose(all)]
}

// normal says whether something can happen without anything going wrong.
func (s *simulation) normal() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pending) > 0 || slices.ContainsFunc(s.streams, func(w *stream) bool { return w.due(s.model) })
}

// run is one run. It returns what is wrong.
func (s *simulation) run(of setting) (wrong []string) {
	fail := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	choose, first := s.choose, of.first
	s.choose = func([]event) int { return 0 }
	all, err := s.prepare(of)
	if err != nil || s.t.Failed() {
		s.t.Fatal("the processes do not start", err)
	}
	both := all
	defer func() {
		for _, p := range slices.Concat(both, s.further) {
			p.store.Close()
		}
	}()
	s.choose, s.first, s.log = choose, first, nil
	began, clients := s.revision, max(1, of.clients)
	s.began = began
	if err := s.until(together(len(all)*clients, func(n int) {
		p, client := all[n/clients], n%clients
		p.begin(client)
		of.program(p, client)
	})); err != nil {
		return []string{err.Error()}
	}
	s.missed, s.first = s.first, nil
	if of.further && len(s.further) == 0 {
		s.missed = append(s.missed, "a server that is started")
	}
	all = slices.Concat(all, s.further)
	// From now on nothing goes wrong, and what is late comes.
	s.choose, s.slow = func([]event) int { return 0 }, nobody
	s.repair()
	if err := s.until(together(len(all), func(n int) {
		for s.late() {
			time.Sleep(time.Millisecond)
		}
		_, err := all[n].store.Others.Fresh(context.Background(), store.Key{}, true)
		switch healthy := all[n].store.Writer.Healthy(); {
		case !s.gone() && (err != nil || healthy != nil):
			all[n].fail("it does not follow etcd: %w, %w", err, healthy)
		case s.gone() && (!errors.Is(err, store.ErrClosed) || !errors.Is(healthy, store.ErrClosed)):
			all[n].fail("it has not noticed that etcd is another one: %v, %v", err, healthy)
		}
		all[n].catchUp()
	})); err != nil {
		return []string{err.Error()}
	}
	s.judge(all, began, fail)
	return wrong
}

// prepare starts the processes. If they are to write witnesses, each loses an answer.
func (s *simulation) prepare(of setting) ([]*process, error) {
	all := make([]*process, 2)
	if err := s.until(together(len(all), func(n int) {
		var err error
		if all[n], err = s.start(n); err != nil {
			s.t.Error(err)
		}
	})); err != nil || s.t.Failed() {
		return nil, err
	}
	all[0].other, all[1].other = all[1], all[0]
	if of.witnessed {
		s.first = []string{"lost 0's txn", "lost 1's txn"}
	}
	if err := s.until(together(len(all), func(n int) {
		if p := all[n]; of.witnessed {
			p.write(store.Key{Resource: "r", Name: fmt.Sprintf("first %d", n)}, func(*store.Version) []byte { return []byte{} })
			p.acked, p.unknown = nil, 0
		}
	})); err != nil {
		return nil, err
	}
	// Others write elsewhere: a backup of before that is older than all that the processes have.
	s.backup = s.revision
	s.revision += 50
	if err := s.until(together(len(all), func(n int) {
		if _, err := all[n].store.Others.Fresh(context.Background(), store.Key{}, true); err != nil {
			s.t.Error(err)
		}
	})); err != nil {
		return nil, err
	}
	for _, p := range all {
		var err error
		if p.cursor, err = p.store.WatchAll(context.Background(), p.store.Revision()); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// together calls a function for each number below n, and returns what is closed when all have returned.
func together(n int, do func(i int)) <-chan struct{} {
	done := make(chan struct{})
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { do(i) })
	}
	go func() {
		all.Wait()
		close(done)
	}()
	return done
}

// late says whether a request may still be carried out whose answer nobody waits for.
func (s *simulation) late() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.pending, func(r *request) bool { return r.orphan })
}

// setting is what all runs of a test have in common.
type setting struct {
	name       string
	program    func(p *process, client int) // what the clients of the processes do
	clients    int                          // of a process, which run the program at the same time; 0: one
	witnessed  bool                         // each process has lost an answer before: its transactions write the witness
	restricted bool
	sealed     bool // values are encrypted
	further    bool // the program starts a further server
	lasting    bool // no other etcd takes the place of this one
	// first are events that happen as soon as they can, one after the other, by how their names begin. They are the
	// beginning of a history that takes more deviations than can be tried everywhere; those of the run come on top.
	first []string
}

var settings = []setting{
	{name: "counters", program: (*process).counters},
	{name: "owners", program: (*process).owners},
	{name: "toggles", program: (*process).toggles, witnessed: true},
	{name: "flags", program: (*process).flags},
	{name: "bits", program: (*process).allocate},
	{name: "clients", program: (*process).count, clients: 2, witnessed: true},
	{name: "expiries", program: (*process).expires},
	{name: "resumed", program: func(p *process, _ int) { p.resumes("") }, further: true, lasting: true},
	{name: "resumed, of a type", program: func(p *process, _ int) { p.resumes("r") }, further: true, lasting: true},
	{name: "encrypted", program: (*process).counters, sealed: true},
}

// beginnings are settings that only have their exhaustive runs.
var beginnings = []setting{
	// An object is made, the answer is lost, and before it is looked for another process removes the object and makes it
	// again. Then etcd may compact what has happened.
	{name: "made twice", program: (*process).toggles, witnessed: true,
		first: []string{"unanswered 0's txn token", "slow 0"}},
	// A process begins when another one has made an object and removed it, of which it has heard nothing; its leases are
	// gone.
	{name: "late news", program: (*process).toggles, witnessed: true, first: []string{"leases end", "slow 0"}},
	// A change is not carried out, and another process makes the same one of another revision.
	{name: "another base", program: (*process).flags, first: []string{"lost 0's txn on-off", "slow 0"}},
	// Of what happens to a bit a process hears that it was set. Then it is cleared, and set for another object, and etcd
	// may compact that.
	{name: "a bit again", program: (*process).allocate, first: []string{"slow 0", "0's watch"}},
	// Of two clients of a process that make the same change, one is carried out, and both lose their answers.
	{name: "two clients", program: (*process).count, clients: 2, witnessed: true,
		first: []string{"unanswered 0's txn", "lost 0's txn"}},
}

// simulate makes one run.
func simulate(t *testing.T, of setting, choose func(possible []event) int) (wrong, log, missed []string) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := &simulation{t: t, ctx: ctx, model: newModel(), choose: choose, slow: nobody, compactions: 1, expiries: 1,
			leaders: 1, slowdowns: 1, damages: 1, restricted: of.restricted, sealed: of.sealed,
			replaceable: !of.restricted && !of.lasting}
		wrong = s.run(of)
		log, missed = s.log, s.missed
	})
	return wrong, log, missed
}

// deviation is a choice that is not the one that is made if nothing goes wrong.
type deviation struct{ step, choice int }

// deviate makes a run with some deviations, and returns how many events were possible at each step.
func deviate(t *testing.T, of setting, list []deviation) (possible []int, wrong, log []string) {
	wrong, log, missed := simulate(t, of, func(all []event) int {
		step := len(possible)
		possible = append(possible, len(all))
		for _, d := range list {
			if d.step == step && d.choice < len(all) {
				return d.choice
			}
		}
		return 0
	})
	if len(list) == 0 && len(missed) > 0 {
		wrong = append(wrong, fmt.Sprintf("it has not come to %q", missed[0]))
	}
	return possible, wrong, log
}

// explore makes all runs that deviate from a list of deviations, and by so many more after them. It returns their
// number.
func explore(t *testing.T, of setting, list []deviation, more int) (runs int) {
	possible, wrong, log := deviate(t, of, list)
	runs = 1
	if len(wrong) > 0 {
		t.Fatalf("%s, %v: %s\n%s", of.name, list, strings.Join(wrong, "\n"), strings.Join(log, "\n"))
	}
	if more == 0 {
		return runs
	}
	from := 0
	if len(list) > 0 {
		from = list[len(list)-1].step + 1
	}
	for step := from; step < len(possible); step++ {
		for choice := 1; choice < possible[step]; choice++ {
			runs += explore(t, of, append(slices.Clone(list), deviation{step, choice}), more-1)
		}
	}
	return runs
}

// Whatever goes wrong between two servers and an etcd, and in whichever order: a commit that is acknowledged was made
// by its server, once; one that is refused was not and will not be; and in the end both servers have what etcd has.
//
// SPEC: STORE-1, STORE-2
func TestSimulation(t *testing.T) {
	for _, of := range slices.Concat(settings, beginnings) {
		began := time.Now()
		runs := explore(t, of, nil, *deviations)
		t.Logf("%s: %d runs with up to %d deviations, %v", of.name, runs, *deviations, time.Since(began))
	}
	random, began := rand.New(rand.NewPCG(*seed, 0)), time.Now()
	for n := range *simulations {
		of, often := settings[n%len(settings)], 2+random.IntN(10)
		of.lasting = random.IntN(3) > 0 || of.lasting // else it seldom comes to anything else
		wrong, log, _ := simulate(t, of, func(all []event) int {
			if random.IntN(often) == 0 {
				return random.IntN(len(all))
			}
			return 0
		})
		if len(wrong) > 0 {
			t.Fatalf("%s: %s\n%s", of.name, strings.Join(wrong, "\n"), strings.Join(log, "\n"))
		}
	}
	t.Logf("%d random runs, %v", *simulations, time.Since(began))
}

// Servers that may write nothing outside of their prefix tell the same, as long as no create comes late.
//
// SPEC: STORE-2
func TestSimulationOfRestrictedUsers(t *testing.T) {
	for _, of := range settings {
		of.restricted = true
		if runs := explore(t, of, nil, 1); runs < 50 {
			t.Errorf("%s: only %d runs", of.name, runs)
		}
	}
}
