package columns

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"plinth/internal/engine"
	"plinth/object"
)

// Several columns of Pods are computed in one pass over the containers.
var Pods = Table{
	Columns: of(
		name,
		str("Ready", "The aggregate readiness state of this pod for accepting traffic.", nil),
		str("Status", "The aggregate status of the containers in this pod.", nil),
		str("Restarts",
			"The number of times the containers in this pod have been restarted and when the last container in this pod has restarted.", nil),
		age,
		wide(str("IP", doc[corev1.PodStatus]("podIP"), nil)),
		wide(str("Node", doc[corev1.PodSpec]("nodeName"), nil)),
		wide(str("Nominated Node", doc[corev1.PodStatus]("nominatedNodeName"), nil)),
		wide(str("Readiness Gates", doc[corev1.PodSpec]("readinessGates"), nil)),
	).Columns,
	Cells: podCells,
}

// PodTemplates is the table of PodTemplates.
var PodTemplates = of(name,
	str("Containers", "Names of each container in the template.", containers("template", "spec")[0].cell),
	str("Images", "Images referenced by each container in the template.", containers("template", "spec")[1].cell),
	str("Pod Labels", "The labels for the pod template.", labels("template", "metadata", "labels")),
)

func podCells(obj object.Value) []any {
	spec, status := obj.At("spec"), obj.At("status")
	p := podState{spec: spec, status: status, total: spec.At("containers").Len()}
	p.look(obj)
	var restarts any = itoa(p.restarts)
	if p.restarts != 0 && !p.last.IsZero() {
		restarts = engine.Age{Before: itoa(p.restarts) + " (", Since: p.last, After: " ago)"}
	}
	ip := ""
	if ips := status.At("podIPs").Items(); len(ips) > 0 {
		ip = ips[0].At("ip").Str()
	}
	return []any{
		obj.At("metadata", "name").Str(), fraction(p.ready, p.total), p.reason, restarts,
		ago(obj.At("metadata", "creationTimestamp")),
		or(ip, none), or(spec.At("nodeName").Str(), none), or(status.At("nominatedNodeName").Str(), none),
		readinessGates(spec, status),
	}
}

// podState is the state that is computed from all containers of a Pod.
type podState struct {
	spec, status object.Value
	total, ready int
	restarts     int64
	last         time.Time // of the restarts
	reason       string
}

func (p *podState) look(obj object.Value) {
	phase := p.status.At("phase").Str()
	p.reason = or(p.status.At("reason").Str(), phase)
	for _, c := range p.status.At("conditions").Items() {
		if c.At("type").Str() == "PodScheduled" && c.At("reason").Str() == corev1.PodReasonSchedulingGated {
			p.reason = corev1.PodReasonSchedulingGated
		}
	}
	sidecars := podState{}
	initializing := p.lookAtInit(&sidecars)
	if initialized, has := condition(p.status.At("conditions"), "Initialized"); !initializing || has &&
		isTrue(initialized) {
		p.restarts, p.last = sidecars.restarts, sidecars.last
		p.lookAtContainers()
	}
	switch {
	case !deleted(obj):
	case p.status.At("reason").Str() == "NodeLost":
		p.reason = "Unknown"
	case phase != "Succeeded" && phase != "Failed":
		p.reason = "Terminating"
	}
}

// restarted adds the restarts of a container.
func (p *podState) restarted(container object.Value) {
	p.restarts += container.At("restartCount").Int()
	if finished := container.At("lastState", "terminated", "finishedAt"); !finished.IsNull() {
		if t := at(finished); t.After(p.last) {
			p.last = t
		}
	}
}

// lookAtInit visits the init containers up to the first that is not done, and says whether there is one. A sidecar,
// which keeps running, counts as done once it has started.
func (p *podState) lookAtInit(sidecars *podState) (initializing bool) {
	inits := p.spec.At("initContainers")
	restartable := func(name string) bool {
		always := false
		for _, c := range inits.Items() {
			if c.At("name").Str() == name {
				always = c.At("restartPolicy").Str() == "Always"
			}
		}
		return always
	}
	for _, c := range inits.Items() {
		if c.At("restartPolicy").Str() == "Always" {
			p.total++
		}
	}
	for i, c := range p.status.At("initContainerStatuses").Items() {
		p.restarted(c)
		sidecar := restartable(c.At("name").Str())
		if sidecar {
			sidecars.restarted(c)
		}
		terminated, waiting := c.At("state", "terminated"), c.At("state", "waiting", "reason").Str()
		switch {
		case !terminated.IsNull() && terminated.At("exitCode").Int() == 0:
			continue
		case sidecar && c.At("started").Bool():
			if c.At("ready").Bool() {
				p.ready++
			}
			continue
		case !terminated.IsNull():
			p.reason = "Init:" + endOf(terminated)
		case waiting != "" && waiting != "PodInitializing":
			p.reason = "Init:" + waiting
		default:
			p.reason = "Init:" + fraction(i, inits.Len())
		}
		return true
	}
	return false
}

// lookAtContainers visits the containers in reverse order, so that the reason of the first one is printed.
func (p *podState) lookAtContainers() {
	running, failure := false, ""
	statuses := p.status.At("containerStatuses").Items()
	for i := len(statuses) - 1; i >= 0; i-- {
		c := statuses[i]
		p.restarted(c)
		terminated, waiting := c.At("state", "terminated"), c.At("state", "waiting", "reason").Str()
		switch {
		case waiting != "":
			p.reason = waiting
		case !terminated.IsNull():
			p.reason = endOf(terminated)
			if terminated.At("exitCode").Int() != 0 {
				failure = p.reason
			}
		case c.At("ready").Bool() && !c.At("state", "running").IsNull():
			running = true
			p.ready++
		}
	}
	if p.reason != "Completed" {
		return
	}
	switch {
	case running && anyReady(p.status.At("conditions")):
		p.reason = "Running"
	case failure != "":
		p.reason = failure
	case running:
		p.reason = "NotReady"
	}
}

func anyReady(conditions object.Value) bool {
	for _, c := range conditions.Items() {
		if c.At("type").Str() == "Ready" && isTrue(c) {
			return true
		}
	}
	return false
}

// endOf returns why a container ended: its reason, signal or exit code.
func endOf(terminated object.Value) string {
	if reason := terminated.At("reason").Str(); reason != "" {
		return reason
	}
	if signal := terminated.At("signal").Int(); signal != 0 {
		return "Signal:" + itoa(signal)
	}
	return "ExitCode:" + itoa(terminated.At("exitCode").Int())
}

// readinessGates prints how many of the conditions in spec.readinessGates are true.
func readinessGates(spec, status object.Value) string {
	gates := spec.At("readinessGates")
	if gates.Len() == 0 {
		return none
	}
	open := 0
	for _, g := range gates.Items() {
		if c, has := condition(status.At("conditions"), g.At("conditionType").Str()); has && isTrue(c) {
			open++
		}
	}
	return fraction(open, gates.Len())
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

func fraction[N int | int64](part, whole N) string {
	return itoa(int64(part)) + "/" + itoa(int64(whole))
}
