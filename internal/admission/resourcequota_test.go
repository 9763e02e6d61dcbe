package admission

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"plinth/internal/admission/quota"
	"plinth/internal/builtin"
	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/internal/store/memlog"
	"plinth/object"
)

// others is another server that writes to the store. It has not written anything yet.
type others struct{}

func (others) Fresh(context.Context, store.Key, bool) (bool, error) { return true, nil }
func (others) Atomic(store.Key, store.Key) bool                     { return true }

// newQuotaStage is a stage with the plugin ResourceQuota, and the plugin.
func newQuotaStage(t *testing.T, objects ...string) (*stage, *resourceQuota) {
	t.Helper()
	registry := engine.NewRegistry(builtin.Resources(builtin.Config{}))
	opened, err := store.Open(store.Config{Log: memlog.New(), Describe: engine.Describe(registry),
		Charge: (&quota.Charges{}).Of, Rules: quota.Quotas})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = opened.Close() })
	s := &stage{store: opened, registry: registry, engine: engine.New(engine.Config{Store: opened, Registry: registry})}
	for _, text := range objects {
		resource := strings.ToLower(parsed(t, text).At("kind").Str()) + "s"
		s.put(t, "v1", resource, "ns", text)
	}
	return s, &resourceQuota{store: opened, registry: registry, now: time.Now, classes: quota.ClassesOf(opened)}
}

// quotaText is a ResourceQuota. hard and used are JSON.
func quotaText(name, hard, used string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":%q,"namespace":"ns"},`+
		`"spec":{"hard":%s},"status":{"hard":{"a":"1"},"used":%s}}`, name, hard, used)
}

const mapText = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"ns"}}`

// newMap is the attributes of a create of a ConfigMap.
func (s *stage) newMap(t *testing.T) *engine.Attributes {
	t.Helper()
	return s.engine.Attributes(&engine.Request{Resource: s.registry.Now().Find("", "v1", "configmaps"), Namespace: "ns",
		Name: "new"}, engine.OperationCreate, parsed(t, fmt.Sprintf(mapText, "new")), object.Nil)
}

// Where other servers write to the store, what the status of a quota has recorded counts if it is more than what the
// stored objects use, and a request is recorded in the statuses of the quotas that limit it.
//
// SPEC: AUTH-5
func TestRecordedUse(t *testing.T) {
	s, q := newQuotaStage(t, fmt.Sprintf(mapText, "old"),
		quotaText("a", `{"configmaps":"5","count/configmaps":"6"}`, `{"configmaps":"3","secrets":"7"}`),
		quotaText("b", `{"secrets":"1"}`, `{}`),
		quotaText("c", `{"configmaps":"1k"}`, `{"configmaps":"none"}`))
	for _, shared := range []bool{false, true} {
		want := []string{"0", "0", "0"}
		if shared {
			s.store.Others, want = others{}, []string{"3", "0", "0"}
		}
		limits, err := q.limits(t.Context(), s.newMap(t))
		if err != nil {
			t.Fatal(err)
		}
		var least []string
		for _, each := range limits.Each {
			least = append(least, each.Least.String())
		}
		if fmt.Sprint(least) != fmt.Sprint(want) {
			t.Errorf("shared: %t: the least that is used is %q, want %q", shared, least, want)
		}
		if !shared {
			continue
		}
		if limits.Of == nil || limits.Of.Name != "resourcequotas" {
			t.Errorf("the records are in %v", limits.Of)
		}
		var got []string
		for _, record := range limits.Record() {
			got = append(got, record.Version.Key.Name+" "+string(object.AppendJSON(nil, record.Status)))
		}
		recorded := []string{`ns/a {"hard":{"a":"1"},"used":{"configmaps":"4","count/configmaps":"2","secrets":"7"}}`,
			`ns/c {"hard":{"a":"1"},"used":{"configmaps":"2"}}`}
		if strings.Join(got, "\n") != strings.Join(recorded, "\n") {
			t.Errorf("recorded:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(recorded, "\n"))
		}
		for _, name := range []string{"a", "b", "c"} {
			s.write(t, "v1", "resourcequotas", "ns", name, nil)
		}
		if records := limits.Record(); len(records) > 0 {
			t.Errorf("recorded without a quota: %v", records)
		}
	}
}

// A quota that cannot be read refuses what it might limit.
//
// SPEC: AUTH-5
func TestUnreadableQuota(t *testing.T) {
	s, q := newQuotaStage(t, quotaText("a", `{"configmaps":"many"}`, `{}`))
	for range 2 {
		err := q.validate(t.Context(), s.newMap(t))
		if err == nil || !strings.Contains(err.Error(), "resource quota a: ") {
			t.Errorf("%v", err)
		}
	}
}
