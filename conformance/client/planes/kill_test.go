package planes

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/load"
)

var (
	kills = flag.Int("kills", 4, "how often the server is killed")
	slots = flag.Int("planes", 16, "how many planes there are at a time, at most")
	seed  = flag.Uint64("seed", 1, "the seed of what the clients do")
)

func TestMain(m *testing.M) { harness.Main(m) }

const (
	planesPath = "/apis/plinth/v1alpha1/planes"
	clients    = 16        // of planes; another one writes in the first plane
	objects    = 12        // names of objects in a plane: every second one is a Secret, the others are ConfigMaps
	ballast    = 300 << 10 // the size of the object of the first plane, whose writes make checkpoints due
)

// counts are what has happened. A run in which too little has is an error.
type counts struct {
	creates, forks, past, deletes, writes, first int // acknowledged; past are forks of the past
	gone                                         int // forks of a past that was not kept
	// What the kills have left unanswered, and of which it had happened.
	createsInDoubt, forksInDoubt, deletesInDoubt, writesInDoubt     int
	createsHappened, forksHappened, deletesHappened, writesHappened int
	verified, objectsVerified, checkpoints, inspectedPlanes         int
}

// fall is a server that is killed, and the model of what it has.
type fall struct {
	*testing.T
	server *harness.Server
	client *load.Client
	flags  []string // of plinth check

	mu         sync.Mutex
	lives      []*life         // by slot; nil: there is none
	firstPlane *life           // the first plane, of which one object is written
	uids       map[string]bool // of all planes that ever were

	serial  int
	acks    int           // in this round
	enough  int           // how many of them there are before the kill
	reached chan struct{} // closed when acks has reached enough
	killed  bool
	roles   int    // how many ClusterRoles a plane has
	newest  string // the newest checkpoint
	counts
}

// object is an object as it is answered.
type object struct {
	Metadata struct {
		Name, UID, ResourceVersion string
	}
	Spec struct {
		From struct{ Name, ResourceVersion string }
	}
	Status struct {
		URL    string
		Origin struct{ Name, UID, ResourceVersion string }
	}
	Data map[string]string
}

func (o *object) revision() (r int64) {
	_, _ = fmt.Sscan(o.Metadata.ResourceVersion, &r) // 0 is no revision
	return r
}

// known finds which content an object has.
func (o *object) known() (c content, err error) {
	_, err = fmt.Sscan(o.Data["content"], &c.serial, &c.size)
	if err != nil || c.serial == 0 || o.Data["text"] != c.text() {
		return c, fmt.Errorf("%s has %.80q, %.80q", o.Metadata.Name, o.Data["content"], o.Data["text"])
	}
	return c, nil
}

func resourceOf(name string) string {
	if (name[len(name)-1]-'0')%2 == 0 {
		return "configmaps"
	}
	return "secrets"
}

// path is the URL of the objects of a type in a plane; "" is the first one.
func path(plane, resource string) string {
	if plane != "" {
		plane = "/clusters/" + plane
	}
	return plane + "/api/v1/namespaces/default/" + resource
}

// body is an object with a content.
func body(name string, c content) []byte {
	// The values of a Secret are base64 of what they are.
	data, member := map[string]string{"content": fmt.Sprint(c.serial, " ", c.size), "text": c.text()}, "data"
	if resourceOf(name) == "secrets" {
		member = "stringData"
	}
	b, err := json.Marshal(map[string]any{"metadata": map[string]any{"name": name}, member: data})
	if err != nil {
		panic(err)
	}
	return b
}

// errKilled is the error of a request that the kill has left without an answer.
var errKilled = errors.New("killed")

// send sends a request, and returns errKilled if the server was killed meanwhile, or the status of a refusal.
func (f *fall) send(method, path string, body []byte) (o object, status int, err error) {
	answer, err := f.client.Do(f.Context(), load.Request{Method: method, Path: path, Body: body})
	if refused := (*load.StatusError)(nil); errors.As(err, &refused) {
		return o, refused.Code, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if err != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.killed {
			return o, 0, errKilled
		}
		return o, 0, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if method == http.MethodDelete { // the answer may be a Status
		return o, 0, nil
	}
	return o, 0, json.Unmarshal(answer, &o)
}

// acknowledged notes that a request was answered, in the order in which clients hear of it.
func (f *fall) acknowledged(note func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	note()
	if f.acks++; f.acks == f.enough {
		close(f.reached)
	}
}

// run has all clients work until the server is killed.
func (f *fall) run(round int) {
	var working sync.WaitGroup
	failed := make(chan error, clients+1)
	for client := range clients + 1 {
		rng := rand.New(rand.NewPCG(*seed, uint64(round*1000+client)))
		working.Go(func() {
			for {
				err := f.step(rng, client)
				if errors.Is(err, errKilled) {
					return
				}
				if err != nil {
					failed <- err
					return
				}
			}
		})
	}
	select {
	case <-f.reached:
	case err := <-failed:
		f.Error(err)
	}
	f.mu.Lock()
	f.killed = true
	f.mu.Unlock()
	f.server.Kill()
	working.Wait()
	for len(failed) > 0 {
		f.Error(<-failed)
	}
	f.client.Close()
}

// step sends one request of a client. Each client has slots of its own, so that the changes of a plane are in order.
func (f *fall) step(rng *rand.Rand, client int) error {
	if client == clients {
		return f.write(rng, f.firstPlane, ballast)
	}
	slot := client + clients*rng.IntN((*slots-client+clients-1)/clients)
	f.mu.Lock()
	l := f.lives[slot]
	f.mu.Unlock()
	switch {
	case l == nil:
		return f.create(rng, slot)
	case rng.IntN(8) == 0:
		return f.delete(l)
	}
	return f.write(rng, l, 100+rng.IntN(2000))
}

// create creates a plane, or a fork of one that any client has.
func (f *fall) create(rng *rand.Rand, slot int) error {
	l := &life{slot: slot, name: fmt.Sprintf("plane-%d", slot), creating: true}
	from := ""
	f.mu.Lock()
	if there := f.candidates(); len(there) > 0 && rng.IntN(4) > 0 {
		l.origin = there[rng.IntN(len(there))]
		from = fmt.Sprintf(`"from":{"name":%q}`, l.origin.name)
		if known := l.origin.known(); len(known) > 0 && rng.IntN(2) == 0 {
			l.asked = known[max(0, len(known)-1-rng.IntN(4))]
			from = fmt.Sprintf(`"from":{"name":%q,"resourceVersion":"%d"}`, l.origin.name, l.asked)
		}
	}
	f.lives[slot] = l
	f.mu.Unlock()
	o, status, err := f.send(http.MethodPost, planesPath, fmt.Appendf(nil,
		`{"apiVersion":"plinth/v1alpha1","kind":"Plane","metadata":{"name":%q},"spec":{%s}}`, l.name, from))
	f.mu.Lock()
	none := status == http.StatusNotFound || status == http.StatusConflict
	refused := l.origin != nil && (none && l.origin.deletes() || status == http.StatusGone && l.asked > 0)
	if refused {
		f.lives[slot] = nil
		if status == http.StatusGone {
			f.gone++
		}
	}
	f.mu.Unlock()
	if refused {
		return nil
	}
	if err != nil {
		return err
	}
	f.acknowledged(func() {
		l.creating = false
		switch {
		case l.asked > 0:
			f.past++
		case l.origin != nil:
			f.forks++
		default:
			f.creates++
		}
		err = f.adopt(l, &o)
	})
	if err != nil {
		return err
	}
	have, err := f.objects(l.name)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.begin(l, have)
}

// candidates are the planes that can be forked. The caller holds mu.
func (f *fall) candidates() (all []*life) {
	for _, l := range f.lives {
		if l != nil && l.base != nil && !l.deleting && !l.ended {
			all = append(all, l)
		}
	}
	return all
}

// deletes says whether the plane is being deleted, or is. The slot may have another life already.
func (l *life) deletes() bool { return l.deleting || l.ended }

// known are the revisions of the plane that are known.
func (l *life) known() (all []int64) {
	for _, c := range l.history {
		if c.revision != 0 {
			all = append(all, c.revision)
		}
	}
	return all
}

// adopt notes what the object of a plane says. The caller holds mu.
func (f *fall) adopt(l *life, o *object) error {
	l.uid, l.url, l.created = o.Metadata.UID, o.Status.URL, o.revision()
	if l.uid == "" || !strings.HasSuffix(l.url, "/clusters/"+l.name) {
		return fmt.Errorf("%s has the UID %q and the URL %q", l.name, l.uid, l.url)
	}
	if f.uids[l.uid] {
		return fmt.Errorf("%s has the UID of an earlier plane", l.name)
	}
	f.uids[l.uid] = true
	origin := o.Status.Origin
	if l.origin == nil {
		if origin.UID != "" {
			return fmt.Errorf("%s has begun with %+v", l.name, origin)
		}
		return nil
	}
	if _, err := fmt.Sscan(origin.ResourceVersion, &l.at); err != nil || origin.Name != l.origin.name ||
		origin.UID != l.origin.uid || l.asked > 0 && l.at != l.asked {
		return fmt.Errorf("%s has begun with %+v, and not with %s (%s) as of %d", l.name, origin, l.origin.name, l.origin.uid,
			l.asked)
	}
	return nil
}

// begin checks and notes what a plane has begun with. The caller holds mu.
func (f *fall) begin(l *life, have map[string]version) error {
	if err := l.begins(have); err != nil {
		return err
	}
	l.base = have
	return nil
}

// objects lists the objects of a plane.
func (f *fall) objects(plane string) (map[string]version, error) {
	all := map[string]version{}
	for _, resource := range []string{"configmaps", "secrets"} {
		items, err := f.list(path(plane, resource))
		if err != nil {
			return nil, err
		}
		for _, o := range items {
			if !strings.HasPrefix(o.Metadata.Name, "o-") {
				return nil, fmt.Errorf("%s: there is %s", plane, o.Metadata.Name)
			}
			if resource == "secrets" {
				for member, encoded := range o.Data {
					plain, err := base64.StdEncoding.DecodeString(encoded)
					if err != nil {
						return nil, err
					}
					o.Data[member] = string(plain)
				}
			}
			c, err := o.known()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", plane, err)
			}
			all[o.Metadata.Name] = version{c, o.revision()}
		}
	}
	return all, nil
}

func (f *fall) list(path string) ([]object, error) {
	answer, err := f.client.Do(f.Context(), load.Request{Method: http.MethodGet, Path: path})
	if err != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.killed && !errors.As(err, new(*load.StatusError)) {
			return nil, errKilled
		}
		return nil, fmt.Errorf("GET %s: %w", path, err)
	}
	var list struct{ Items []object }
	err = json.Unmarshal(answer, &list)
	return list.Items, err
}

// write creates, replaces or deletes an object.
func (f *fall) write(rng *rand.Rand, l *life, size int) error {
	name := fmt.Sprintf("o-%02d", rng.IntN(objects))
	if l == f.firstPlane {
		name = "o-00"
	}
	f.mu.Lock()
	_, there := l.live()[name]
	f.serial++
	c := change{name, version{content: content{f.serial, size}}}
	method, at := http.MethodPost, path(l.name, resourceOf(name))
	if there {
		method, at = http.MethodPut, at+"/"+name
		if rng.IntN(4) == 0 && l != f.firstPlane {
			method, c.content = http.MethodDelete, content{}
		}
	}
	l.doubt = &c
	f.mu.Unlock()
	var b []byte
	if method != http.MethodDelete {
		b = body(name, c.content)
	}
	o, _, err := f.send(method, at, b)
	if err != nil {
		return err
	}
	f.acknowledged(func() {
		l.doubt = nil
		if method != http.MethodDelete {
			c.revision = o.revision()
		}
		l.history = append(l.history, c)
		if l == f.firstPlane {
			f.first++
		} else {
			f.writes++
		}
	})
	return nil
}

// delete deletes a plane.
func (f *fall) delete(l *life) error {
	f.mu.Lock()
	l.deleting = true
	f.mu.Unlock()
	if _, _, err := f.send(http.MethodDelete, planesPath+"/"+l.name, nil); err != nil {
		return err
	}
	f.acknowledged(func() {
		l.ended = true
		f.lives[l.slot] = nil
		f.deletes++
	})
	return nil
}

// inspect has plinth check look at the files that the kill has left.
func (f *fall) inspect() {
	f.Helper()
	program, err := harness.Program()
	if err != nil {
		f.Fatal(err)
	}
	out, err := exec.CommandContext(f.Context(), program, append([]string{"check", filepath.Join(f.server.Dir(), "data")},
		f.flags...)...).CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("There is no damage.")) {
		f.Errorf("plinth check: %v\n%s", err, out)
	}
	n := 0
	if _, after, ok := bytes.Cut(out, []byte("planes besides the first one: ")); ok {
		if _, err := fmt.Sscan(string(after), &n); err != nil {
			f.Errorf("plinth check says\n%s", out)
		}
	}
	f.inspectedPlanes = n
	f.countCheckpoints()
}

// countCheckpoints counts those that were not there before.
func (f *fall) countCheckpoints() {
	f.Helper()
	found, err := filepath.Glob(filepath.Join(f.server.Dir(), "data", "store", "*.base"))
	if err != nil {
		f.Fatal(err)
	}
	if newest := slices.Max(append(found, "")); newest != f.newest {
		f.newest = newest
		f.checkpoints++
	}
}

// verify compares what the server has after a restart with the model, and decides what was in doubt.
func (f *fall) verify() error {
	list, err := f.list(planesPath)
	if err != nil {
		return err
	}
	there := map[string]*object{}
	for i := range list {
		there[list[i].Metadata.Name] = &list[i]
	}
	if f.inspectedPlanes != len(there) {
		f.Errorf("plinth check has found %d planes, and the server %d", f.inspectedPlanes, len(there))
	}
	for slot, l := range f.lives {
		if l == nil {
			continue
		}
		o := there[l.name]
		if l.creating {
			f.decided(&f.createsInDoubt, &f.createsHappened, l.origin == nil, o != nil)
			f.decided(&f.forksInDoubt, &f.forksHappened, l.origin != nil, o != nil)
			if o == nil {
				f.lives[slot] = nil
				continue
			}
			if err := f.adopt(l, o); err != nil {
				return err
			}
			// Its object may have been written again, with its status.
			l.creating, l.created = false, max(l.at, 1)
		}
		if l.deleting {
			f.decided(&f.deletesInDoubt, &f.deletesHappened, true, o == nil)
			if l.deleting = false; o == nil {
				l.ended = true
				f.lives[slot] = nil
				continue
			}
		}
		if o == nil {
			return fmt.Errorf("the plane %s is lost", l.name)
		}
		if o.Metadata.UID != l.uid || o.Status.URL != l.url {
			return fmt.Errorf("the plane %s has the UID %s, and had %s; its URL is %s, and was %s", l.name, o.Metadata.UID,
				l.uid, o.Status.URL, l.url)
		}
	}
	for name := range there {
		if !slices.ContainsFunc(f.lives, func(l *life) bool { return l != nil && l.name == name }) {
			return fmt.Errorf("there is a plane %s, which was deleted, or never created", name)
		}
	}
	// Origins before their forks: what is in doubt there decides what the fork can have begun with.
	lives := slices.DeleteFunc(slices.Clone(f.lives), func(l *life) bool { return l == nil })
	slices.SortFunc(lives, func(a, b *life) int { return a.depth() - b.depth() })
	have := make([]map[string]version, len(lives))
	if err := load.Each(8, len(lives), func(i int) (err error) {
		if have[i], err = f.objects(lives[i].name); err != nil {
			return err
		}
		return f.whole(lives[i])
	}); err != nil {
		return err
	}
	for i, l := range lives {
		if l.base == nil {
			if err := f.begin(l, have[i]); err != nil {
				return err
			}
		}
		if err := f.compare(l, have[i]); err != nil {
			return err
		}
	}
	first, err := f.objects("")
	if err != nil {
		return err
	}
	return errors.Join(f.compare(f.firstPlane, first), f.absent())
}

func (f *fall) decided(doubts, happened *int, is, has bool) {
	if is {
		*doubts++
	}
	if is && has {
		*happened++
	}
}

// compare compares the objects of a plane with the model.
func (f *fall) compare(l *life, have map[string]version) error {
	doubt := l.doubt != nil
	happened, err := l.decide(have)
	f.decided(&f.writesInDoubt, &f.writesHappened, doubt, happened)
	f.verified++
	f.objectsVerified += len(have)
	return err
}

// depth is the number of planes from which the plane descends.
func (l *life) depth() int {
	if l.origin == nil {
		return 0
	}
	return l.origin.depth() + 1
}

// whole checks that a plane has what every plane has: the namespaces of the system, which are a part of its beginning,
// and the roles, with which all begin.
func (f *fall) whole(l *life) error {
	namespaces, err := f.list("/clusters/" + l.name + "/api/v1/namespaces")
	if err != nil {
		return err
	}
	var names []string
	for _, o := range namespaces {
		names = append(names, o.Metadata.Name)
	}
	if want := []string{"default", "kube-node-lease", "kube-public", "kube-system"}; !slices.Equal(names, want) {
		return fmt.Errorf("%s has the namespaces %v", l.name, names)
	}
	roles, err := f.list("/clusters/" + l.name + "/apis/rbac.authorization.k8s.io/v1/clusterroles")
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.roles == 0 {
		f.roles = len(roles)
	}
	if len(roles) != f.roles || len(roles) < 20 {
		return fmt.Errorf("%s has %d ClusterRoles, another plane %d", l.name, len(roles), f.roles)
	}
	return nil
}

// absent checks that the planes that are not there are not served.
func (f *fall) absent() error {
	for slot, l := range f.lives {
		if l != nil {
			continue
		}
		at := fmt.Sprintf("/clusters/plane-%d/api/v1/namespaces", slot)
		_, err := f.client.Do(f.Context(), load.Request{Method: http.MethodGet, Path: at})
		if refused := (*load.StatusError)(nil); !errors.As(err, &refused) || refused.Code != http.StatusNotFound {
			return fmt.Errorf("GET %s, where no plane is: %v", at, err)
		}
	}
	return nil
}

// encrypted is a configuration by which Secrets are encrypted, bound to their keys.
const encrypted = `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - aesgcm: {keys: [{name: k, secret: MDEyMzQ1Njc4OWFiY2RlZg==}]}
`

// SPEC: BEY-9, STORE-1, STORE-5, STORE-7: kill -9 while planes are created, forked, written and deleted, and while
// checkpoints are written. After the restart all that was acknowledged is there, what was not is there as a whole or
// not at all, forks have exactly what their origins had, and plinth check finds no damage.
func TestKill(t *testing.T) {
	if harness.Target() == harness.Reference || os.Getenv("CONFORMANCE_STORE") == "etcd" ||
		os.Getenv("CONFORMANCE_TARGET") == "plane" { // a plane has no planes
		return
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "encryption.yaml")
	if err := os.WriteFile(config, []byte(encrypted), 0o600); err != nil {
		t.Fatal(err)
	}
	f := &fall{T: t, flags: []string{"--encryption-provider-config", config}, lives: make([]*life, *slots),
		firstPlane: &life{base: map[string]version{}}, uids: map[string]bool{}}
	f.server = harness.Run(t, harness.Options{Kind: harness.Plinth, Dir: filepath.Join(dir, "server"),
		Flags: append([]string{"--planes"}, f.flags...)})
	f.client = load.New(f.server, 1)
	for range 60 { // so that the first kill comes after a checkpoint
		if err := f.write(rand.New(rand.NewPCG(*seed, 0)), f.firstPlane, ballast); err != nil {
			t.Fatal(err)
		}
	}
	f.client.Close()
	for round := 1; round <= *kills; round++ {
		rng := rand.New(rand.NewPCG(*seed, uint64(round)))
		f.client, f.killed, f.acks, f.reached = load.New(f.server, clients+1), false, 0, make(chan struct{})
		if f.enough = *slots + rng.IntN(4**slots); round == 1 {
			f.enough = 6 * *slots // so many that there are planes
		}
		f.run(round)
		if !t.Failed() {
			f.inspect()
		}
		if t.Failed() {
			t.Fatalf("in round %d of the seed %d", round, *seed)
		}
		if err := f.server.Restart(); err != nil {
			t.Fatal(err)
		}
		f.client, f.killed = load.New(f.server, 8), false
		if err := f.verify(); err != nil || t.Failed() {
			t.Fatalf("after kill %d, with the seed %d: %v", round, *seed, err)
		}
		f.client.Close()
	}
	t.Logf("seed %d, %d kills with up to %d planes: %+v", *seed, *kills, *slots, f.counts)
	f.floors()
}

// floors fails if too little has happened for the test to have found anything.
func (f *fall) floors() {
	k := *kills
	inDoubt := f.createsInDoubt + f.forksInDoubt + f.deletesInDoubt + f.writesInDoubt
	happened := f.createsHappened + f.forksHappened + f.deletesHappened + f.writesHappened
	for _, least := range []struct {
		what    string
		is, min int
	}{
		{"planes were created", f.creates, *slots / 2},
		{"planes were forked", f.forks, k * *slots / 20},
		{"planes were forked as of the past", f.past, k * *slots / 40},
		{"planes were deleted", f.deletes, k * *slots / 20},
		{"objects of planes were written", f.writes, k * *slots / 2},
		{"objects of the first plane were written", f.first, k},
		{"requests were in doubt", inDoubt, 4 * k},
		{"requests in doubt had happened", happened, k / 4},
		{"requests in doubt had not happened", inDoubt - happened, k / 4},
		{"planes were compared", f.verified, k * *slots / 2},
		{"objects were compared", f.objectsVerified, k * *slots},
		{"checkpoints were found", f.checkpoints, max(1, k/8)},
	} {
		if least.is < least.min {
			f.Errorf("%d %s, and at least %d should have been", least.is, least.what, least.min)
		}
	}
	if f.gone > f.past {
		f.Errorf("%d forks of the past were refused with 410, and %d were not", f.gone, f.past)
	}
}
