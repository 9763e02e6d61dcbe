package httpapi

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"plinth/internal/features"
)

// half is a selector of one half of the hashes of a field.
func half(field string, upper bool) string {
	if upper {
		return "shardRange(" + field + ", '0x8000000000000000', '0x10000000000000000')"
	}
	return "shardRange(" + field + ", '0x0000000000000000', '0x8000000000000000')"
}

// isUpper says whether a value belongs to the upper half.
func isUpper(value string) bool {
	h := fnv.New64a()
	h.Write([]byte(value))
	return h.Sum64()>>63 == 1
}

type shardedList struct {
	Metadata struct {
		Continue           string
		RemainingItemCount *int
		ShardInfo          *struct{ Selector string }
	}
	Items []struct {
		Metadata struct{ Name, Namespace, UID string }
	}
}

func (s *server) shard(path string, values url.Values) (l shardedList) {
	s.t.Helper()
	got := s.do("GET", path+"?"+values.Encode(), "")
	if err := json.Unmarshal([]byte(got.body), &l); err != nil || got.code != 200 {
		s.t.Fatalf("%s %v: %d %s", path, values, got.code, got.body)
	}
	return l
}

func sharded(c *Config) { c.Features = c.Features.With(features.ShardedListAndWatch, true) }

// Lists are divided by the UID and by the namespace, on every URL of a type and in every version of it, whole and in
// pages. Each list contains its selector (shardInfo).
//
// SPEC: LIST-9, LIST-4
func TestShardedLists(t *testing.T) {
	s := newServer(t, sharded)
	var names []string
	for i := range 12 {
		namespace := fmt.Sprint("ns", i)
		s.create("/api/v1/namespaces", `{"metadata":{"name":"`+namespace+`"}}`)
		s.create("/apis/autoscaling/v2/namespaces/"+namespace+"/horizontalpodautoscalers",
			`{"metadata":{"name":"a"},"spec":{"maxReplicas":3,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"x"}}}`)
		names = append(names, namespace)
	}
	for _, path := range []string{"/apis/autoscaling/v2/horizontalpodautoscalers",
		"/apis/autoscaling/v1/horizontalpodautoscalers", "/api/v1/namespaces"} {
		for _, field := range []string{"object.metadata.uid", "object.metadata.namespace"} {
			for _, limit := range []string{"", "2"} {
				found := map[string]int{}
				for _, upper := range []bool{false, true} {
					values := url.Values{"shardSelector": {half(field, upper)}, "limit": {limit}}
					if limit == "" {
						values.Del("limit")
					}
					for {
						l := s.shard(path, values)
						if l.Metadata.ShardInfo == nil || l.Metadata.ShardInfo.Selector != half(field, upper) {
							t.Errorf("%s %v: shardInfo %v", path, values, l.Metadata.ShardInfo)
						}
						if l.Metadata.RemainingItemCount != nil {
							t.Errorf("%s %v: a part of the collection has a remainingItemCount", path, values)
						}
						for _, item := range l.Items {
							m := item.Metadata
							value := m.UID
							if strings.HasSuffix(field, "namespace") {
								value = m.Namespace
							}
							if isUpper(value) != upper {
								t.Errorf("%s %v: %s/%s is in the wrong shard", path, values, m.Namespace, m.Name)
							}
							found[m.Namespace+m.Name]++
						}
						if l.Metadata.Continue == "" {
							break
						}
						values.Set("continue", l.Metadata.Continue)
					}
				}
				for _, name := range names {
					if n := found[name] + found[name+"a"]; n != 1 {
						t.Errorf("%s by %s, limit %q: the object of %s is in %d shards", path, field, limit, name, n)
					}
				}
			}
		}
	}
	table := s.do("GET", "/api/v1/namespaces?shardSelector="+url.QueryEscape(half("object.metadata.uid", true)), "",
		"Accept", "application/json;as=Table;g=meta.k8s.io;v=v1")
	if table.code != 200 || strings.Contains(table.body, "shardInfo") {
		t.Errorf("Table: %d %s", table.code, table.body)
	}
}

// SPEC: LIST-9, DEL-4
func TestShardedDeletes(t *testing.T) {
	s := newServer(t, sharded)
	for i := range 20 {
		s.create(configMaps, `{"metadata":{"name":"c`+strconv.Itoa(i)+`"}}`)
	}
	got := s.do("DELETE", configMaps+"?shardSelector="+url.QueryEscape(half("object.metadata.uid", true)), "")
	if got.code != 200 {
		t.Fatalf("%d %s", got.code, got.body)
	}
	left := s.shard(configMaps, nil)
	if len(left.Items) == 0 || len(left.Items) == 20 {
		t.Errorf("%d of 20 are left", len(left.Items))
	}
	for _, item := range left.Items {
		if isUpper(item.Metadata.UID) {
			t.Errorf("%s is left", item.Metadata.Name)
		}
	}
}

// Each event of a collection is in exactly one of the watches that divide it.
//
// SPEC: LIST-9, WATCH-1
func TestShardedWatches(t *testing.T) { inBubble(t, sharded, testShardedWatches) }

func testShardedWatches(t *testing.T, s *server) {
	uids := map[string]string{}
	for i := range 30 { // enough that both halves have some
		name := "c" + strconv.Itoa(i)
		uids[name] = s.create(configMaps, `{"metadata":{"name":"`+name+`"}}`).At("metadata", "uid").Str()
	}
	watch := func(upper bool) func() (event, bool) {
		return s.watch("timeoutSeconds=2&shardSelector=" + url.QueryEscape(half("object.metadata.uid", upper)))
	}
	lower, upper := watch(false), watch(true)
	for name := range uids {
		s.do("PATCH", configMaps+"/"+name, `{"data":{"a":"b"}}`, "Content-Type", "application/merge-patch+json")
		s.do("DELETE", configMaps+"/"+name, "")
	}
	for is, next := range map[bool]func() (event, bool){false: lower, true: upper} {
		var want []string
		for name, uid := range uids {
			if isUpper(uid) == is {
				want = append(want, "ADDED "+name, "MODIFIED "+name, "DELETED "+name)
			}
		}
		got := strings.Split(rest(next), ", ")
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("upper %v: events %s\nwant %s", is, got, want)
		}
	}
}

// Without its gate the parameter is ignored, as in the reference; with it, an invalid selector is refused.
//
// SPEC: LIST-9
func TestShardSelectorsThatAreNone(t *testing.T) {
	selector := "shardSelector=" + url.QueryEscape(half("object.metadata.name", true))
	s := newServer(t, sharded)
	s.create(configMaps, `{"metadata":{"name":"a"}}`)
	for _, query := range []string{"", "watch=1&timeoutSeconds=1&"} {
		got := s.do("GET", configMaps+"?"+query+selector, "")
		if want := `invalid shard selector: unsupported field path "object.metadata.name"; supported: object.metadata.uid, object.metadata.namespace`; got.code != 400 || got.message() != want {
			t.Errorf("%s: %d %s", query, got.code, got.message())
		}
	}
	if l := s.shard(configMaps, url.Values{"shardSelector": {""}}); len(l.Items) != 1 || l.Metadata.ShardInfo != nil {
		t.Errorf("an empty parameter: %+v", l)
	}
	s = newServer(t, nil)
	s.create(configMaps, `{"metadata":{"name":"a"}}`)
	if l := s.shard(configMaps, url.Values{"shardSelector": {half("object.metadata.name", true)}}); len(l.Items) != 1 ||
		l.Metadata.ShardInfo != nil {
		t.Errorf("without the gate: %+v", l)
	}
}
