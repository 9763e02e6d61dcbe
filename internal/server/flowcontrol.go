package server

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"strings"

	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/object"
)

// The objects of API priority and fairness that every server has. Nothing here acts on them, but clients look for them.
// The two mandatory ones of each type are always as they are here. The suggested ones belong to the server as long as
// their annotation says so; it goes to "false" where somebody has changed one and taken the annotation away.

//go:embed flowcontrol.txt
var flowControlText string

const (
	flowControlGroup    = "flowcontrol.apiserver.k8s.io"
	flowControlProducer = "api-priority-and-fairness-config-producer-v1"
	flowControlConsumer = "api-priority-and-fairness-config-consumer-v1"
	autoUpdateSpec      = "apf.kubernetes.io/autoupdate-spec"
)

// flowControlLine is an object of flowControlText: flowControlResources[kind] and name say which, spec is JSON.
type flowControlLine struct{ kind, name, spec string }

var flowControlResources = map[string]string{
	"PriorityLevelConfiguration": "prioritylevelconfigurations", "FlowSchema": "flowschemas",
}

func flowControlLines() (all []flowControlLine) {
	for line := range strings.Lines(flowControlText) {
		if !strings.HasPrefix(line, "#") {
			kind, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			name, spec, _ := strings.Cut(rest, " ")
			all = append(all, flowControlLine{kind, name, spec})
		}
	}
	return all
}

func flowControl(now func() object.Value) (all []initial) {
	annotations := object.Fields("annotations", object.Fields(autoUpdateSpec, object.StringOf("true")))
	for _, line := range flowControlLines() {
		parsed, err := object.ParseJSON([]byte(line.spec))
		if err != nil {
			panic(fmt.Sprintf("server: %s %s: %v", line.kind, line.name, err)) // a test reads the file
		}
		spec := parsed.Value
		mandatory := line.name == "exempt" || line.name == "catch-all"
		one := initial{
			group: flowControlGroup, version: "v1", resource: flowControlResources[line.kind], name: line.name,
			manager: flowControlProducer,
			body:    object.Fields("metadata", annotations, "spec", spec),
			revise:  func(live object.Value) object.Value { return revisedFlowControl(live, spec, mandatory) },
		}
		if line.kind == "FlowSchema" {
			level := spec.At("priorityLevelConfiguration", "name").Str()
			one.statusManager = flowControlConsumer
			one.status = func(live object.Value) object.Value { return notDangling(live, level, now) }
		}
		all = append(all, one)
	}
	return all
}

// revisedFlowControl is what an object that is there is to be.
func revisedFlowControl(live, spec object.Value, mandatory bool) object.Value {
	text, annotated := live.At("metadata", "annotations").Get(autoUpdateSpec)
	said, err := strconv.ParseBool(text.Str())
	// Without the annotation, or with another text in it, the object is the server's while nobody has changed it.
	update := mandatory || err == nil && said || err != nil && live.At("metadata", "generation").Int() == 1
	if update && !object.Equal(live.At("spec"), spec) {
		live = live.With("spec", spec)
	}
	if !annotated || err != nil || said != update {
		live = live.WithAt(object.StringOf(strconv.FormatBool(update)), "metadata", "annotations", autoUpdateSpec)
	}
	return live
}

// notDangling is the status of a FlowSchema whose priority level is there; null: it has it already.
func notDangling(live object.Value, level string, now func() object.Value) object.Value {
	text := object.StringOf
	message := fmt.Sprintf("This FlowSchema references the PriorityLevelConfiguration object named %q and it exists",
		level)
	if c := conditionIn(live, "Dangling"); c.At("status").Str() == "False" && c.At("message").Str() == message {
		return object.Nil
	}
	return object.Fields("conditions", object.ListOf(object.Fields("type", text("Dangling"), "status", text("False"),
		"reason", text("Found"), "message", text(message), "lastTransitionTime", now())))
}

// weed deletes objects of earlier releases, which are the server's and in flowControlText no more.
func (s *Server) weed(ctx context.Context) error {
	wanted := map[flowControlLine]bool{}
	for _, line := range flowControlLines() {
		wanted[flowControlLine{kind: line.kind, name: line.name}] = true
	}
	for kind, resource := range flowControlResources {
		r := s.registry.Builtin().Find(flowControlGroup, "v1", resource)
		if r == nil {
			continue
		}
		rq := &engine.Request{Resource: r}
		list, err := s.engine.List(ctx, rq, engine.ListOptions{})
		if err != nil {
			return err
		}
		for item := range list.Items {
			if name := item.Key.Name; !wanted[flowControlLine{kind: kind, name: name}] {
				obj, err := engine.ObjectOf(item)
				if err != nil {
					return err
				}
				if ours, err := strconv.ParseBool(obj.At("metadata", "annotations", autoUpdateSpec).Str()); err != nil || !ours {
					continue
				}
				one := &engine.Request{Resource: r, Name: name}
				if _, err := s.engine.Delete(ctx, one, engine.DeleteOptions{}); err != nil && !apierr.Is(err, apierr.NotFound) {
					return fmt.Errorf("deleting %s %s: %w", resource, name, err)
				}
			}
		}
	}
	return nil
}
