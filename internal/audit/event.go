package audit

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"plinth/internal/access"
	"plinth/object"
)

// event is a record at one stage, with the members of audit.k8s.io/v1 Event.
type event struct {
	level            Level
	id               string
	stage            Stage
	uri, verb        string
	user             access.User
	impersonated     *access.User
	constraint       string // the verb by which constrained impersonation was allowed
	sourceIPs        []string
	userAgent        string
	object           *ObjectRef
	status           *Status
	request          []byte // JSON in one line; nil: none
	response         []byte
	received, staged time.Time
	annotations      []annotation
}

type annotation struct{ key, value string }

// ObjectRef is the object or collection of a request, as ObjectReference in audit.k8s.io/v1.
type ObjectRef struct {
	Resource, Namespace, Name, UID, Group, Version, ResourceVersion, Subresource string
}

// Status is the status of a response, as metav1.Status.
type Status struct {
	Status, Message, Reason string
	Details                 []byte // JSON in one line; nil: none
	Code                    int
}

const typeHead = `{"kind":"Event","apiVersion":"audit.k8s.io/v1",`

// appendLine prints the event as a line of the log.
func (e *event) appendLine(dst []byte) []byte {
	dst = append(dst, typeHead...)
	return append(e.appendMembers(dst), '}', '\n')
}

// appendItem prints the event as an item of a list, without kind and apiVersion.
func (e *event) appendItem(dst []byte) []byte {
	return append(e.appendMembers(append(dst, '{')), '}')
}

// appendMembers prints the members in the order of the reference.
func (e *event) appendMembers(dst []byte) []byte {
	dst = appendText(dst, `"level":`, string(e.level))
	dst = appendText(dst, `,"auditID":`, e.id)
	dst = appendText(dst, `,"stage":`, string(e.stage))
	dst = appendText(dst, `,"requestURI":`, e.uri)
	dst = appendText(dst, `,"verb":`, e.verb)
	dst = appendUser(append(dst, `,"user":`...), &e.user)
	if e.impersonated != nil {
		dst = appendUser(append(dst, `,"impersonatedUser":`...), e.impersonated)
	}
	if e.constraint != "" {
		dst = appendText(dst, `,"authenticationMetadata":{"impersonationConstraint":`, e.constraint)
		dst = append(dst, '}')
	}
	if len(e.sourceIPs) > 0 {
		dst = appendTexts(append(dst, `,"sourceIPs":`...), e.sourceIPs)
	}
	if e.userAgent != "" {
		dst = appendText(dst, `,"userAgent":`, e.userAgent)
	}
	if e.object != nil {
		dst = e.object.append(append(dst, `,"objectRef":`...))
	}
	if e.status != nil {
		dst = e.status.append(append(dst, `,"responseStatus":`...))
	}
	if e.request != nil {
		dst = append(append(dst, `,"requestObject":`...), e.request...)
	}
	if e.response != nil {
		dst = append(append(dst, `,"responseObject":`...), e.response...)
	}
	dst = appendTime(append(dst, `,"requestReceivedTimestamp":"`...), e.received)
	dst = appendTime(append(dst, `","stageTimestamp":"`...), e.staged)
	dst = append(dst, '"')
	for i, a := range e.annotations {
		head := `,`
		if i == 0 {
			head = `,"annotations":{`
		}
		dst = object.AppendString(append(dst, head...), a.key)
		dst = appendText(dst, `:`, a.value)
	}
	if len(e.annotations) > 0 {
		dst = append(dst, '}')
	}
	return dst
}

func appendText(dst []byte, head, text string) []byte {
	return object.AppendString(append(dst, head...), text)
}

func appendTexts(dst []byte, list []string) []byte {
	dst = append(dst, '[')
	for i, text := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = object.AppendString(dst, text)
	}
	return append(dst, ']')
}

// timeFormat is that of metav1.MicroTime.
const timeFormat = "2006-01-02T15:04:05.000000Z"

func appendTime(dst []byte, t time.Time) []byte { return t.UTC().AppendFormat(dst, timeFormat) }

// members prints the members of an object that are not empty.
type members struct {
	dst  []byte
	more bool
}

func (m *members) key(name string) {
	if m.more {
		m.dst = append(m.dst, ',')
	}
	m.more = true
	m.dst = append(append(append(m.dst, '"'), name...), `":`...)
}

func (m *members) text(name, value string) {
	if value != "" {
		m.key(name)
		m.dst = object.AppendString(m.dst, value)
	}
}

func appendUser(dst []byte, u *access.User) []byte {
	m := members{dst: append(dst, '{')}
	m.text("username", u.Name)
	m.text("uid", u.UID)
	if len(u.Groups) > 0 {
		m.key("groups")
		m.dst = appendTexts(m.dst, u.Groups)
	}
	if len(u.Extra) > 0 {
		m.key("extra")
		extra := members{dst: append(m.dst, '{')}
		for _, key := range slices.Sorted(maps.Keys(u.Extra)) {
			if extra.more {
				extra.dst = append(extra.dst, ',')
			}
			extra.more = true
			extra.dst = append(object.AppendString(extra.dst, key), ':')
			extra.dst = appendTexts(extra.dst, u.Extra[key])
		}
		m.dst = append(extra.dst, '}')
	}
	return append(m.dst, '}')
}

func (o *ObjectRef) append(dst []byte) []byte {
	m := members{dst: append(dst, '{')}
	m.text("resource", o.Resource)
	m.text("namespace", o.Namespace)
	m.text("name", o.Name)
	m.text("uid", o.UID)
	m.text("apiGroup", o.Group)
	m.text("apiVersion", o.Version)
	m.text("resourceVersion", o.ResourceVersion)
	m.text("subresource", o.Subresource)
	return append(m.dst, '}')
}

func (s *Status) append(dst []byte) []byte {
	m := members{dst: append(dst, `{"metadata":{}`...), more: true}
	m.text("status", s.Status)
	m.text("message", s.Message)
	m.text("reason", s.Reason)
	if s.Details != nil {
		m.key("details")
		m.dst = append(m.dst, s.Details...)
	}
	if s.Code != 0 {
		m.key("code")
		m.dst = strconv.AppendInt(m.dst, int64(s.Code), 10)
	}
	return append(m.dst, '}')
}

// appendLegacy prints the event as the line of text of --audit-log-format=legacy.
func (e *event) appendLegacy(dst []byte) []byte {
	user, groups, as, asGroups := "<none>", "<none>", "<self>", "<lookup>"
	if e.user.Name != "" {
		user = e.user.Name
		if len(e.user.Groups) > 0 {
			groups = quoted(e.user.Groups)
		}
	}
	if e.impersonated != nil {
		as = e.impersonated.Name
		if e.impersonated.Groups != nil {
			asGroups = quoted(e.impersonated.Groups)
		}
	}
	namespace, response, ip := "<none>", "<deferred>", "<unknown>"
	if e.object != nil && e.object.Namespace != "" {
		namespace = e.object.Namespace
	}
	if e.status != nil {
		response = strconv.Itoa(e.status.Code)
	}
	if len(e.sourceIPs) > 0 {
		ip = e.sourceIPs[0]
	}
	return fmt.Appendf(dst,
		"%s AUDIT: id=%q stage=%q ip=%q method=%q user=%q groups=%q as=%q asgroups=%q user-agent=%q namespace=%q uri=%q response=\"%s\"\n",
		e.received.Format(time.RFC3339Nano), e.id, e.stage, ip, e.verb, user, groups, as, asGroups, e.userAgent, namespace,
		e.uri, response)
}

func quoted(list []string) string {
	parts := make([]string, len(list))
	for i, text := range list {
		parts[i] = strconv.Quote(text)
	}
	return strings.Join(parts, ",")
}
