package validation

import (
	"bytes"
	"encoding/json"
	"strings"

	"plinth/internal/fielderrors"
	"plinth/object"
)

// This file shows values of Go types without JSON names, in error messages, as the reference shows them.

// goField is a field of a Go type of the reference that has no JSON names: it shows every field, under its Go name, in
// order.
type goField struct {
	name   string    // Go's
	member string    // ours
	zero   string    // what is shown for a member that is missing; "": null
	inner  []goField // the fields of a struct, of a list of them, or of what a pointer points to
	order  []string  // of the members of a type that does have JSON names
}

// goForm is a value that the reference holds in such a type.
type goForm struct {
	value  object.Value
	fields []goField
}

// MarshalJSON implements json.Marshaler.
func (g goForm) MarshalJSON() ([]byte, error) { return appendGo(nil, g.value, g.fields), nil }

func appendGo(dst []byte, v object.Value, fields []goField) []byte {
	switch {
	case v.Kind() == object.List && fields != nil:
		dst = append(dst, '[')
		for i, item := range v.Items() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendGo(dst, item, fields)
		}
		return append(dst, ']')
	case v.Kind() != object.Map || fields == nil:
		return object.AppendJSON(dst, v)
	}
	dst = append(dst, '{')
	for i, field := range fields {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(object.AppendString(dst, field.name), ':')
		if member := v.At(field.member); member.IsNull() && field.zero != "" {
			dst = append(dst, field.zero...)
		} else if len(field.order) > 0 {
			dst = fielderrors.AppendShown(dst, member, field.order)
		} else {
			dst = appendGo(dst, member, field.inner)
		}
	}
	return append(dst, '}')
}

var (
	podClaimFields = []goField{{name: "Name", member: "name", zero: `""`}, {name: "ResourceClaimName", member: "resourceClaimName"},
		{name: "ResourceClaimTemplateName", member: "resourceClaimTemplateName"}}
	seccompFields         = []goField{{name: "Type", member: "type", zero: `""`}, {name: "LocalhostProfile", member: "localhostProfile"}}
	securityContextFields = []goField{
		{name: "Capabilities", member: "capabilities", inner: []goField{{name: "Add", member: "add"}, {name: "Drop", member: "drop"}}},
		{name: "Privileged", member: "privileged"},
		{name: "SELinuxOptions", member: "seLinuxOptions", inner: []goField{{name: "User", member: "user", zero: `""`},
			{name: "Role", member: "role", zero: `""`}, {name: "Type", member: "type", zero: `""`}, {name: "Level", member: "level", zero: `""`}}},
		{name: "WindowsOptions", member: "windowsOptions", inner: []goField{{name: "GMSACredentialSpecName", member: "gmsaCredentialSpecName"},
			{name: "GMSACredentialSpec", member: "gmsaCredentialSpec"}, {name: "RunAsUserName", member: "runAsUserName"}, {name: "HostProcess", member: "hostProcess"}}},
		{name: "RunAsUser", member: "runAsUser"}, {name: "RunAsGroup", member: "runAsGroup"}, {name: "RunAsNonRoot", member: "runAsNonRoot"},
		{name: "ReadOnlyRootFilesystem", member: "readOnlyRootFilesystem"}, {name: "AllowPrivilegeEscalation", member: "allowPrivilegeEscalation"},
		{name: "ProcMount", member: "procMount"},
		{name: "SeccompProfile", member: "seccompProfile", inner: seccompFields},
		{name: "AppArmorProfile", member: "appArmorProfile", inner: seccompFields},
	}
)

// prettyLines is a value as indented JSON, line by line.
func prettyLines(v object.Value) []string {
	var text bytes.Buffer
	if err := json.Indent(&text, object.AppendJSON(nil, v), "", " "); err != nil { // cannot be: it has just been printed
		return nil
	}
	return strings.Split(text.String(), "\n")
}
