package replicas

import (
	"context"
	"fmt"
	"maps"
	"math/rand"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// fault is one thing that happens to the servers.
type fault struct {
	name string
	on   target
	// begin begins it, and returns what ends it; nil if it is over at once.
	begin func(r *run, p planned) (end func(), err error)
	// claims are what it takes, besides its target: no two faults that go on at one time have the same.
	claims string
	// possible says whether a cluster can have it; nil: if it has what the fault happens to.
	possible func(c *cluster) bool
}

// target is the sort of what a fault happens to.
type target int

const (
	aReplica target = iota
	aMember
	allReplicas
	etcdAsAWhole
)

// majority is the claim of faults that leave only the majority of etcd. Nothing would happen without one.
const majority = "majority"

// faults are all of them.
var faults = []*fault{
	{name: "kill-replica", on: aReplica, claims: "process", begin: func(r *run, p planned) (func(), error) {
		one := r.replicas[p.target]
		one.Kill()
		return func() { r.insist(one.restart) }, nil
	}},
	{name: "freeze-replica", on: aReplica, claims: "process", begin: func(r *run, p planned) (func(), error) {
		one := r.replicas[p.target]
		one.signal(syscall.SIGSTOP)
		return func() { one.signal(syscall.SIGCONT) }, nil
	}},
	{name: "step-clock", on: aReplica, claims: "clock", begin: func(r *run, p planned) (func(), error) {
		one, offset := r.replicas[p.target], time.Duration(p.choice%1200-600)*time.Second
		if err := os.WriteFile(one.clock, []byte(offset.String()), 0o600); err != nil {
			return nil, err
		}
		return func() { _ = os.WriteFile(one.clock, []byte("0s"), 0o600) }, nil
	}},
	{name: "cut-replica", on: aReplica, claims: "wires", begin: wiresOfReplica(func(w *wire, _ int) { w.cut = true })},
	{name: "hold-replica", on: aReplica, claims: "wires", begin: wiresOfReplica(hold)},
	{name: "slow-replica", on: aReplica, claims: "wires", begin: wiresOfReplica(slow)},
	{name: "lossy-replica", on: aReplica, claims: "wires", begin: wiresOfReplica(lose)},
	{name: "kill-replicas", on: allReplicas, claims: "process", begin: func(r *run, p planned) (func(), error) {
		for _, one := range r.replicas {
			one.Kill()
		}
		return func() {
			var wait sync.WaitGroup
			for _, one := range r.replicas {
				wait.Go(func() { r.insist(one.restart) })
			}
			wait.Wait()
		}, nil
	}},
	{name: "kill-members", on: etcdAsAWhole, claims: majority, begin: func(r *run, p planned) (func(), error) {
		for _, one := range r.members {
			one.kill()
		}
		return func() {
			for _, one := range r.members {
				r.insist(one.start)
			}
		}, nil
	}},
	{name: "kill-member", on: aMember, claims: majority, begin: func(r *run, p planned) (func(), error) {
		one := r.members[p.target]
		one.kill()
		return func() { r.insist(one.start) }, nil
	}},
	{name: "freeze-member", on: aMember, claims: majority, begin: func(r *run, p planned) (func(), error) {
		one := r.members[p.target]
		one.signal(syscall.SIGSTOP)
		return func() { one.signal(syscall.SIGCONT) }, nil
	}},
	{name: "cut-member", on: aMember, claims: majority, begin: wiresOfMember(func(w *wire, _ int) { w.cut = true })},
	{name: "hold-member", on: aMember, claims: majority, begin: wiresOfMember(hold)},
	{name: "slow-member", on: aMember, claims: majority, begin: wiresOfMember(slow)},
	{name: "compact", on: etcdAsAWhole, begin: func(r *run, p planned) (func(), error) {
		ctx, cancel := context.WithTimeout(r.ctx, patience)
		defer cancel()
		// Not beyond what the test has read itself.
		_, err := r.etcd.Compact(ctx, r.truth.upTo())
		return nil, err
	}},
	{name: "defragment", on: aMember, begin: func(r *run, p planned) (func(), error) {
		ctx, cancel := context.WithTimeout(r.ctx, patience)
		defer cancel()
		_, err := r.members[p.target].client.Defragment(ctx, r.members[p.target].url)
		return nil, err
	}},
	{name: "move-leader", on: aMember, begin: func(r *run, p planned) (func(), error) {
		ctx, cancel := context.WithTimeout(r.ctx, patience)
		defer cancel()
		leads := r.leader(ctx)
		if leads < 0 {
			return nil, fmt.Errorf("there is no leader")
		}
		if leads == p.target {
			p.target = (p.target + 1) % size
		}
		_, err := r.members[leads].client.MoveLeader(ctx, r.members[p.target].id)
		return nil, err
	}},
	{name: "fill-member", on: aMember, claims: majority,
		possible: func(c *cluster) bool { return len(c.members) > 0 && c.members[0].disk != nil },
		begin: func(r *run, p planned) (func(), error) {
			// A member that cannot write ends, sooner or later: its log has room left that was reserved.
			one := r.members[p.target]
			err := one.disk.fill()
			return func() {
				if !one.answers(r.ctx) {
					r.stopped.Add(1)
				}
				r.insist(one.disk.empty)
				one.kill()
				r.insist(one.start)
			}, err
		}},
	{name: "fill-replica", on: aReplica, claims: "disk",
		possible: func(c *cluster) bool { return len(c.replicas) > 0 && c.replicas[0].disk != nil },
		begin: func(r *run, p planned) (func(), error) {
			one := r.replicas[p.target]
			err := one.disk.fill()
			return func() { r.insist(one.disk.empty) }, err
		}},
	{name: "no-space", on: aMember, claims: "space", begin: func(r *run, p planned) (func(), error) {
		// What a member whose file has reached its quota says to all: none of them takes writes until it is taken back.
		ctx, cancel := context.WithTimeout(r.ctx, patience)
		defer cancel()
		_, err := pb.NewMaintenanceClient(r.etcd.ActiveConnection()).Alarm(ctx, &pb.AlarmRequest{
			Action: pb.AlarmRequest_ACTIVATE, MemberID: r.members[p.target].id, Alarm: pb.AlarmType_NOSPACE})
		return func() {
			r.insist(func() error {
				ctx, cancel := context.WithTimeout(r.ctx, patience)
				defer cancel()
				_, err := r.etcd.AlarmDisarm(ctx, &clientv3.AlarmMember{})
				return err
			})
		}, err
	}},
}

func hold(w *wire, choice int) { w.there, w.back = choice%3 != 0, choice%3 != 1 }

func slow(w *wire, choice int) { w.slow = time.Duration(20+choice%500) * time.Millisecond }

func lose(w *wire, choice int) { w.loses = 20 + choice%200 }

// wiresOfReplica changes the wires from a replica to one member, or to all.
func wiresOfReplica(change func(w *wire, choice int)) func(*run, planned) (func(), error) {
	return func(r *run, p planned) (func(), error) {
		wires := r.toMember[p.target]
		if one := p.choice % 4; one < size {
			wires = wires[one : one+1]
		}
		return changeWires(wires, change, p.choice/4), nil
	}
}

// wiresOfMember changes the wires from a member to the others, those from the others to it, or both.
func wiresOfMember(change func(w *wire, choice int)) func(*run, planned) (func(), error) {
	return func(r *run, p planned) (func(), error) {
		var wires []*wire
		for other := range size {
			if other == p.target {
				continue
			}
			if p.choice%3 != 0 {
				wires = append(wires, r.between[p.target][other])
			}
			if p.choice%3 != 1 {
				wires = append(wires, r.between[other][p.target])
			}
		}
		return changeWires(wires, change, p.choice/3), nil
	}
}

func changeWires(wires []*wire, change func(w *wire, choice int), choice int) func() {
	for _, w := range wires {
		w.set(func(w *wire) { change(w, choice) })
	}
	return func() {
		for _, w := range wires {
			w.heal()
		}
	}
}

// planned is a fault at its time.
type planned struct {
	*fault
	at, lasts time.Duration
	target    int
	choice    int // of a variant
}

func (p planned) String() string {
	return fmt.Sprintf("%s %d (%d) for %s", p.name, p.target, p.choice, p.lasts.Round(time.Millisecond))
}

// excludes says whether two faults may not go on at one time.
func (p planned) excludes(o planned) bool {
	if p.claims == "" || p.claims != o.claims {
		return false
	}
	return p.on != aReplica || o.on != aReplica || p.target == o.target
}

// plan decides from a seed what happens when. Some of the processes are left, a majority of the members and one replica
// of several, except by faults of all of them.
func plan(seed int64, of []*fault, duration time.Duration, replicas int) (all []planned) {
	r := rand.New(rand.NewSource(seed))
	longest := 4 * time.Second
	for at := time.Second; at < duration-time.Second; at += time.Duration(300+r.Intn(1200)) * time.Millisecond {
		p := planned{fault: of[r.Intn(len(of))], at: at, choice: r.Intn(1 << 20)}
		switch p.on {
		case aReplica:
			p.target = r.Intn(replicas)
		case aMember:
			p.target = r.Intn(size)
		}
		p.lasts = 300*time.Millisecond + time.Duration(r.Int63n(int64(longest)))
		if r.Intn(5) == 0 && duration > time.Minute {
			p.lasts *= 4 // longer than the leases by which servers know of each other
		}
		p.lasts = min(p.lasts, duration-at)
		gone := 0 // processes of replicas
		clash := slices.ContainsFunc(all, func(o planned) bool {
			if o.at+o.lasts+200*time.Millisecond < at {
				return false
			}
			if o.on == aReplica && o.claims == "process" && o.target != p.target {
				gone++
			}
			return p.excludes(o)
		})
		if !clash && (p.on != aReplica || p.claims != "process" || replicas == 1 || gone < replicas-1) {
			all = append(all, p)
		}
	}
	return all
}

// byName counts planned faults.
func byName(all []planned) string {
	counts := map[string]int{}
	for _, p := range all {
		counts[p.name]++
	}
	var text []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		text = append(text, fmt.Sprint(counts[name], " ", name))
	}
	return strings.Join(text, ", ")
}

// wanted are the faults with these names, or all that the cluster can have.
func wanted(names string, c *cluster) (some []*fault, err error) {
	left := strings.FieldsFunc(names, func(r rune) bool { return r == ',' })
	for _, f := range faults {
		possible := len(c.members) > 0 || f.on == aReplica && f.claims != "wires" // of one server alone
		if f.possible != nil {
			possible = f.possible(c)
		}
		i := slices.Index(left, f.name)
		if i >= 0 {
			left = slices.Delete(left, i, i+1)
		}
		if possible && (i >= 0 || names == "") {
			some = append(some, f)
		}
	}
	if len(left) > 0 || len(some) == 0 {
		return nil, fmt.Errorf("there are no faults %s", left)
	}
	return some, nil
}

// locks name what a fault has for itself, in the order in which all take them. The plan sees to that, too, but some
// faults end late: a server needs time to start.
func (p planned) locks(replicas int) (names []string) {
	switch {
	case p.claims == "":
	case p.on == aReplica:
		names = append(names, fmt.Sprint(p.claims, p.target))
	case p.on == allReplicas:
		for i := range replicas {
			names = append(names, fmt.Sprint(p.claims, i))
		}
	default:
		names = append(names, p.claims)
	}
	return names
}

// cause has planned faults happen, and returns when all of them have ended.
func (r *run) cause(all []planned) {
	locks := map[string]*sync.Mutex{}
	for _, p := range all {
		for _, name := range p.locks(len(r.replicas)) {
			if locks[name] == nil {
				locks[name] = &sync.Mutex{}
			}
		}
	}
	for _, p := range all {
		r.wait.Go(func() {
			pause(r.ctx, p.at-time.Duration(r.now()))
			for _, name := range p.locks(len(r.replicas)) {
				locks[name].Lock()
				defer locks[name].Unlock()
			}
			if time.Duration(r.now()) > p.at+p.lasts {
				r.logf("no    %s: the one before ended late", p)
				return
			}
			r.logf("begin %s", p)
			end, err := p.begin(r, p)
			if err != nil {
				r.logf("%s: %v", p.name, err)
			}
			if end == nil {
				return
			}
			pause(r.ctx, p.at+p.lasts-time.Duration(r.now()))
			end()
			r.logf("end   %s", p)
		})
	}
	r.wait.Wait()
}
