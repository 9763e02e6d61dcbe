package replicas

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// stay is the time in which something certainly was there: from the answer to its creation, until its deletion was
// sent.
type stay struct {
	what, of   string // a name, and what it takes a place of
	from, till int64
}

// checkRoom checks that never more than limit of the stays in one place overlap.
func checkRoom(stays []stay, limit int) (violations []string) {
	places := map[string][]stay{}
	for _, s := range stays {
		if s.from <= s.till {
			places[s.of] = append(places[s.of], s)
		}
	}
	for place, all := range places {
		slices.SortFunc(all, func(a, b stay) int { return cmp.Compare(a.from, b.from) })
		var there []stay
		for _, s := range all {
			there = slices.DeleteFunc(there, func(o stay) bool { return o.till < s.from })
			there = append(there, s)
			if len(there) <= limit {
				continue
			}
			var lines strings.Builder
			for _, o := range there {
				fmt.Fprintf(&lines, "\n  %s from %s to %s", o.what, time.Duration(o.from), time.Duration(o.till))
			}
			violations = append(violations, fmt.Sprintf("%d have %s, of which there are %d:%s", len(there), place, limit,
				&lines))
			break
		}
	}
	return violations
}

// room is the limit of the quota.
const room = 8

// quotas are objects that several ResourceQuotas count, of which one is narrow. etcd takes one of them in the
// transaction of the object; which one that is, is up to the server.
func quotas() *workload {
	var held stays
	w := &workload{name: "quotas"}
	w.prepare = func(c *client) error {
		for name, hard := range map[string]int{"a-wide": 10 * room, "narrow": room, "z-wide": 10 * room} {
			if err := c.insist(func() bool { return c.makeQuota(name, hard) }); err != nil {
				return err
			}
		}
		return nil
	}
	w.step = func(c *client, w *workload) {
		names := w.names()
		switch n := c.rand.Intn(10); {
		case n == 0:
			a := c.send(http.MethodGet, configMaps(w.name), "", nil)
			w.count(a)
			if a.outcome == done {
				held.listed(len(a.body.items()), a)
				for _, i := range a.body.items() {
					w.know(i.name(), object{}) // also one of whose creation it was not known
				}
			}
		case n < 6 || len(names) == 0:
			mark := c.mark()
			name := "q" + strings.ReplaceAll(strings.Trim(mark, "<>"), ".", "-")
			a := c.send(http.MethodPost, configMaps(w.name), plainJSON, configMap(name, map[string]string{"v": mark}))
			w.count(a)
			if a.outcome != refused {
				w.know(name, object{}) // it is deleted some time, if it is there
			}
			if a.outcome == done {
				held.begin(stay{what: name, of: "the quota", from: a.back})
			}
		default:
			name := names[c.rand.Intn(len(names))]
			held.end(name, c.now())
			a := c.send(http.MethodDelete, configMaps(w.name, name), plainJSON, nil)
			w.count(a)
			if a.outcome == done || a.status == http.StatusNotFound {
				w.know(name, nil)
			}
		}
	}
	w.check = func(r *run, w *workload) []string {
		found := checkRoom(held.all(), room)
		found = append(found, held.lists...)
		if r.truth != nil {
			found = append(found, checkCounts(r.truth.of(w.name), room)...)
		}
		return found
	}
	return w
}

// makeQuota makes a quota of ConfigMaps. It returns true when a controller has counted them: until then, nothing may be
// created.
func (c *client) makeQuota(name string, hard int) bool {
	const path = "/api/v1/namespaces/quotas/resourcequotas"
	a := c.send(http.MethodPost, path, plainJSON, object{"apiVersion": "v1", "kind": "ResourceQuota",
		"metadata": map[string]any{"name": name},
		"spec":     map[string]any{"hard": map[string]any{"count/configmaps": fmt.Sprint(hard)}}})
	if a.outcome != done && a.status != http.StatusConflict {
		return false
	}
	a = c.send(http.MethodGet, path+"/"+name, "", nil)
	return a.outcome == done && a.body.text("status", "used", "count/configmaps") != ""
}

// checkCounts checks that a history of changes never has more objects than the limit.
func checkCounts(changes []change, limit int) (violations []string) {
	there := map[string]bool{}
	for _, c := range changes {
		if there[c.name] = true; c.kind == "DELETED" {
			delete(there, c.name)
		}
		if len(there) > limit {
			return []string{fmt.Sprintf("%d objects at revision %d, with a quota of %d", len(there), c.revision, limit)}
		}
	}
	return nil
}

// addresses are Services, which come and go, and of which some have node ports. The ranges are small, so that values
// are given again soon.
func addresses() *workload {
	const path = "/api/v1/namespaces/addresses/services"
	var held stays
	w := &workload{name: "addresses"}
	w.step = func(c *client, w *workload) {
		names := w.names()
		switch n := c.rand.Intn(10); {
		case n == 0:
			a := c.send(http.MethodGet, path, "", nil)
			w.count(a)
			for _, i := range a.body.items() {
				w.know(i.name(), object{}) // also one of whose creation it was not known
			}
		case n == 1 && len(names) > 0:
			w.retype(c, path, names[c.rand.Intn(len(names))], &held)
		case n < 6 || len(names) == 0:
			name := "s" + strings.ReplaceAll(strings.Trim(c.mark(), "<>"), ".", "-")
			kind := "ClusterIP"
			if c.rand.Intn(2) == 0 {
				kind = "NodePort"
			}
			a := c.send(http.MethodPost, path, plainJSON, object{"apiVersion": "v1", "kind": "Service",
				"metadata": map[string]any{"name": name}, "spec": map[string]any{"type": kind,
					"ports": []any{map[string]any{"port": 80}}}})
			w.count(a)
			if a.outcome != refused {
				w.know(name, object{})
			}
			if a.outcome == done {
				for _, of := range valuesOf(a.body) {
					held.begin(stay{what: name, of: of, from: a.back})
				}
			}
		default:
			name := names[c.rand.Intn(len(names))]
			held.end(name, c.now())
			a := c.send(http.MethodDelete, path+"/"+name, plainJSON, nil)
			w.count(a)
			if a.outcome == done || a.status == http.StatusNotFound {
				w.know(name, nil)
			}
		}
	}
	w.check = func(r *run, _ *workload) []string {
		found := checkRoom(held.all(), 1)
		if r.truth != nil {
			found = append(found, checkOwners(r.truth.services())...)
		}
		return found
	}
	return w
}

// retype gives a Service node ports, or takes them from it. From then on it is not certain any more what the Service
// has: only etcd knows.
func (w *workload) retype(c *client, path, name string, held *stays) {
	held.end(name, c.now())
	kind := []string{"ClusterIP", "NodePort"}[c.rand.Intn(2)]
	a := c.send(http.MethodPatch, path+"/"+name, mergePatch, object{"spec": map[string]any{"type": kind}})
	w.count(a)
	if a.status == http.StatusNotFound {
		w.know(name, nil)
	}
}

// valuesOf are the addresses and ports of a Service.
func valuesOf(service object) (values []string) {
	values = append(values, "the address "+service.text("spec", "clusterIP"))
	ports, _ := service.at("spec", "ports").([]any)
	for _, p := range ports {
		if port, ok := p.(map[string]any)["nodePort"].(float64); ok && port != 0 {
			values = append(values, fmt.Sprint("the port ", port))
		}
	}
	return values
}

// checkOwners checks that in a history of changes no value belongs to two objects. A change's state is the values.
func checkOwners(changes []change) (violations []string) {
	values := map[string][]string{}
	owners := map[string]string{}
	for _, c := range changes {
		key := c.namespace + "/" + c.name
		for _, v := range values[key] {
			if owners[v] == key {
				delete(owners, v)
			}
		}
		delete(values, key)
		if c.kind == "DELETED" {
			continue
		}
		values[key] = strings.Split(c.state, ", ")
		for _, v := range values[key] {
			if other := owners[v]; other != "" {
				violations = append(violations, fmt.Sprintf("at revision %d %s has %s, which %s has", c.revision, key, v, other))
			}
			owners[v] = key
		}
	}
	return violations
}
