package builtin

import (
	"context"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/engine"
	"plinth/object"
)

// statusRule says whether a kind has the subresource status, and which metadata a write to it may change (WRITE-4).
type statusRule uint8

const (
	noStatus        statusRule = iota
	statusAndMeta              // all metadata that the main URL may change, as most kinds have it
	statusNotOwners            // ownerReferences and deletionTimestamp stay
	statusNotLabels            // labels stay
	statusOnly                 // labels, annotations, finalizers and ownerReferences stay
	statusOnCreate             // as statusAndMeta, and a create may set the status, too
	statusNotMeta              // all metadata stay
)

// stays lists the metadata that a status write leaves as they are; for statusNotMeta, writeStatus keeps all of them.
var stays = [...][]string{
	statusNotOwners: {"ownerReferences", "deletionTimestamp"},
	statusNotLabels: {"labels"},
	statusOnly:      {"labels", "annotations", "finalizers", "ownerReferences"},
	statusNotMeta:   nil,
}

// statusOf is the status subresource of a kind.
func (k *kind) statusOf(r *engine.Resource, validate func(obj, old object.Value) field.ErrorList,
	warn func(obj, old object.Value) []string) *engine.Subresource {
	s := &engine.Subresource{
		Name: "status", Group: r.Group, Version: r.Version, Kind: r.Kind,
		Verbs:   []string{"get", "patch", "update"},
		Schema:  r.Schema,
		Default: r.Default,
		Warn:    warn,
		Tables:  !k.plainStatus,
		Write: func(old, body object.Value) (object.Value, error) {
			obj := k.writeStatus(old, body)
			if r.Default != nil { // defaults of metadata can depend on the spec, which is now the old one
				obj = keep(r.Default(obj), obj, "status")
			}
			return obj, nil
		},
	}
	if validate != nil {
		s.Validate = func(_ context.Context, _, obj, old object.Value) field.ErrorList { return validate(obj, old) }
	}
	return s
}

// writeStatus takes the status, and the metadata that may change, from the body of a write to the status URL, and all
// other fields from the old object.
func (k *kind) writeStatus(old, body object.Value) object.Value {
	obj := keep(body, old, "spec")
	if k.status == statusNotMeta {
		obj = keep(obj, old, "metadata")
	} else {
		obj = keepMeta(obj, old, stays[k.status]...)
	}
	obj = dropGated(obj, old, k.gatedStatus, k.features)
	if k.onStatus != nil {
		obj = k.onStatus(obj, old)
	}
	return obj
}

// keepMeta sets these fields of the metadata of obj to those of old.
func keepMeta(obj, old object.Value, keys ...string) object.Value {
	if len(keys) == 0 {
		return obj
	}
	before := old.At("metadata")
	var set []object.Member
	var drop []string
	for _, key := range keys {
		if v, ok := before.Get(key); ok {
			set = append(set, object.Member{Key: key, Value: v})
		} else {
			drop = append(drop, key)
		}
	}
	return obj.With("metadata", obj.At("metadata").Edit(set, drop...))
}
