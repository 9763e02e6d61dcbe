package rolling

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// The folders of etcd that the ledger follows.
const (
	podsFolder  = "/registry/pods/"
	nodesFolder = "/registry/minions/"
)

// Labels and annotations of the Pods.
const (
	appLabel        = "app"
	roundAnnotation = "round" // the number of the rollout
)

// ledger compares what happens to Pods with what has been ordered. For each app, in the end:
//
//	made == ordered.made, gone == ordered.gone, and the Pods of the app that are there are made - gone
//
// and at any time, each Pod that goes is one of a licence of its app that is not used up.
type ledger struct {
	mu    sync.Mutex
	there map[string]*pod // by key
	uids  map[types.UID]bool
	apps  map[string]*account
	up    map[string]bool // nodes, by key; true: it has been ready
	wrong []string
}

// pod is what the ledger knows of a Pod that is there.
type pod struct {
	*core.Pod
	revision int64
	going    bool // it has been counted as one that goes
}

// account is that of the Pods of an app.
type account struct {
	made, gone int
	ordered    struct{ made, gone int }
	licences   []*licence
	history    []string // orders, and Pods that were made, began to go, and have gone
}

// tell adds a line to the history.
func (a *account) tell(format string, args ...any) {
	a.history = append(a.history, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// licence says that Pods may go.
type licence struct {
	left int
	may  func(*core.Pod) bool
}

func newLedger() *ledger {
	return &ledger{there: map[string]*pod{}, uids: map[types.UID]bool{}, apps: map[string]*account{},
		up: map[string]bool{}}
}

func (l *ledger) account(app string) *account {
	if l.apps[app] == nil {
		l.apps[app] = &account{}
	}
	return l.apps[app]
}

// order enters that Pods of an app are going to be made.
func (l *ledger) order(app string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.account(app)
	a.ordered.made += n
	a.tell("%d more are ordered", n)
}

// dismiss enters that n Pods of an app are going to go, of those that may.
func (l *ledger) dismiss(app string, n int, may func(*core.Pod) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.account(app)
	a.ordered.gone += n
	a.licences = append(a.licences, &licence{n, may})
	a.tell("%d are to go", n)
}

// complain enters that something is wrong.
func (l *ledger) complain(format string, args ...any) {
	l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
}

// follow passes all changes of Pods and nodes from now on to the ledger, until the context ends.
func (l *ledger) follow(ctx context.Context, client *clientv3.Client) error {
	now, err := client.Get(ctx, podsFolder, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return err
	}
	if now.Count > 0 {
		return fmt.Errorf("there are %d Pods already", now.Count)
	}
	for folder, enter := range map[string]func(*clientv3.Event){podsFolder: l.pod, nodesFolder: l.node} {
		events := client.Watch(ctx, folder, clientv3.WithPrefix(), clientv3.WithRev(now.Header.Revision+1))
		go func() {
			for answer := range events {
				l.mu.Lock()
				if err := answer.Err(); err != nil && ctx.Err() == nil {
					l.complain("the watch of %s ends: %v", folder, err)
				}
				for _, event := range answer.Events {
					enter(event)
				}
				l.mu.Unlock()
			}
		}()
	}
	return nil
}

// decode returns the object of a value in etcd.
func decode[T any](value []byte) (*T, error) {
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(value, nil, nil)
	if err != nil {
		return nil, err
	}
	if object, ok := object.(any).(*T); ok {
		return object, nil
	}
	return nil, fmt.Errorf("it is a %T", object)
}

// pod enters a change of a Pod.
func (l *ledger) pod(event *clientv3.Event) {
	key := string(event.Kv.Key)
	before := l.there[key]
	if event.Type == mvccpb.DELETE {
		if before == nil {
			l.complain("%s is deleted, which was not there", key)
			return
		}
		l.goes(before)
		a := l.account(before.Labels[appLabel])
		a.gone++
		a.tell("%s has gone", before.Name)
		delete(l.there, key)
		return
	}
	object, err := decode[core.Pod](event.Kv.Value)
	if err != nil {
		l.complain("%s: %v", key, err)
		return
	}
	after := &pod{Pod: object, revision: event.Kv.ModRevision}
	if before == nil {
		if l.uids[after.UID] {
			l.complain("%s has the UID of one that has gone", key)
		}
		l.uids[after.UID] = true
		a := l.account(after.Labels[appLabel])
		a.made++
		a.tell("%s is made", after.Name)
	} else {
		after.going = before.going
		l.compare(key, before.Pod, after.Pod)
	}
	l.there[key] = after
	if after.DeletionTimestamp != nil {
		l.goes(after)
	}
}

// phases are those of a Pod that goes well, in their order.
var phases = []core.PodPhase{core.PodPending, core.PodRunning, core.PodSucceeded}

// compare complains of a change that nobody makes.
func (l *ledger) compare(key string, before, after *core.Pod) {
	if before.UID != after.UID {
		l.complain("%s becomes another Pod without being deleted", key)
	}
	if before.Spec.NodeName != "" && after.Spec.NodeName != before.Spec.NodeName {
		l.complain("%s moves from %s to %q", key, before.Spec.NodeName, after.Spec.NodeName)
	}
	if slices.Index(phases, after.Status.Phase) < slices.Index(phases, before.Status.Phase) {
		l.complain("%s was %s and is %s", key, before.Status.Phase, after.Status.Phase)
	}
	for _, c := range after.Status.Conditions {
		if c.Type == core.DisruptionTarget && c.Status == core.ConditionTrue {
			l.complain("%s is disrupted: %s", key, c.Message)
		}
	}
	if before.DeletionTimestamp != nil && after.DeletionTimestamp == nil {
		l.complain("%s is not being deleted any more", key)
	}
}

// goes uses up a licence for a Pod.
func (l *ledger) goes(p *pod) {
	if p.going {
		return
	}
	p.going = true
	a := l.account(p.Labels[appLabel])
	a.tell("%s goes, which is %s", p.Name, p.Status.Phase)
	for _, licence := range a.licences {
		if licence.left > 0 && licence.may(p.Pod) {
			licence.left--
			return
		}
	}
	l.complain("%s/%s goes, and nobody has ordered that", p.Namespace, p.Name)
}

// node enters a change of a node.
func (l *ledger) node(event *clientv3.Event) {
	key := string(event.Kv.Key)
	if event.Type == mvccpb.DELETE {
		l.complain("%s is deleted", key)
		return
	}
	object, err := decode[core.Node](event.Kv.Value)
	if err != nil {
		l.complain("%s: %v", key, err)
		return
	}
	ready := false
	for _, c := range object.Status.Conditions {
		ready = ready || c.Type == core.NodeReady && c.Status == core.ConditionTrue
	}
	switch well := ready && len(object.Spec.Taints) == 0; {
	case well:
		l.up[key] = true
	case l.up[key]:
		l.complain("%s was ready, and is not: %v, %v", key, object.Spec.Taints, object.Status.Conditions)
	}
}

// ready is the number of nodes that have been ready.
func (l *ledger) ready() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.up)
}

// copyOf returns the resourceVersions of the Pods that are there, by UID.
func (l *ledger) copyOf() map[types.UID]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[types.UID]string{}
	for _, p := range l.there {
		all[p.UID] = fmt.Sprint(p.revision)
	}
	return all
}

// open returns what has been ordered of apps, or of all, and has not happened; "": nothing.
func (l *ledger) open(of ...string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var text []string
	running := map[string]int{}
	for _, p := range l.there {
		if p.Status.Phase == core.PodRunning && p.Spec.NodeName != "" && !p.going || p.Status.Phase == core.PodSucceeded {
			running[p.Labels[appLabel]]++
		}
	}
	if len(of) == 0 {
		of = slices.Sorted(maps.Keys(l.apps))
	}
	for _, app := range of {
		a := l.account(app)
		if a.made != a.ordered.made || a.gone != a.ordered.gone || running[app] != a.made-a.gone {
			text = append(text, fmt.Sprintf("%s: %d of %d Pods were made, %d of %d have gone, and %d run", app, a.made,
				a.ordered.made, a.gone, a.ordered.gone, running[app]))
		}
	}
	return strings.Join(text, "\n")
}

// histories are those of the apps for which something that was ordered has not happened, or something else has.
func (l *ledger) histories() (text []string) {
	for app, a := range l.apps {
		if l.open(app) != "" {
			text = append(text, app+":\n"+strings.Join(a.history, "\n"))
		}
	}
	return text
}

// totals are the numbers of Pods that were made and that have gone.
func (l *ledger) totals() (made, gone int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.apps {
		made, gone = made+a.made, gone+a.gone
	}
	return made, gone
}

// changes is how many Pods have come or gone.
func (l *ledger) changes() int {
	made, gone := l.totals()
	return made + gone
}

// all is for a licence for any Pod of an app.
func all(*core.Pod) bool { return true }

// The ledger notices what is done to Pods and nodes without an order.
func TestLedger(t *testing.T) {
	at := int64(1)
	put := func(object any) *clientv3.Event {
		var text strings.Builder
		encoder := scheme.Codecs.LegacyCodec(core.SchemeGroupVersion)
		key := ""
		switch o := object.(type) {
		case *core.Pod:
			key = podsFolder + "shop/" + o.Name
			if err := encoder.Encode(o, &text); err != nil {
				t.Fatal(err)
			}
		case *core.Node:
			key = nodesFolder + o.Name
			if err := encoder.Encode(o, &text); err != nil {
				t.Fatal(err)
			}
		}
		at++
		return &clientv3.Event{Type: mvccpb.PUT, Kv: &mvccpb.KeyValue{Key: []byte(key), ModRevision: at,
			Value: []byte(text.String())}}
	}
	remove := func(name string) *clientv3.Event {
		return &clientv3.Event{Type: mvccpb.DELETE, Kv: &mvccpb.KeyValue{Key: []byte(podsFolder + "shop/" + name)}}
	}
	running := func(name, uid string) *core.Pod {
		return &core.Pod{ObjectMeta: meta.ObjectMeta{Name: name, Namespace: "shop", UID: types.UID(uid),
			Labels: map[string]string{appLabel: "web"}}, Spec: core.PodSpec{NodeName: "n1"},
			Status: core.PodStatus{Phase: core.PodRunning}}
	}
	with := func(p *core.Pod, change func(*core.Pod)) *core.Pod {
		change(p)
		return p
	}
	node := func(status core.ConditionStatus, taints ...core.Taint) *core.Node {
		return &core.Node{ObjectMeta: meta.ObjectMeta{Name: "n1"}, Spec: core.NodeSpec{Taints: taints},
			Status: core.NodeStatus{Conditions: []core.NodeCondition{{Type: core.NodeReady, Status: status}}}}
	}
	for name, c := range map[string]struct {
		then        func(l *ledger)
		wrong, open string // parts of what the ledger says
	}{
		"nothing": {func(l *ledger) {}, "", ""},
		"a Pod is deleted": {func(l *ledger) { l.pod(remove("a")) }, "shop/a goes",
			"web: 2 of 2 Pods were made, 1 of 0 have gone, and 1 run"},
		"a Pod is marked": {func(l *ledger) {
			l.pod(put(with(running("a", "1"), func(p *core.Pod) { p.DeletionTimestamp = &meta.Time{} })))
		}, "", ""}, // a zero time is none
		"a Pod is being deleted": {func(l *ledger) {
			now := meta.Now()
			l.pod(put(with(running("a", "1"), func(p *core.Pod) { p.DeletionTimestamp = &now })))
		}, "shop/a goes", "and 1 run"},
		"one of two goes": {func(l *ledger) { l.dismiss("web", 1, all); l.pod(remove("a")) }, "", ""},
		"the wrong one goes": {func(l *ledger) {
			l.dismiss("web", 1, func(p *core.Pod) bool { return p.Name == "b" })
			l.pod(remove("a"))
		}, "shop/a goes", ""},
		"none goes":       {func(l *ledger) { l.dismiss("web", 1, all) }, "", "0 of 1 have gone, and 2 run"},
		"none is made":    {func(l *ledger) { l.order("web", 1) }, "", "2 of 3 Pods were made"},
		"one is replaced": {func(l *ledger) { l.pod(put(running("a", "3"))) }, "becomes another Pod", ""},
		"one too many":    {func(l *ledger) { l.pod(put(running("c", "3"))) }, "", "3 of 2 Pods were made"},
		"of another app": {func(l *ledger) {
			l.pod(put(with(running("c", "3"), func(p *core.Pod) { p.Labels = nil })))
		}, "", ": 1 of 0 Pods were made"},
		"a lost write": {func(l *ledger) {
			l.pod(put(with(running("a", "1"), func(p *core.Pod) { p.Status.Phase = core.PodPending })))
		}, "was Running and is Pending", "and 1 run"},
		"a Pod that fails": {func(l *ledger) {
			l.pod(put(with(running("a", "1"), func(p *core.Pod) { p.Status.Phase = core.PodFailed })))
		}, "was Running and is Failed", "and 1 run"},
		"a Pod that moves": {func(l *ledger) {
			l.pod(put(with(running("a", "1"), func(p *core.Pod) { p.Spec.NodeName = "n2" })))
		}, "moves from n1", ""},
		"a node that is lost": {func(l *ledger) { l.node(put(node(core.ConditionUnknown))) }, "was ready", ""},
		"a node with a taint": {func(l *ledger) {
			l.node(put(node(core.ConditionTrue, core.Taint{Key: "a"})))
		}, "was ready", ""},
		"a value of another type": {func(l *ledger) { l.pod(put(node(core.ConditionTrue))) }, "it is a", ""},
	} {
		l := newLedger()
		l.order("web", 2)
		l.node(put(node(core.ConditionFalse, core.Taint{Key: "not-ready"})))
		l.node(put(node(core.ConditionTrue)))
		l.pod(put(running("a", "1")))
		l.pod(put(running("b", "2")))
		c.then(l)
		wrong, open := strings.Join(l.wrong, "\n"), l.open()
		if !strings.Contains(wrong, c.wrong) || c.wrong == "" && wrong != "" {
			t.Errorf("%s: the ledger complains of %q, want %q", name, wrong, c.wrong)
		}
		if !strings.Contains(open, c.open) || c.open == "" && open != "" && c.wrong == "" {
			t.Errorf("%s: the ledger has open %q, want %q", name, open, c.open)
		}
	}
}
