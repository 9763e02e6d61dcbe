package builtin

import "plinth/object"

// keepSecretType takes a missing type for the old one.
func keepSecretType(obj, old object.Value) object.Value {
	if obj.At("type").Str() == "" {
		return keep(obj, old, "type")
	}
	return obj
}

// secretNames leaves only the names of the Secrets that a ServiceAccount refers to.
func secretNames(obj object.Value) object.Value {
	secrets := obj.At("secrets")
	for i, s := range secrets.Items() {
		name, ok := s.Get("name")
		switch {
		case !ok && s.Len() > 0:
			secrets = secrets.WithItem(i, object.MapOf())
		case ok && s.Len() > 1:
			secrets = secrets.WithItem(i, object.Fields("name", name))
		default:
			continue
		}
	}
	if secrets.Len() == 0 {
		return obj
	}
	return obj.With("secrets", secrets)
}
