package validation

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	"plinth/internal/fielderrors"
	"plinth/object"
)

// maxData is the maximum total number of bytes in the values of a ConfigMap or a Secret.
const maxData = 1 << 20

const whenImmutable = "field is immutable when `immutable` is set"

func configMapCreate(f *errorList, config object.Value) {
	f.qualifiedFinalizers(config)
	var root *fielderrors.Location
	data, binary := config.At("data"), config.At("binaryData")
	size := 0
	for _, m := range data.Members() {
		f.Each(root.To("data").Key(m.Key), m.Key, configKeyErrors(m.Key))
		if _, twice := binary.Get(m.Key); twice {
			f.Invalid(root.To("data").Key(m.Key), m.Key, "duplicate of key present in binaryData")
		}
		size += m.Value.Len()
	}
	for _, m := range binary.Members() {
		f.Each(root.To("binaryData").Key(m.Key), m.Key, configKeyErrors(m.Key))
		size += decodedLength(m.Value.Str())
	}
	if size > maxData {
		f.TooLong(root.To(""), maxData)
	}
}

// decodedLength is the number of bytes that a base64 text encodes.
func decodedLength(s string) int {
	return base64.StdEncoding.DecodedLen(len(s)) - strings.Count(s, "=")
}

func configMapUpdate(f *errorList, config, old object.Value) {
	f.frozen(config, old, "data", "binaryData")
	configMapCreate(f, config)
}

// frozen refuses changes of an object that has been declared immutable.
func (f *errorList) frozen(obj, old object.Value, members ...string) {
	if !truth(old, "immutable") {
		return
	}
	if !truth(obj, "immutable") {
		f.Forbidden((*fielderrors.Location)(nil).To("immutable"), whenImmutable)
	}
	for _, key := range members {
		if now, before := obj.At(key), old.At(key); !object.Equal(now, before) {
			f.Forbidden((*fielderrors.Location)(nil).To(key), whenImmutable)
		}
	}
}

func secretCreate(f *errorList, secret object.Value) {
	f.qualifiedFinalizers(secret)
	at := (*fielderrors.Location)(nil).To("data")
	data := secret.At("data")
	size := 0
	for _, m := range data.Members() {
		f.Each(at.Key(m.Key), m.Key, configKeyErrors(m.Key))
		size += decodedLength(m.Value.Str())
	}
	if size > maxData {
		f.TooLong(at, maxData)
	}
	f.secretOfType(secret, data, at)
}

const accountAnnotation = "kubernetes.io/service-account.name"

// secretOfType demands the data that a Secret of a well-known type must have.
func (f *errorList) secretOfType(secret, data object.Value, p *fielderrors.Location) {
	switch text(secret, "type") {
	case "kubernetes.io/service-account-token":
		if text(secret.At("metadata", "annotations"), accountAnnotation) == "" {
			f.Required((*fielderrors.Location)(nil).To("metadata").To("annotations").Key(accountAnnotation), "")
		}
	case "kubernetes.io/dockercfg":
		f.jsonInSecret(data, ".dockercfg", p)
	case "kubernetes.io/dockerconfigjson":
		f.jsonInSecret(data, ".dockerconfigjson", p)
	case "kubernetes.io/basic-auth":
		_, user := data.Get("username")
		if _, password := data.Get("password"); !user && !password {
			f.Required(p.Key("username"), "")
			f.Required(p.Key("password"), "")
		}
	case "kubernetes.io/ssh-auth":
		if text(data, "ssh-privatekey") == "" {
			f.Required(p.Key("ssh-privatekey"), "")
		}
	case "kubernetes.io/tls":
		for _, key := range [...]string{"tls.crt", "tls.key"} {
			if _, ok := data.Get(key); !ok {
				f.Required(p.Key(key), "")
			}
		}
	}
}

// jsonInSecret demands a JSON object under a key.
func (f *errorList) jsonInSecret(data object.Value, key string, p *fielderrors.Location) {
	value, ok := data.Get(key)
	if !ok {
		f.Required(p.Key(key), "")
		return
	}
	text, _ := base64.StdEncoding.DecodeString(value.Str()) // decoding has refused other texts
	if err := json.Unmarshal(text, &map[string]any{}); err != nil {
		f.Invalid(p.Key(key), "<secret contents redacted>", err.Error())
	}
}

func secretUpdate(f *errorList, secret, old object.Value) {
	if now := text(secret, "type"); now != text(old, "type") {
		f.Invalid((*fielderrors.Location)(nil).To("type"), fielderrors.Word(now), fielderrors.Immutable)
	}
	f.frozen(secret, old, "data")
	secretCreate(f, secret)
}

// finalizersOnly are the rules of kinds whose members are not restricted.
var finalizersOnly = Kind{
	create: (*errorList).qualifiedFinalizers,
	update: func(f *errorList, obj, _ object.Value) { f.qualifiedFinalizers(obj) },
	status: func(f *errorList, obj, _ object.Value) { f.qualifiedFinalizers(obj) },
}

func namespaceCreate(f *errorList, namespace object.Value) {
	f.qualifiedFinalizers(namespace)
	f.namespaceFinalizers(namespace, (*fielderrors.Location)(nil).To("spec").To("finalizers"))
}

func (f *errorList) namespaceFinalizers(namespace object.Value, p *fielderrors.Location) {
	for _, item := range namespace.At("spec", "finalizers").Items() {
		f.qualified(p, item.Str())
		f.finalizerName(p, item.Str())
	}
}

func namespaceStatus(f *errorList, namespace, _ object.Value) {
	f.qualifiedFinalizers(namespace)
	phase := text(namespace.At("status"), "phase")
	at := (*fielderrors.Location)(nil).To("status").To("Phase")
	deleting := has(namespace.At("metadata"), "deletionTimestamp")
	if !deleting && phase != "Active" {
		f.Invalid(at, fielderrors.Word(phase), "may only be 'Active' if `deletionTimestamp` is empty")
	}
	if deleting && phase != "Terminating" {
		f.Invalid(at, fielderrors.Word(phase), "may only be 'Terminating' if `deletionTimestamp` is not empty")
	}
}
