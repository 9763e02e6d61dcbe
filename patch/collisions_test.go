package patch

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"plinth/schema"
)

// listKeys has the markers of lists that server-side apply merges by more than the merge key, by the Go type and field.
type listKeys map[string]map[string][]string

func (l listKeys) Of(t reflect.Type) (schema.Markers, map[string]schema.Markers) {
	fields := map[string]schema.Markers{}
	for name, keys := range l[t.Name()] {
		fields[name] = schema.Markers{ListType: "map", ListKeys: keys}
	}
	return schema.Markers{}, fields
}

var (
	keyed = listKeys{
		"ServiceSpec": {"Ports": {"port", "protocol"}},
		"Container":   {"Ports": {"containerPort", "protocol"}},
		"PodSpec":     {"TopologySpreadConstraints": {"topologyKey", "whenUnsatisfiable"}},
	}
	keyedService    = schema.FromGo(reflect.TypeFor[corev1.Service](), keyed)
	keyedDeployment = schema.FromGo(reflect.TypeFor[appsv1.Deployment](), keyed)
)

// TestCollisions checks what is said of patches that take several items for one, and that nothing is said of those that
// do not, although keys occur twice.
//
// SPEC: WRITE-8
func TestCollisions(t *testing.T) {
	const (
		service  = `{"spec":{"ports":[{"name":"t","port":53,"protocol":"TCP"},{"name":"u","port":53,"protocol":"UDP"}]}}`
		why      = ": a strategic merge patch, as kubectl apply sends it, identifies items by port alone; "
		advice   = "server-side apply identifies them by port and protocol"
		onlyTCP  = `{"spec":{"ports":[{"name":"t","port":53,"protocol":"TCP"}]}}`
		bothSent = `{"name":"u","port":53,"protocol":"UDP"},{"name":"t","port":53,"protocol":"TCP"}`
	)
	for _, c := range []struct {
		name, live, patch string
		want              []string
	}{
		{"kubectl adds the second port of a number", onlyTCP,
			`{"spec":{"$setElementOrder/ports":[{"port":53},{"port":53}],"ports":[` + bothSent + `]}}`,
			[]string{"spec.ports: one of 2 items with port 53 is lost" + why + advice}},
		{"kubectl changes the second port", service,
			`{"spec":{"$setElementOrder/ports":[{"port":53},{"port":53}],"ports":[{"port":53,"targetPort":99}]}}`,
			[]string{"spec.ports: only the first of 2 items with port 53 is patched" + why + advice}},
		{"kubectl removes one of two ports", service,
			`{"spec":{"$setElementOrder/ports":[{"port":53}],"ports":[{"$patch":"delete","name":"t","port":53}]}}`,
			[]string{"spec.ports: all 2 items with port 53 are deleted" + why + advice}},
		{"kubectl removes one of three ports", `{"spec":{"ports":[{"port":53},{"port":53},{"port":53}]}}`,
			`{"spec":{"$setElementOrder/ports":[{"port":53},{"port":53}],"ports":[{"$patch":"delete","port":53}]}}`,
			[]string{"spec.ports: of 2 items with port 53, 2 are lost" + why + advice}},
		{"a patch has both ports, and no order", `{"spec":{"ports":[]}}`, `{"spec":{"ports":[` + bothSent + `]}}`,
			[]string{"spec.ports: 2 items of the patch with port 53 are merged into one" + why + advice}},
		{"two of many numbers", `{"spec":{"ports":[{"port":1},{"port":2},{"port":1},{"port":3},{"port":3}]}}`,
			`{"spec":{"ports":[{"port":3},{"port":2},{"port":1}]}}`,
			[]string{"spec.ports: only the first of 2 items with port 3 is patched" + why + advice,
				"spec.ports: only the first of 2 items with port 1 is patched" + why + advice}},

		{"a list that is not there yet", `{"spec":{}}`,
			`{"spec":{"$setElementOrder/ports":[{"port":53},{"port":53}],"ports":[` + bothSent + `]}}`, nil},
		{"a list that is replaced", service,
			`{"spec":{"$setElementOrder/ports":[{"port":53},{"port":53}],"ports":[{"$patch":"replace"},` + bothSent + `]}}`, nil},
		{"another port", service, `{"spec":{"$setElementOrder/ports":[{"port":53},{"port":53},{"port":80}],` +
			`"ports":[{"port":80}]}}`, nil},
		{"the order alone", service, `{"spec":{"$setElementOrder/ports":[{"port":53},{"port":53}]}}`, nil},
		{"the deletion of what is not there", service, `{"spec":{"ports":[{"$patch":"delete","port":80}]}}`, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, found, err := StrategicCollisions(parse(t, c.live), parse(t, c.patch), keyedService)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range found {
				got = append(got, f.String())
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q\nwant %q", got, c.want)
			}
		})
	}
}

// TestCollisionsOfOtherLists checks the paths of collisions in lists within lists, and that nothing is said about
// server-side apply where it identifies the items by the same key.
func TestCollisionsOfOtherLists(t *testing.T) {
	const how = " is patched: a strategic merge patch, as kubectl apply sends it, identifies items by "
	inTemplate := func(spec string) string { return `{"spec":{"template":{"spec":` + spec + `}}}` }
	for _, c := range []struct{ live, patch, want string }{
		{`{"containers":[{"name":"a","ports":[{"containerPort":53,"protocol":"TCP"},{"containerPort":53,"protocol":"UDP"}]}]}`,
			`{"$setElementOrder/containers":[{"name":"a"}],"containers":[{"name":"a","ports":[{"containerPort":53,"name":"x"}]}]}`,
			`containers[name="a"].ports: only the first of 2 items with containerPort 53` + how +
				"containerPort alone; server-side apply identifies them by containerPort and protocol"},
		{`{"containers":[{"name":"a","env":[{"name":"E"},{"name":"E","value":"1"}]}]}`,
			`{"containers":[{"name":"a","env":[{"name":"E","value":"2"}]}]}`,
			`containers[name="a"].env: only the first of 2 items with name "E"` + how + "name alone"},
		{`{"topologySpreadConstraints":[{"topologyKey":"zone","maxSkew":1,"whenUnsatisfiable":"DoNotSchedule"},` +
			`{"topologyKey":"zone","maxSkew":2,"whenUnsatisfiable":"ScheduleAnyway"}]}`,
			`{"topologySpreadConstraints":[{"topologyKey":"zone","maxSkew":3}]}`,
			`topologySpreadConstraints: only the first of 2 items with topologyKey "zone"` + how +
				"topologyKey alone; server-side apply identifies them by topologyKey and whenUnsatisfiable"},
	} {
		_, found, err := StrategicCollisions(parse(t, inTemplate(c.live)), parse(t, inTemplate(c.patch)), keyedDeployment)
		if err != nil {
			t.Fatal(err)
		}
		if want := "spec.template.spec." + c.want; len(found) != 1 || found[0].String() != want {
			t.Errorf("got %v\nwant %s", found, want)
		}
	}
}

// TestCollisionsAreBounded checks the number of collisions that are returned, and that the merge stays linear.
func TestCollisionsAreBounded(t *testing.T) {
	var items []string
	for i := range 3000 {
		items = append(items, fmt.Sprintf(`{"port":%d},{"port":%d}`, i, i))
	}
	list := `{"spec":{"ports":[` + strings.Join(items, ",") + `]}}`
	_, found, err := StrategicCollisions(parse(t, list), parse(t, list), keyedService)
	if err != nil || len(found) != maxCollisions {
		t.Errorf("%d collisions, %v", len(found), err)
	}
}
