package apply

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"plinth/conformance/internal/linediff"
)

// Texts that differ in every run, and their replacements.
var different = []struct {
	found *regexp.Regexp
	as    string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "<uid>"},
	{regexp.MustCompile(`20[23]\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "<time>"},
	{regexp.MustCompile(`\t20[23]\d-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ \+0000`), " <time>"},
	{regexp.MustCompile(`(resourceVersion\\*"?: ?\\*")\d+`), "${1}<rv>"},
	{regexp.MustCompile(`\b10\.0\.\d{1,3}\.\d{1,3}\b`), "<clusterIP>"},
	{regexp.MustCompile(`(nodePort"?: ?)3[0-2]\d{3}`), "${1}<nodePort>"},
	{regexp.MustCompile(`(LIVE|MERGED)-\d+`), "$1"},
	{regexp.MustCompile(`kubectl-edit-\d+`), "kubectl-edit"},
	{regexp.MustCompile(`[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ `), ""},
	{regexp.MustCompile(`(?m) +$`), ""},
}

func (r *runner) normalise(out string) string {
	out = strings.ReplaceAll(out, r.server.URL, "<server>")
	out = strings.ReplaceAll(out, r.home, "<home>")
	for _, d := range different {
		out = d.found.ReplaceAllString(out, d.as)
	}
	return strings.TrimSpace(advice.ReplaceAllString(out, "! (kubectl's advice)"))
}

// explanation matches the text that Plinth adds to the reference's message about a conflict: the object, the values,
// the owners, and the ways to resolve it.
var explanation = regexp.MustCompile(`\n\n[a-z0-9.]+ "[^"\n]*"( in namespace "[^"\n]*")?:` +
	`(\n  \.[^\n]* is [^\n]*, owned by "[^\n]*\); this apply wants [^\n]*)+` +
	`\nTo take these fields over: (kubectl apply --server-side [^\n]* -f FILE|repeat the request with force=true)` +
	`\nTo leave them to their owners: [^\n]*\nTo share them: [^\n]* --show-managed-fields`)

func withoutExplanation(text string) string { return explanation.ReplaceAllString(text, "") }

// advice matches the text that kubectl prints for every conflict.
var advice = regexp.MustCompile(
	`(?s)! Please review the fields above--they currently have other managers\. Here\n.*?/server-side-apply/#conflicts`)

// seen holds the last printed form of each object, by kind and uid.
type seen map[string]look

type look struct {
	version, text string
	managers      []string
}

// fullLines is the maximum length of an object that is printed as a whole again, and longEntry that of a manager's
// entry.
const (
	fullLines = 30
	longEntry = 160
)

// print prints an object: YAML, as a whole or as the lines that have changed since it was printed before, and its
// managers.
func (s seen) print(body []byte) (string, error) {
	var managed struct {
		Metadata struct{ ManagedFields []entry }
	}
	if err := json.Unmarshal(body, &managed); err != nil {
		return "", err
	}
	if err := ordered(managed.Metadata.ManagedFields); err != nil {
		return "", err
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	var object map[string]any
	if err := decoder.Decode(&object); err != nil {
		return "", err
	}
	metadata, _ := object["metadata"].(map[string]any)
	uid := fmt.Sprint(object["kind"], metadata["uid"]) // a Scale has the uid of the scaled object
	version, _ := metadata["resourceVersion"].(string)
	before, again := s[uid]
	delete(metadata, "managedFields")
	delete(metadata, "resourceVersion")
	flat, err := json.Marshal(object)
	if err != nil {
		return "", err
	}
	raw, err := yaml.JSONToYAML(flat)
	if err != nil {
		return "", err
	}
	text := string(raw)
	for _, d := range different {
		text = d.found.ReplaceAllString(text, d.as)
	}
	now := look{version, text, managers(managed.Metadata.ManagedFields)}
	s[uid] = now
	if again && strings.Count(text, "\n") > fullLines {
		text = changes(before.text, text)
	}
	switch version {
	case "":
	case before.version:
		text += "resourceVersion: the same\n"
	default:
		text += "resourceVersion: another\n"
	}
	return text + printManagers(now.managers, before.managers), nil
}

// changes returns the lines that are not in both texts.
func changes(before, now string) string {
	var out strings.Builder
	for line := range strings.Lines(linediff.Diff(before, now)) {
		if line[0] != ' ' && strings.TrimSpace(line[1:]) != "" {
			out.WriteString(line)
		}
	}
	if out.Len() == 0 {
		return "(as before)\n"
	}
	return out.String()
}

// entry is an entry of managedFields.
type entry struct {
	Manager, Operation, APIVersion, Time, FieldsType, Subresource string

	FieldsV1 json.RawMessage
}

func (e entry) key() string {
	return fmt.Sprint(e.Operation, "\x00", e.Manager, "\x00", e.APIVersion, "\x00", e.Subresource)
}

// ordered checks that the entries have the reference's order: by operation, time, and name. As that depends on whether
// two steps fall into the same second, entries are printed by operation and name.
func ordered(entries []entry) error {
	for i := 1; i < len(entries); i++ {
		a, b := entries[i-1], entries[i]
		if strings.Join([]string{a.Operation, a.Time, a.key()},
			"\x00") >= strings.Join([]string{b.Operation, b.Time, b.key()}, "\x00") {
			return fmt.Errorf("managedFields are out of order: %s %s %s comes before %s %s %s", a.Operation, a.Time, a.Manager,
				b.Operation, b.Time, b.Manager)
		}
	}
	return nil
}

// managers prints each entry as a line.
func managers(entries []entry) []string {
	entries = slices.Clone(entries)
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.key(), b.key()) })
	var lines []string
	for _, e := range entries {
		line := fmt.Sprintf("%q %s %s", e.Manager, e.Operation, e.APIVersion)
		if e.Subresource != "" {
			line += " /" + e.Subresource
		}
		if e.Time == "" {
			line += " (without time)"
		}
		if e.FieldsType != "FieldsV1" {
			line += fmt.Sprintf(" (%q)", e.FieldsType)
		}
		lines = append(lines, line+" "+string(e.FieldsV1))
	}
	return lines
}

// printManagers shortens long entries that have not changed since they were printed before.
func printManagers(now, before []string) string {
	if len(now) == 0 {
		return "nobody manages it"
	}
	var out strings.Builder
	out.WriteString("managers:")
	for _, line := range now {
		if len(line) > longEntry && slices.Contains(before, line) {
			line, _, _ = strings.Cut(line, " {")
			line += " (as before)"
		}
		out.WriteString("\n  " + line)
	}
	return out.String()
}

// answer prints the response to a request: an object, or a Status with its causes.
func (r *runner) answer(status int, body []byte) (string, error) {
	head := fmt.Sprint(status, " ", http.StatusText(status), "\n")
	var failure struct {
		Kind, Message, Reason string
		Details               map[string]any
	}
	if err := json.Unmarshal(body, &failure); err != nil {
		return head + string(body), nil
	}
	if failure.Kind != "Status" {
		text, err := r.seen.print(body)
		return head + text, err
	}
	var out strings.Builder
	out.WriteString(head)
	if failure.Reason != "" {
		out.WriteString(failure.Reason + ": ")
	}
	out.WriteString(withoutExplanation(failure.Message))
	// The reference lists the managers in a random order.
	var causes []string
	told, _ := failure.Details["causes"].([]any)
	for _, c := range told {
		cause, _ := c.(map[string]any)
		causes = append(causes, fmt.Sprintf("\n- %v at %v: %v", cause["reason"], cause["field"], cause["message"]))
	}
	slices.Sort(causes)
	delete(failure.Details, "causes")
	details, err := json.Marshal(failure.Details)
	if err != nil {
		return "", err
	}
	fmt.Fprintf(&out, "\ndetails %s", details)
	for _, cause := range causes {
		out.WriteString(cause)
	}
	return out.String(), nil
}
