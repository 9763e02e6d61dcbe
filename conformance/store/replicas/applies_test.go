package replicas

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// applies are objects that several managers apply, each its own fields, one of two optional ones, and one that all
// want: what an apply leaves out goes, what another manager has is a conflict, or is taken by force.
func applies() *workload {
	return &workload{name: "applies", rules: rules{unseenMatters: true}, step: func(c *client, w *workload) {
		name := fmt.Sprintf("a%d-%d", c.rand.Intn(3), c.generation())
		if c.rand.Intn(4) == 0 {
			w.get(c, name, ownedState)
			return
		}
		mark, manager := c.mark(), fmt.Sprint("m", c.rand.Intn(3))
		fields := map[string]string{"own-" + manager: mark}
		if c.rand.Intn(2) == 0 {
			fields["extra-"+manager] = mark
		}
		if c.rand.Intn(3) == 0 {
			fields["shared"] = mark
		}
		w.applyAs(c, name, manager, mark, fields, c.rand.Intn(2) == 0)
	}}
}

// ownedState is the data of an object with the managers that own each field.
func ownedState(o object) string {
	fields := o.data()
	owners := map[string][]string{}
	entries, _ := o.at("metadata", "managedFields").([]any)
	for _, e := range entries {
		entry := object(e.(map[string]any))
		owned, _ := entry.at("fieldsV1", "f:data").(map[string]any)
		for f := range owned {
			if name, ok := strings.CutPrefix(f, "f:"); ok {
				owners[name] = append(owners[name], entry.text("manager"))
			}
		}
	}
	for f := range fields {
		slices.Sort(owners[f])
		fields[f] += "@" + strings.Join(owners[f], "+")
	}
	return fieldsText(fields)
}

// applied is what the apply of a manager makes of a state. Every value is written once only, so no field has two
// owners.
func applied(manager string, wanted map[string]string, force bool) func(string) (string, bool) {
	return func(state string) (string, bool) {
		fields := fieldsOf(state)
		for f := range wanted {
			if has := fields[f]; has != "" && !strings.HasSuffix(has, "@"+manager) && !force {
				return state, false
			}
		}
		for f, has := range fields {
			if strings.HasSuffix(has, "@"+manager) {
				delete(fields, f)
			}
		}
		for f, value := range wanted {
			fields[f] = value + "@" + manager
		}
		return fieldsText(fields), true
	}
}

func (w *workload) applyAs(c *client, name, manager, mark string, fields map[string]string, force bool) {
	path := query(configMaps(w.name, name), "fieldManager", manager, "force", fmt.Sprint(force))
	a := c.send(http.MethodPatch, path, applyPatch, configMap(name, fields))
	refusedForOthers := conflicted(a) && !strings.Contains(a.body.text("message"), "Apply failed")
	w.write(c, a, name, op{text: fmt.Sprintf("apply %s (force %t) of %s", fieldsText(fields), force, manager), mark: mark,
		whatever: refusedForOthers, apply: applied(manager, fields, force)}, ownedState)
}
