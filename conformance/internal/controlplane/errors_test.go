package controlplane

import (
	"slices"
	"testing"
)

func TestUnexpected(t *testing.T) {
	const manager = "kube-controller-manager"
	of := func(place, message string, n int) []Error {
		return slices.Repeat([]Error{{Program: manager, Place: place, Message: message}}, n)
	}
	known := Kinds{manager + " disruption.go:656 " + conflict: true}
	missing := `sync "a/b" failed with replicasets.apps "b" not found`
	modified := `sync "a/b" failed with Operation cannot be fulfilled on replicasets.apps "b": the object has been modified`
	outdated := `"Unhandled Error" err="endpoints informer cache is out of date, resource version 7 already processed"`
	for name, c := range map[string]struct {
		found []Error
		want  int
	}{
		"a few stale caches": {of("endpoints_controller.go:345", outdated, mostByChance), 0},
		"many stale caches":  {of("endpoints_controller.go:345", outdated, mostByChance+2), 1},
		"conflicts and stale caches": {append(of("replica_set.go:640", modified, mostByChance),
			of("endpointslice_controller.go:365", outdated, mostByChance)...), 0},
		"a few conflicts":      {of("replica_set.go:640", modified, mostByChance), 0},
		"many conflicts":       {of("replica_set.go:640", modified, mostByChance+2), 1},
		"known conflicts":      {of("disruption.go:656", modified, 100), 0},
		"a deleted ReplicaSet": {of("replica_set.go:640", missing, 100), 0},
		"an Event of a namespace that is gone": {of("event.go:365",
			`"Server rejected event (will not retry!)" err="namespaces \"shop\" not found" event="&Event{because it is being terminated}"`, 2), 0},
		"an autoscaler that is deleted after its target": {of("horizontal.go:877",
			`"Unhandled Error" err="failed to update status for a: horizontalpodautoscalers.autoscaling \"a\" not found"`, 2), 0},
		"an Event that is refused": {of("event.go:365",
			`"Server rejected event (will not retry!)" err="events \"a\" is forbidden" event="&Event{}"`, 2), 1},
		"the same, somewhere else": {of("deployment_controller.go:1", missing, 2), 1},
		"another error":            {of("replica_set.go:640", "replicasets.apps is forbidden", 2), 1},
	} {
		if left := known.Unexpected(c.found); len(left) != c.want {
			t.Errorf("%s: %v, want %d errors", name, left, c.want)
		}
	}
}
