package controlplane

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

// conflict is the class of errors after which a controller tries again. Most controllers do so without logging it; the
// one of ReplicaSets, for example, logs only the conflict of its second attempt.
const conflict = "the object has been modified"

// stale is the class of errors of the controllers for endpoints when they sync a Service again before the event of
// their own last write has arrived. They try again.
const stale = "informer cache is out of date"

// mostByChance is how many conflicts of kinds that are not known from the reference may be chance, in one run, and how
// many stale caches.
const mostByChance = 3

// classes are the errors that controllers log when another client was faster. For which objects varies from run to run.
var classes = []string{
	conflict,
	stale,
	"is not as new as written version",
	"because it is being terminated",
	"unexpected items still remain in namespace",
}

// fleeting matches errors that depend on timing, on both servers: by program, place and text. A Pod is deleted while
// the scheduler binds it, a ReplicaSet while its controller writes its status, an autoscaler while its controller works
// on it, a namespace before a controller sends its last Event about an object there, or the autoscaler runs before a
// Pod has metrics. The same texts at other places do not match.
var fleeting = regexp.MustCompile(
	`^kube-scheduler (framework\.go:1960|schedule_one\.go:(1198|1261)) .*pods \\*"[^"]*" not found` +
		`|^kube-controller-manager replica_set\.go:640 .*replicasets\.apps \\*"[^"]*" not found` +
		`|^kube-controller-manager event\.go:365 "Server rejected event \(will not retry!\)" err="namespaces \\*"[^"]*" not found"` +
		`|^kube-controller-manager horizontal\.go:354 .* was deleted during reconciliation` +
		`|^kube-controller-manager horizontal\.go:(877|944) .*horizontalpodautoscalers\.autoscaling \\*"[^"]*" not found` +
		`|^kube-controller-manager horizontal\.go:354 .*failed to get cpu utilization: .*(no metrics|no pods) returned`)

// names are the parts of messages that differ from run to run.
var names = regexp.MustCompile(`\\\\?"[^"\\\\]*\\\\?"|[a-z]+/[a-z0-9./-]+|[0-9]+`)

// Kind returns the text by which errors are compared: the program, the place in its source, and the message.
func (e Error) Kind() string {
	text := e.class()
	if text == "" {
		text = names.ReplaceAllString(e.Message, "*")
	}
	return e.Program + " " + e.Place + " " + text
}

// class returns the one of classes that an error belongs to, or "".
func (e Error) class() string {
	for _, class := range classes {
		if strings.Contains(e.Message, class) {
			return class
		}
	}
	return ""
}

// Kinds are kinds of errors that occur with the reference.
type Kinds map[string]bool

// ReadKinds reads a file that Write has written. If there is none, it returns no kinds and the error.
func ReadKinds(file string) (Kinds, error) {
	known := Kinds{}
	text, err := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "#") {
			known[strings.TrimSuffix(line, "\n")] = true
		}
	}
	return known, err
}

// Add adds the kinds of errors.
func (k Kinds) Add(found []Error) {
	for _, e := range found {
		k[e.Kind()] = true
	}
}

// Write writes the kinds to a file, under a comment that says who has such errors.
func (k Kinds) Write(file, who string) error {
	var text strings.Builder
	fmt.Fprintf(&text, "# Kinds of errors that %s: program, place, what.\n", who)
	for _, line := range slices.Sorted(maps.Keys(k)) {
		text.WriteString(line + "\n")
	}
	return os.WriteFile(file, []byte(text.String()), 0o644)
}

// Unexpected returns the errors that are neither known nor fleeting, one of a kind. A few conflicts and stale caches
// are allowed anywhere: whether two controllers write to an object at once, or one syncs before an event arrives,
// depends on timing alone.
func (k Kinds) Unexpected(found []Error) []Error {
	known := maps.Clone(k)
	byChance := map[string]int{} // by class
	var left []Error
	for _, e := range found {
		if known[e.Kind()] || fleeting.MatchString(e.Program+" "+e.Place+" "+e.Message) {
			continue
		}
		if class := e.class(); class == conflict || class == stale {
			if byChance[class]++; byChance[class] <= mostByChance {
				continue
			}
		}
		known[e.Kind()] = true // reported once
		left = append(left, e)
	}
	return left
}
