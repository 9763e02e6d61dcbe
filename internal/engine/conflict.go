package engine

import (
	"fmt"
	"strings"
	"unicode"

	"plinth/internal/apierr"
	"plinth/merge"
	"plinth/object"
)

// conflict is the error for the conflicts of an apply (SSA-4, BEY-2). The causes and the first line of the message are
// the reference's, which clients parse. The lines after it are ours: for each field its path, its live value, its owner
// and the value in the intent, and at the end the ways to resolve the conflict, as commands. Beyond the limit of
// merge.ConflictError, conflicts are only counted.
func (rq *Request) conflict(live object.Value, e *merge.ConflictError) error {
	err := &apierr.Error{Code: 409, Reason: apierr.Conflict, Details: &apierr.Details{}}
	var told strings.Builder
	fmt.Fprintf(&told, "%v\n\n%s:", e, rq.subject())
	for i := range e.Conflicts {
		c := &e.Conflicts[i]
		err.Details.Causes = append(err.Details.Causes, apierr.Cause{
			Reason: "FieldManagerConflict", Message: "conflict with " + c.By(), Field: c.Path.String(),
		})
		fmt.Fprintf(&told, "\n  %s is %s, owned by %s; this apply wants %s", c.Path, rq.shown(c.Live), ownerText(&c.With),
			rq.shown(c.Wanted))
	}
	if e.More > 0 {
		fmt.Fprintf(&told, "\n  … and %d more", e.More)
	}
	told.WriteString("\n" + rq.waysOut())
	err.Message = told.String()
	return err
}

// An example of a message:
//
//	Apply failed with 1 conflict: conflict with "hpa" with subresource "scale" using apps/v1: .spec.replicas
//
//	deployments.apps "web" in namespace "default":
//	  .spec.replicas is 5, owned by "hpa" (Update through /scale, 2026-01-02T03:04:05Z); this apply wants 1
//	To take these fields over: kubectl apply --server-side --field-manager=alice --force-conflicts -n default -f FILE
//	…

// subject names the object: `deployments.apps "web" in namespace "default"`.
func (rq *Request) subject() string {
	text := fmt.Sprintf("%s %q", rq.Resource.Type().String(), rq.Name)
	if rq.Namespace != "" {
		text += fmt.Sprintf(" in namespace %q", rq.Namespace)
	}
	return text
}

// ownerText names the owner of a field, with its operation, its subresource if there is one, and its time: `"kubectl"
// (Apply through /scale, 2026-01-02T03:04:05Z)`.
func ownerText(e *merge.Entry) string {
	text := fmt.Sprintf("%q (%s", e.Manager, e.Operation)
	if e.Subresource != "" {
		text += " through /" + e.Subresource
	}
	if e.Time != "" {
		text += ", " + e.Time
	}
	return text + ")"
}

// maxShownValue is how many bytes of a value a conflict shows. A field can be a ConfigMap's value of a megabyte.
const maxShownValue = 200

// shown is a value as a conflict shows it: as JSON, cut after maxShownValue bytes, not within a character. Values of
// Secrets are not shown: an error message ends up in logs, and the user of an apply may have no right to read.
func (rq *Request) shown(v object.Value) string {
	if rq.Resource.Confidential {
		return "(not shown)"
	}
	text := string(object.AppendJSON(nil, v))
	if len(text) > maxShownValue {
		text = strings.ToValidUTF8(text[:maxShownValue], "") + "…"
	}
	return text
}

// waysOut lists the ways to resolve a conflict: force it, give the fields up, or share them. Two managers that apply
// the same value both own the field, without a conflict. A line with a command ends with it; each can be run as it is,
// with the intent in FILE.
func (rq *Request) waysOut() string {
	object := shellWord(rq.resourceArgument() + "/" + rq.Name)
	through := ""
	if rq.Namespace != "" {
		object += " -n " + rq.Namespace
		through = " -n " + rq.Namespace
	}
	force := "repeat the request with force=true"
	switch sub := rq.Subresource; {
	case sub == nil:
		force = rq.forced(through)
	case sub.Kind == rq.Resource.Kind && sub.Group == rq.Resource.Group:
		force = rq.forced(through + " --subresource=" + sub.Name)
		// kubectl finds the URL by the kind in FILE: it cannot apply a Scale.
	}
	return "To take these fields over: " + force +
		"\nTo leave them to their owners: remove them from FILE and apply it again" +
		"\nTo share them: give them the live values in FILE and apply it again; these are shown by kubectl get " + object +
		" -o yaml --show-managed-fields"
}

// forced is the command that repeats an apply and takes over the fields of others.
func (rq *Request) forced(flags string) string {
	return "kubectl apply --server-side --field-manager=" + shellWord(rq.manager()) + " --force-conflicts" + flags +
		" -f FILE"
}

// resourceArgument names the resource to kubectl, in the version of this request: its values are in the form of FILE.
// The core group has one version, and kubectl needs none there.
func (rq *Request) resourceArgument() string {
	r := rq.Resource
	if r.Group == "" {
		return r.Name
	}
	return r.Name + "." + r.Version + "." + r.Group
}

// shellWord quotes a word for the shell if it needs that. Names of managers have any printable characters, those of
// some types any but / and %.
func shellWord(word string) string {
	quoted := func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_./:@+,", r)
	}
	if word != "" && strings.IndexFunc(word, quoted) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
