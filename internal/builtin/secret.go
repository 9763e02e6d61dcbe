package builtin

import (
	"encoding/base64"

	"plinth/object"
)

// plainData moves stringData, which clients send as plain text, to data. It is never returned.
func plainData(obj object.Value) object.Value {
	plain, sent := obj.Get("stringData")
	if !sent {
		return obj
	}
	data := make([]object.Member, 0, plain.Len())
	for _, m := range plain.Members() {
		data = append(data, object.Member{Key: m.Key,
			Value: object.StringOf(base64.StdEncoding.EncodeToString([]byte(m.Value.Str())))})
	}
	if len(data) > 0 {
		obj = obj.With("data", obj.At("data").Edit(data))
	}
	return obj.Without("stringData")
}

// keepSecretType keeps the type if an update leaves it out.
func keepSecretType(obj, old object.Value) object.Value {
	if obj.At("type").Str() == "" {
		return keep(obj, old, "type")
	}
	return obj
}

// secretNames reduces the references of a ServiceAccount to Secrets to their names.
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
