package initial

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

// The objects of API priority and fairness that every server has. They are brought up to date at the start and every
// minute (upkeep.go).
//
// The two mandatory objects of each type (exempt, catch-all) always have the spec given here. The suggested ones are
// kept up to date only while their annotation autoupdate-spec is "true". An administrator who wants to change one sets
// it to "false". If the annotation is missing, the object's generation decides: an object that was never changed
// (generation 1) is still the server's and gets "true", any other gets "false".

//go:embed flowcontrol.txt
var flowControlText string

const (
	flowControlGroup    = "flowcontrol.apiserver.k8s.io"
	flowControlProducer = "api-priority-and-fairness-config-producer-v1"
	flowControlConsumer = "api-priority-and-fairness-config-consumer-v1"
	autoUpdateSpec      = "apf.kubernetes.io/autoupdate-spec"
)

// flowControlLine is one line of flowControlText. The resource is flowControlResources[kind]; spec is JSON.
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

// FlowControl are these objects. With priority and fairness, a new FlowSchema says in its status that its level exists;
// what others say is up to MaintainDangling.
func (o *Objects) FlowControl() (all []Object) {
	annotations := object.Fields("annotations", object.Fields(autoUpdateSpec, object.StringOf("true")))
	for _, line := range flowControlLines() {
		parsed, err := object.ParseJSON([]byte(line.spec))
		if err != nil {
			panic(fmt.Sprintf("initial: %s %s: %v", line.kind, line.name, err)) // a test reads the file
		}
		spec := parsed.Value
		mandatory := line.name == "exempt" || line.name == "catch-all"
		one := Object{
			Group: flowControlGroup, Version: "v1", Resource: flowControlResources[line.kind], Name: line.name,
			Manager: flowControlProducer,
			Body:    object.Fields("metadata", annotations, "spec", spec),
			Revise:  func(live object.Value) object.Value { return revisedFlowControl(live, spec, mandatory) },
		}
		if line.kind == "FlowSchema" && o.Fairness {
			level := spec.At("priorityLevelConfiguration", "name").Str()
			one.StatusManager = flowControlConsumer
			one.Status = func(live object.Value) object.Value {
				if !live.IsNull() {
					return object.Nil
				}
				return dangling(live, level, true, o.now)
			}
		}
		all = append(all, one)
	}
	return all
}

// revisedFlowControl returns what a live object is to be changed to; live itself if it may stay as it is.
func revisedFlowControl(live, spec object.Value, mandatory bool) object.Value {
	text, annotated := live.At("metadata", "annotations").Get(autoUpdateSpec)
	said, err := strconv.ParseBool(text.Str())
	// No annotation, or a text that is not a bool: an object that was never changed is the server's.
	update := mandatory || err == nil && said || err != nil && live.At("metadata", "generation").Int() == 1
	if update && !object.Equal(live.At("spec"), spec) {
		live = live.With("spec", spec)
	}
	if !annotated || err != nil || said != update {
		live = live.WithAt(object.StringOf(strconv.FormatBool(update)), "metadata", "annotations", autoUpdateSpec)
	}
	return live
}

// dangling is the status to apply to a FlowSchema, which says whether its priority level exists; null if the live
// object has it already.
func dangling(live object.Value, level string, exists bool, now func() object.Value) object.Value {
	text := object.StringOf
	status, reason, rest := "False", "Found", "and it exists"
	if !exists {
		status, reason, rest = "True", "NotFound", "but there is no such object"
	}
	message := fmt.Sprintf("This FlowSchema references the PriorityLevelConfiguration object named %q %s", level, rest)
	if c := conditionIn(live, "Dangling"); c.At("status").Str() == status && c.At("reason").Str() == reason &&
		c.At("message").Str() == message {
		return object.Nil
	}
	return object.Fields("conditions", object.ListOf(object.Fields("type", text("Dangling"), "status", text(status),
		"reason", text(reason), "message", text(message), "lastTransitionTime", now())))
}

// deleteObsoleteFlowControl deletes objects that an earlier release created and flowControlText no longer has. Only
// those are deleted that still belong to the server by their annotation.
func (o *Objects) deleteObsoleteFlowControl(ctx context.Context) error {
	wanted := map[flowControlLine]bool{}
	for _, line := range flowControlLines() {
		wanted[flowControlLine{kind: line.kind, name: line.name}] = true
	}
	for kind, resource := range flowControlResources {
		r := o.Registry.Builtin().Find(flowControlGroup, "v1", resource)
		if r == nil {
			continue
		}
		rq := &engine.Request{Resource: r}
		list, err := o.Engine.List(ctx, rq, engine.ListOptions{})
		if apierr.Is(err, apierr.StoreReadError) { // one of them is unreadable: all stay
			o.Logger.Warn("obsolete objects are not searched for", "resource", resource, "error", err)
			continue
		}
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
				one := &engine.Request{Resource: r, Name: name, OwnStart: true}
				if _, err := o.Engine.Delete(ctx, one, engine.DeleteOptions{}); err != nil && !apierr.Is(err, apierr.NotFound) {
					return fmt.Errorf("deleting %s %s: %w", resource, name, err)
				}
			}
		}
	}
	return nil
}
