package etcd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"plinth/conformance/internal/reference"
	"plinth/internal/store"
	"plinth/internal/store/etcd"
)

// bitmap is the key whose value has the bits of the tests: their names, sorted, with a comma behind each.
var bitmap = store.Key{Resource: "bitmap", Name: "b"}

func names(data []byte) ([]string, error) {
	if !strings.HasPrefix(string(data), "bits ") {
		return nil, errors.New("no bitmap")
	}
	return strings.FieldsFunc(string(data[5:]), func(r rune) bool { return r == ',' }), nil
}

func printNames(all []string) []byte {
	slices.Sort(all)
	return []byte("bits " + strings.Join(all, ","))
}

// bits makes the keys of "bit" bits of the bitmap.
func bits(c *etcd.Config) {
	c.Bits = &etcd.Bits{Resource: "bit", Whole: bitmap, Names: names,
		Change: func(data []byte, set, cleared []string) ([]byte, error) {
			all, err := names(data)
			if err != nil {
				return nil, err
			}
			for _, name := range set {
				if slices.Contains(all, name) {
					return nil, fmt.Errorf("%s is set", name)
				}
				all = append(all, name)
			}
			all = slices.DeleteFunc(all, func(name string) bool { return slices.Contains(cleared, name) })
			return printNames(all), nil
		}}
}

// open opens a store whose keys of "bit" are bits.
func open(t *testing.T, url string, configure ...func(*store.Config)) *store.Store {
	t.Helper()
	c := store.Config{Describe: func(store.Key, []byte) *store.Sidecar { return &store.Sidecar{} }}
	for _, f := range configure {
		f(&c)
	}
	s, err := connect(t, url, bits).Open(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func bit(i int) store.Key { return store.Key{Resource: "bit", Name: strconv.Itoa(i)} }

func bitHolder(name string) store.Key { return store.Key{Resource: "holder", Name: name} }

// put writes the bitmap as a whole, whatever it is now.
func put(t *testing.T, s *store.Store, value []byte) {
	t.Helper()
	whole := store.Change{Key: bitmap, Data: value, Sidecar: &store.Sidecar{}}
	if _, err := s.Commit(t.Context(), nil, []store.Change{whole}); err != nil {
		t.Fatal(err)
	}
}

// live are the names of the bits that a state has, sorted.
func live(t *testing.T, s *store.State) []string {
	t.Helper()
	sn, err := s.Snapshot(0)
	if err != nil {
		t.Fatal(err)
	}
	all := []string{}
	sn.Ascend("bit", "", "", func(v *store.Version) bool {
		if v.Len() != 0 || v.Data() == nil {
			t.Errorf("%s has the bytes %q", v.Key, v.Data())
		}
		all = append(all, v.Key.Name)
		return true
	})
	return all
}

func wantsLive(t *testing.T, s *store.Store, want ...string) {
	t.Helper()
	if _, err := s.Fresh(t.Context(), store.Key{}, true); err != nil {
		t.Fatal(err)
	}
	if got := live(t, s.State); !slices.Equal(got, want) {
		t.Errorf("live are %q, want %q", got, want)
	}
}

// takes commits a holder with these bits.
func takes(t *testing.T, s *store.Store, name string, numbers ...int) error {
	t.Helper()
	pre := []store.Precondition{store.Absent(bitHolder(name))}
	changes := []store.Change{{Key: bitHolder(name), Data: []byte("x")}}
	for _, i := range numbers {
		pre = append(pre, store.Absent(bit(i)))
		changes = append(changes, store.Change{Key: bit(i), Data: []byte(name)})
	}
	_, err := s.Commit(t.Context(), pre, changes)
	return err
}

// gives commits the removal of a holder and of its bits.
func gives(t *testing.T, s *store.Store, name string, numbers ...int) error {
	t.Helper()
	var pre []store.Precondition
	var changes []store.Change
	for _, k := range append([]store.Key{bitHolder(name)}, keysOf(numbers)...) {
		v, ok := s.Get(k)
		if !ok {
			return fmt.Errorf("%s is not there", k)
		}
		pre, changes = append(pre, store.At(v)), append(changes, store.Change{Key: k})
	}
	_, err := s.Commit(t.Context(), pre, changes)
	return err
}

func keysOf(numbers []int) (keys []store.Key) {
	for _, i := range numbers {
		keys = append(keys, bit(i))
	}
	return keys
}

// Keys that are bits of one key of etcd are keys of the state like any others: in two processes, after a restart, and
// in the history.
//
// SPEC: STORE-2, STORE-3
func TestBits(t *testing.T) {
	url := startEtcd(t, reference.EtcdOptions{}).URL
	s, other := open(t, url), open(t, url)
	if err := takes(t, s, "early", 1); err == nil || errors.As(err, new(*store.ConflictError)) {
		t.Errorf("without a bitmap a bit is set: %v", err)
	}
	put(t, s, printNames([]string{"9"}))
	start := s.Revision()
	if err := takes(t, s, "a", 1, 2); err != nil {
		t.Fatal(err)
	}
	wantsLive(t, s, "1", "2", "9")
	wantsLive(t, other, "1", "2", "9")
	conflict := (*store.ConflictError)(nil)
	if err := takes(t, other, "b", 3, 2); !errors.As(err, &conflict) || conflict.Key != bit(2) {
		t.Errorf("a bit that is set is set again: %v", err)
	}
	if err := takes(t, other, "b", 3, 4); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(t.Context(), []store.Precondition{store.Absent(bit(5))},
		[]store.Change{{Key: bit(5), Data: []byte("x")}}); err == nil {
		t.Error("a bit is set alone")
	}
	wantsLive(t, s, "1", "2", "3", "4", "9")
	if err := gives(t, s, "a", 1, 2); err != nil {
		t.Fatal(err)
	}
	wantsLive(t, other, "3", "4", "9")
	// A value that is no bitmap has no bits, and none can be set; the other keys do not suffer.
	put(t, other, []byte("nonsense"))
	wantsLive(t, s)
	if err := takes(t, s, "c", 7); err == nil || errors.As(err, &conflict) {
		t.Errorf("a bit is set in nonsense: %v", err)
	}
	if err := takes(t, s, "d"); err != nil {
		t.Fatal(err)
	}
	put(t, s, printNames([]string{"3", "8"}))
	wantsLive(t, other, "3", "8")
	again := open(t, url)
	wantsLive(t, again, "3", "8")

	want := []string{"+1", "+2", "+3", "+4", "-1", "-2", "-3", "-4", "-9", "+3", "+8"}
	for what, x := range map[string]*store.Store{"that made them": s, "that saw them": other, "that came later": again} {
		if got := changesOf(t, x, start, len(want)); !slices.Equal(got, want) {
			t.Errorf("the changes in the store %s are %q, want %q", what, got, want)
		}
	}
}

// changesOf reads so many changes of bits from the history of a store.
func changesOf(t *testing.T, s *store.Store, after int64, n int) (all []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	cursor, err := s.Watch(t.Context(), "bit", "", after)
	if err != nil {
		t.Fatal(err)
	}
	defer cursor.Close()
	for len(all) < n {
		records, err := cursor.Next(ctx)
		if err != nil {
			t.Fatalf("after %q: %v", all, err)
		}
		for _, r := range records {
			switch {
			case r.Old == nil:
				all = append(all, "+"+r.Key.Name)
			case r.New == nil:
				all = append(all, "-"+r.Key.Name)
			}
		}
	}
	return all
}

// Many writers in two processes, and one that writes the bitmap itself as a kube-apiserver does, never get the same
// bit, and leave none behind.
//
// SPEC: STORE-2
func TestBitsOfManyWriters(t *testing.T) {
	url := startEtcd(t, reference.EtcdOptions{}).URL
	const range_, each = 24, 60
	s := []*store.Store{open(t, url), open(t, url)}
	put(t, s[0], printNames(nil))
	var mu sync.Mutex
	owner := map[int]string{}
	own := func(who string, numbers []int, held bool) {
		mu.Lock()
		defer mu.Unlock()
		for _, i := range numbers {
			if held && owner[i] != "" {
				t.Errorf("%d is of %s and of %s", i, owner[i], who)
			}
			if owner[i] = who; !held {
				owner[i] = ""
			}
		}
	}
	var work sync.WaitGroup
	for w := range 6 {
		work.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 7))
			for n := range each {
				name, x := fmt.Sprintf("%d-%d", w, n), s[(w+n)%2]
				numbers := []int{rng.IntN(range_), range_ + rng.IntN(range_)}[:1+rng.IntN(2)]
				err := takes(t, x, name, numbers...)
				if errors.As(err, new(*store.ConflictError)) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				own(name, numbers, true)
				own(name, numbers, false)
				if err := gives(t, x, name, numbers...); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	client := clientOf(t, url)
	work.Go(func() { foreignBits(t, client, own) })
	work.Wait()
	wantsLive(t, s[0])
	wantsLive(t, s[1])
}

// clientOf is a client of etcd.
func clientOf(t *testing.T, url string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{url}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// foreignBits sets and clears bits by comparing and writing the bitmap, one key in each transaction.
func foreignBits(t *testing.T, client *clientv3.Client, own func(who string, numbers []int, held bool)) {
	const key, head = "/registry/bitmap/b", "\x00\x00\x00\x00\x00\x00\x00\x00"
	change := func(i int, set bool) (done bool) {
		for {
			got, err := client.Get(t.Context(), key)
			if err != nil || len(got.Kvs) != 1 {
				t.Error(err)
				return false
			}
			all, err := names(got.Kvs[0].Value[8:])
			if err != nil {
				t.Error(err)
				return false
			}
			name := strconv.Itoa(i)
			if slices.Contains(all, name) == set {
				return false
			}
			if set {
				all = append(all, name)
			} else {
				all = slices.DeleteFunc(all, func(other string) bool { return other == name })
			}
			answer, err := client.Txn(t.Context()).If(clientv3.Compare(clientv3.ModRevision(key), "=", got.Kvs[0].ModRevision)).
				Then(clientv3.OpPut(key, head+string(printNames(all)))).Commit()
			if err != nil {
				t.Error(err)
				return false
			}
			if answer.Succeeded {
				return true
			}
		}
	}
	rng := rand.New(rand.NewPCG(99, 7))
	for range 100 {
		i := rng.IntN(24)
		if change(i, true) {
			own("foreign", []int{i}, true)
			own("foreign", []int{i}, false)
			if !change(i, false) {
				t.Errorf("%d was cleared by another writer", i)
			}
		}
	}
}
