package replicas

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

// change is one change of an object.
type change struct {
	revision        int64
	kind            string // of the watch event: ADDED, MODIFIED, DELETED
	namespace, name string
	uid, state      string // after it, or of what was deleted: the fields of a ConfigMap, the values of a Service
}

func (c change) String() string {
	return fmt.Sprintf("%d %s %s %q (UID %s)", c.revision, c.kind, c.name, c.state, c.uid)
}

// markText matches marks.
var markText = regexp.MustCompile(`<\d+\.\d+>`)

// truth is what a watch of etcd has seen: all ConfigMaps and Services.
type truth struct {
	mu       sync.Mutex
	changes  map[string][]change // of ConfigMaps, by namespace
	exposed  []change            // of Services
	claims   []change            // of IPAddresses, for people who look for the reason of something
	marks    map[string]bool
	revision int64 // up to which the watch of ConfigMaps and that of Services have come
	reached  map[string]int64
	failed   error
}

const (
	configMapsPrefix = "/registry/configmaps/"
	servicesPrefix   = "/registry/services/specs/"
	claimsPrefix     = "/registry/ipaddresses/"
)

// followEtcd begins the watches.
func followEtcd(ctx context.Context, client *clientv3.Client) *truth {
	tr := &truth{changes: map[string][]change{}, marks: map[string]bool{}, reached: map[string]int64{}}
	for _, prefix := range []string{configMapsPrefix, servicesPrefix, claimsPrefix} {
		events := client.Watch(clientv3.WithRequireLeader(ctx), prefix, clientv3.WithPrefix(), clientv3.WithRev(1),
			clientv3.WithPrevKV(), clientv3.WithProgressNotify())
		go tr.follow(ctx, client, prefix, events)
	}
	return tr
}

// follow takes the events of a watch. A watch ends when its member has lost the leader: then the next one goes on.
func (tr *truth) follow(ctx context.Context, client *clientv3.Client, prefix string, events clientv3.WatchChan) {
	for {
		for answer := range events {
			if answer.CompactRevision != 0 {
				tr.fail(fmt.Errorf("etcd has compacted up to %d what the test has not read", answer.CompactRevision))
				return
			}
			if answer.Err() != nil {
				break
			}
			for _, e := range answer.Events {
				if err := tr.take(prefix, e); err != nil {
					tr.fail(err)
					return
				}
			}
			tr.mu.Lock()
			tr.reached[prefix] = max(tr.reached[prefix], answer.Header.Revision)
			tr.mu.Unlock()
		}
		if ctx.Err() != nil {
			return
		}
		tr.mu.Lock()
		from := tr.reached[prefix] + 1
		tr.mu.Unlock()
		events = client.Watch(clientv3.WithRequireLeader(ctx), prefix, clientv3.WithPrefix(), clientv3.WithRev(from),
			clientv3.WithPrevKV(), clientv3.WithProgressNotify())
	}
}

func (tr *truth) fail(err error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.failed = err
}

// take adds an event of etcd.
func (tr *truth) take(prefix string, e *clientv3.Event) error {
	c := change{revision: e.Kv.ModRevision, kind: "MODIFIED"}
	value := e.Kv.Value
	switch {
	case e.Type == clientv3.EventTypeDelete:
		if c.kind = "DELETED"; e.PrevKv == nil {
			return fmt.Errorf("etcd does not say what was deleted at revision %d", c.revision)
		}
		value = e.PrevKv.Value
	case e.IsCreate():
		c.kind = "ADDED"
	}
	decoded, _, err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Decode(value, nil, nil)
	if err != nil {
		return fmt.Errorf("%s: %w", e.Kv.Key, err)
	}
	meta := decoded.(metav1.Object)
	c.namespace, c.name, c.uid = meta.GetNamespace(), meta.GetName(), string(meta.GetUID())
	tr.mu.Lock()
	defer tr.mu.Unlock()
	switch o := decoded.(type) {
	case *corev1.ConfigMap:
		c.state = fieldsText(o.Data)
		tr.changes[c.namespace] = append(tr.changes[c.namespace], c)
		for _, mark := range markText.FindAllString(c.state, -1) {
			tr.marks[mark] = true
		}
	case *networkingv1.IPAddress:
		c.state = fmt.Sprintf("for %+v", o.Spec.ParentRef)
		if ref := o.Spec.ParentRef; ref != nil {
			c.state = "for " + ref.Namespace + "/" + ref.Name
		}
		tr.claims = append(tr.claims, c)
	case *corev1.Service:
		values := []string{"the address " + o.Spec.ClusterIP}
		for _, p := range o.Spec.Ports {
			if p.NodePort != 0 {
				values = append(values, fmt.Sprint("the port ", p.NodePort))
			}
		}
		c.state = strings.Join(values, ", ")
		tr.exposed = append(tr.exposed, c)
	}
	return nil
}

// upTo is the revision up to which all watches have seen everything.
func (tr *truth) upTo() int64 {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return min(tr.reached[configMapsPrefix], tr.reached[servicesPrefix], tr.reached[claimsPrefix])
}

// of are the changes of the ConfigMaps of a namespace.
func (tr *truth) of(namespace string) []change {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return slices.Clone(tr.changes[namespace])
}

func (tr *truth) services() []change {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return slices.Clone(tr.exposed)
}

// export writes what is known of Services and their addresses, for people.
func (tr *truth) export(file string) error {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	all := slices.Concat(tr.exposed, tr.claims)
	slices.SortStableFunc(all, func(a, b change) int { return cmp.Compare(a.revision, b.revision) })
	var lines strings.Builder
	for _, c := range all {
		fmt.Fprintln(&lines, c)
	}
	return os.WriteFile(file, []byte(lines.String()), 0o644)
}

// written says whether a write with this mark was carried out.
func (tr *truth) written(mark string) bool {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.marks[mark]
}

// sweep goes through changes.
type sweep struct {
	changes []change
	next    int
	there   map[string]change
}

// to returns the objects of a namespace at a revision, by name. Revisions rise from call to call.
func (s *sweep) to(revision int64) map[string]change {
	if s.there == nil {
		s.there = map[string]change{}
	}
	for ; s.next < len(s.changes) && s.changes[s.next].revision <= revision; s.next++ {
		c := s.changes[s.next]
		if s.there[c.name] = c; c.kind == "DELETED" {
			delete(s.there, c.name)
		}
	}
	return s.there
}

// snapshot are the objects at one revision.
func snapshot(changes []change, revision int64) map[string]change {
	return (&sweep{changes: changes}).to(revision)
}

// agreed puts together what several watches have seen, of a server without an etcd.
func agreed(all ...[]change) (changes []change, violations []string) {
	at := map[int64]change{}
	for _, some := range all {
		for _, c := range some {
			if other, ok := at[c.revision]; ok && other != c {
				violations = append(violations, fmt.Sprintf("one watch has %s, another one %s", other, c))
			}
			at[c.revision] = c
		}
	}
	for _, c := range at {
		changes = append(changes, c)
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Compare(a.revision, b.revision) })
	return changes, violations
}

// upToEnd is upTo for a revision that is one of ConfigMaps: nothing need have happened to Services since.
func (tr *truth) upToEnd(int64) int64 {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.reached[configMapsPrefix]
}
