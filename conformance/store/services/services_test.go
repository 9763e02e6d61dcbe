package services

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	clientv3 "go.etcd.io/etcd/client/v3"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/reference"
)

func TestMain(m *testing.M) { harness.Main(m) }

// There are few ports, so that writers meet, and many addresses, so that none is given again soon: the reference's
// repair compares two caches, and at times removes the IPAddress that a Service had a moment ago, whose ever it is now.
const (
	firstPort, lastPort = 30000, 30063
	rangesOfAddresses   = "10.0.0.0/16,fd00::/108"
)

// pair is a Plinth and a kube-apiserver on one etcd.
type pair struct {
	*testing.T
	servers []*harness.Server
	clients []kubernetes.Interface
	etcd    *clientv3.Client
	url     string // of etcd
}

// newPair starts an etcd and servers on it.
func newPair(t *testing.T, kinds ...harness.Kind) *pair {
	t.Helper()
	started, err := reference.StartEtcd(context.Background(), reference.EtcdOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { started.Command.Process.Kill(); started.Command.Wait() })
	p := &pair{T: t, url: started.URL}
	if p.etcd, err = clientv3.New(clientv3.Config{Endpoints: []string{started.URL}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.etcd.Close() })
	for _, kind := range kinds {
		p.start(kind, fmt.Sprintf("%d-%d", firstPort, lastPort))
	}
	return p
}

// start starts a server with a range of node ports and further flags, which both kinds of servers understand.
func (p *pair) start(kind harness.Kind, ports string, flags ...string) *harness.Server {
	p.Helper()
	s := harness.Run(p.T, harness.Options{Kind: kind, Etcd: p.url, Flags: append([]string{
		"--service-cluster-ip-range=" + rangesOfAddresses, "--service-node-port-range=" + ports}, flags...)})
	p.servers, p.clients = append(p.servers, s), append(p.clients, nil)
	p.connect(len(p.servers) - 1)
	return s
}

// connect makes the client of a server.
func (p *pair) connect(i int) {
	p.Helper()
	config, err := p.servers[i].Config()
	if err == nil {
		p.clients[i], err = kubernetes.NewForConfig(config)
	}
	if err != nil {
		p.Fatal(err)
	}
}

// values are the addresses and node ports of a Service.
func values(s *corev1.Service) (all []string) {
	for _, ip := range s.Spec.ClusterIPs {
		if ip != corev1.ClusterIPNone {
			all = append(all, ip)
		}
	}
	ports := []int32{s.Spec.HealthCheckNodePort}
	for _, port := range s.Spec.Ports {
		ports = append(ports, port.NodePort)
	}
	for _, port := range ports {
		if text := fmt.Sprint("port ", port); port != 0 && !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return all
}

// ledger follows all Services in the order in which they change, and notes each moment at which two have the same
// value.
type ledger struct {
	holder map[string]string
	has    map[string][]string
	twice  []string
}

func (l *ledger) follow(events <-chan watch.Event, until func(*corev1.Service) bool) error {
	for e := range events {
		s, ok := e.Object.(*corev1.Service)
		if !ok {
			return fmt.Errorf("the watch ends with %v", e.Object)
		}
		name := s.Namespace + "/" + s.Name
		for _, value := range l.has[name] {
			if l.holder[value] == name {
				delete(l.holder, value)
			}
		}
		if delete(l.has, name); e.Type != watch.Deleted {
			l.has[name] = values(s)
			for _, value := range l.has[name] {
				if other := l.holder[value]; other != "" {
					l.twice = append(l.twice, fmt.Sprintf("at %s %s of %s is that of %s, too", s.ResourceVersion, value, name, other))
				}
				l.holder[value] = name
			}
		}
		if until(s) {
			return nil
		}
	}
	return errors.New("the watch has ended early")
}

// writer creates, changes and deletes Services of its own, through both servers.
type writer struct {
	*pair
	id  int
	rng *rand.Rand
	// Refusals that a busy range explains, and everything that was written.
	refused, written int
}

// shape gives a new Service a random type, with explicit values at times.
func (w *writer) shape(spec *corev1.ServiceSpec) {
	kinds := []corev1.ServiceType{corev1.ServiceTypeExternalName, corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort,
		corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer}
	*spec = corev1.ServiceSpec{Type: kinds[w.rng.IntN(len(kinds))], Selector: map[string]string{"a": "b"},
		Ports: []corev1.ServicePort{{Name: "a", Port: 80, Protocol: corev1.ProtocolTCP}}}
	if spec.Type == corev1.ServiceTypeExternalName {
		spec.ExternalName = "example.com"
		return
	}
	if w.rng.IntN(2) == 0 {
		// Not port 80 for UDP: it would have the same node port, which the reference releases once for each protocol; after
		// the first time it may be given to another Service.
		spec.Ports = append(spec.Ports, corev1.ServicePort{Name: "b", Port: 81, Protocol: corev1.ProtocolUDP})
	}
	if spec.Type != corev1.ServiceTypeClusterIP && w.rng.IntN(4) == 0 {
		spec.Ports[0].NodePort = firstPort + w.rng.Int32N(8)
	}
	if spec.Type == corev1.ServiceTypeLoadBalancer && w.rng.IntN(2) == 0 {
		spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}
	spec.IPFamilyPolicy = policy(corev1.IPFamilyPolicySingleStack, corev1.IPFamilyPolicyPreferDualStack,
		corev1.IPFamilyPolicyRequireDualStack)[w.rng.IntN(3)]
	if w.rng.IntN(6) == 0 {
		spec.ClusterIP = fmt.Sprint("10.0.1.", w.rng.IntN(200))
	}
}

func policy(all ...corev1.IPFamilyPolicy) (pointers []*corev1.IPFamilyPolicy) {
	for i := range all {
		pointers = append(pointers, &all[i])
	}
	return pointers
}

// grow gives a Service another type, or more ports or addresses. What it has it keeps.
func (w *writer) grow(s *corev1.Service) {
	spec := &s.Spec
	switch spec.Type {
	case corev1.ServiceTypeExternalName:
		w.shape(spec)
	case corev1.ServiceTypeClusterIP:
		spec.Type = corev1.ServiceTypeNodePort
	case corev1.ServiceTypeNodePort:
		spec.Type = corev1.ServiceTypeLoadBalancer
		spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	default:
		spec.Ports = append(spec.Ports, corev1.ServicePort{Name: fmt.Sprint("c", len(spec.Ports)),
			Port: 82 + int32(len(spec.Ports)), Protocol: corev1.ProtocolTCP})
	}
	// The reference's repair takes an IPAddress that is of the same second as its Service for a wrong one.
	if len(spec.ClusterIPs) == 1 && time.Since(s.CreationTimestamp.Time) > 2*time.Second {
		spec.IPFamilyPolicy = policy(corev1.IPFamilyPolicyRequireDualStack)[0]
	}
}

// shrink gives a Service a type with less, or takes ports or an address from it.
func (w *writer) shrink(s *corev1.Service) {
	spec := &s.Spec
	noPorts := func() {
		for i := range spec.Ports {
			spec.Ports[i].NodePort = 0
		}
		spec.ExternalTrafficPolicy, spec.HealthCheckNodePort = "", 0
		spec.AllocateLoadBalancerNodePorts = nil
	}
	switch {
	case spec.Type == corev1.ServiceTypeExternalName:
		w.shape(spec)
	case len(spec.ClusterIPs) == 2 && w.rng.IntN(2) == 0:
		spec.ClusterIPs, spec.IPFamilies = spec.ClusterIPs[:1], spec.IPFamilies[:1]
		spec.IPFamilyPolicy = policy(corev1.IPFamilyPolicySingleStack)[0]
	case len(spec.Ports) > 1 && w.rng.IntN(2) == 0:
		spec.Ports = spec.Ports[:1]
	case spec.HealthCheckNodePort != 0 && w.rng.IntN(2) == 0:
		spec.ExternalTrafficPolicy, spec.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyCluster, 0
	case spec.Type != corev1.ServiceTypeClusterIP:
		noPorts()
		spec.Type = corev1.ServiceTypeClusterIP
	default:
		*spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"}
	}
}

// step makes one write, and returns an error that no other writer explains.
//
// Only Plinth takes values from a Service that stays: the reference releases them before it writes the Service
// (registry.Store.Update calls what BeginUpdate returned inside of the update), so others may get what the Service
// still has.
func (w *writer) step(ctx context.Context, names map[string]bool) error {
	through := w.rng.IntN(2)
	services := w.clients[through].CoreV1().Services("default")
	name := fmt.Sprintf("s%d-%d", w.id, w.rng.IntN(6))
	var err error
	switch {
	case !names[name]:
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}}
		w.shape(&s.Spec)
		if _, err = services.Create(ctx, s, metav1.CreateOptions{}); err == nil {
			names[name] = true
		}
	case w.rng.IntN(3) == 0:
		if err = services.Delete(ctx, name, metav1.DeleteOptions{}); err == nil {
			delete(names, name)
		}
	default:
		var s *corev1.Service
		if s, err = services.Get(ctx, name, metav1.GetOptions{}); err == nil {
			if w.grow(s); through == 0 && w.rng.IntN(2) == 0 {
				s, err = services.Get(ctx, name, metav1.GetOptions{})
				w.shrink(s)
			}
		}
		if err == nil {
			_, err = services.Update(ctx, s, metav1.UpdateOptions{})
		}
	}
	switch {
	case err == nil:
		w.written++
	case strings.Contains(err.Error(), "already allocated"), strings.Contains(err.Error(), "range is full"):
		w.refused++
		err = nil
	}
	return err
}

// logged returns the lines of a server's log that match, from an offset on, and the end of the log.
func (p *pair) logged(s *harness.Server, from int64, what *regexp.Regexp) (found []string, end int64) {
	p.Helper()
	text, err := os.ReadFile(s.LogFile())
	if err != nil {
		p.Fatal(err)
	}
	for line := range strings.Lines(string(text[from:])) {
		if what.MatchString(line) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found, int64(len(text))
}

// What the repair controllers of the reference complain about: both of them, and the one of ports.
var (
	complaints     = regexp.MustCompile(`^E.* (repair|repairip)\.go:\d+\]`)
	portComplaints = regexp.MustCompile(`^E.* repair\.go:\d+\]`)
)

// empty deletes the Services, through all servers.
func (p *pair) empty(ctx context.Context) {
	p.Helper()
	list, err := p.clients[0].CoreV1().Services("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		p.Fatal(err)
	}
	for i, s := range list.Items {
		if s.Name == "kubernetes" {
			continue
		}
		client := p.clients[i%len(p.clients)].CoreV1().Services("default")
		if err := client.Delete(ctx, s.Name, metav1.DeleteOptions{}); err != nil {
			p.Error(err)
		}
	}
}

// settled waits until the bitmap and the IPAddresses are those of the Services, and returns how many these are. Ports
// have to be so at once. An IPAddress that the reference has made for a Service which was just deleted (its repair had
// not seen that) is left for a minute.
func (p *pair) settled(ctx context.Context) (services int) {
	p.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Second) {
		has, ports, ips, named := p.reserved(ctx)
		if got := p.bitmap(ctx); !slices.Equal(got, ports) {
			p.Errorf("in the bitmap are %q, and Services have %q", got, ports)
		}
		for _, ip := range ips {
			if !slices.Contains(named, ip) {
				p.Logf("%s has no IPAddress yet", ip)
			}
		}
		switch {
		case slices.Equal(ips, named):
			return has
		case time.Now().After(deadline):
			p.Errorf("there are the IPAddresses %q, and Services have %q", named, ips)
			return has
		}
	}
}

// reserved returns the number of Services, their ports and addresses, and the IPAddresses.
func (p *pair) reserved(ctx context.Context) (services int, ports, ips, named []string) {
	p.Helper()
	list, err := p.clients[0].CoreV1().Services("").List(ctx, metav1.ListOptions{})
	if err != nil {
		p.Fatal(err)
	}
	for i := range list.Items {
		for _, value := range values(&list.Items[i]) {
			if strings.HasPrefix(value, "port") {
				ports = append(ports, value)
			} else {
				ips = append(ips, netip.MustParseAddr(value).String())
			}
		}
	}
	found, err := p.clients[0].NetworkingV1().IPAddresses().List(ctx, metav1.ListOptions{})
	if err != nil {
		p.Fatal(err)
	}
	for i := range found.Items {
		named = append(named, found.Items[i].Name)
	}
	for _, list := range [][]string{ports, ips, named} {
		slices.Sort(list)
	}
	return len(list.Items), ports, ips, named
}

// bitmapKey is the key of the bitmap of node ports.
const bitmapKey = "/registry/ranges/servicenodeports"

// stored reads an object from etcd, as the reference decodes it.
func (p *pair) stored(ctx context.Context, key string) runtime.Object {
	p.Helper()
	answer, err := p.etcd.Get(ctx, key)
	if err != nil || len(answer.Kvs) != 1 {
		p.Fatalf("%s: %d keys, %v", key, len(answer.Kvs), err)
	}
	obj, err := runtime.Decode(scheme.Codecs.UniversalDeserializer(), answer.Kvs[0].Value)
	if err != nil {
		p.Fatal(err)
	}
	return obj
}

// bitmap reads the ports that are reserved.
func (p *pair) bitmap(ctx context.Context) (ports []string) {
	p.Helper()
	r := p.stored(ctx, bitmapKey).(*corev1.RangeAllocation)
	first, bits := 0, new(big.Int).SetBytes(r.Data)
	if _, err := fmt.Sscanf(r.Range, "%d-", &first); err != nil {
		p.Fatal(err)
	}
	for i := range bits.BitLen() {
		if bits.Bit(i) == 1 {
			ports = append(ports, fmt.Sprint("port ", first+i))
		}
	}
	return ports
}

// Many writers create, change and delete Services of all types through both servers. At no revision do two Services
// have an address or a port in common; afterwards what is reserved is what Services have; and the reference's repair,
// which has run all the while and starts again at the end, has found nothing wrong.
//
// SPEC: STORE-2, STORE-3
func TestServicesThroughBothServers(t *testing.T) {
	if !harness.WantReference() {
		t.Skip("CONFORMANCE_REFERENCE is not set")
	}
	p := newPair(t, harness.Plinth, harness.Reference)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	l := &ledger{holder: map[string]string{}, has: map[string][]string{}}
	changes, err := p.clients[0].CoreV1().Services("").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	followed := make(chan error, 1)
	go func() {
		followed <- l.follow(changes.ResultChan(), func(s *corev1.Service) bool { return s.Name == "the-end" })
	}()

	const writers, steps = 8, 120
	var work sync.WaitGroup
	all := make([]*writer, writers)
	for i := range all {
		w := &writer{pair: p, id: i, rng: rand.New(rand.NewPCG(uint64(i), 26))}
		all[i] = w
		work.Go(func() {
			names := map[string]bool{}
			for range steps {
				if err := w.step(ctx, names); err != nil {
					t.Errorf("writer %d: %v", i, err)
				}
			}
		})
	}
	work.Wait()
	written, refused := 0, 0
	for _, w := range all {
		written, refused = written+w.written, refused+w.refused
	}
	end := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "the-end"}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"}}
	if _, err := p.clients[1].CoreV1().Services("default").Create(ctx, end, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := <-followed; err != nil {
		t.Error(err)
	}
	for _, twice := range l.twice {
		t.Error(twice)
	}
	n := p.settled(ctx)
	found, log := p.logged(p.servers[1], 0, complaints)
	t.Logf("%d writes, %d refused; %d Services are left; %d times the reference has missed an IPAddress that came or went",
		written, refused, n, len(found))
	if written < writers*steps/2 {
		t.Errorf("%d of %d writes", written, writers*steps)
	}
	ports, _ := p.logged(p.servers[1], 0, portComplaints)
	// Its start repairs before it is ready.
	if err := p.servers[1].Restart(); err != nil {
		t.Fatal(err)
	}
	p.connect(1)
	found, _ = p.logged(p.servers[1], log, complaints)
	for _, line := range append(ports, found...) {
		t.Error(line)
	}

	p.empty(ctx)
	if n := p.settled(ctx); n != 1 {
		t.Errorf("%d Services are left", n)
	}
}
