package validation

import (
	"encoding/base64"
	"encoding/json"

	"plinth/object"
)

// maxData is how many bytes the values of a ConfigMap or a Secret may have together.
const maxData = 1 << 20

const whenImmutable = "field is immutable when `immutable` is set"

func configMapCreate(f *faults, config object.Value) {
	f.qualifiedFinalizers(config)
	var root *place
	data, binary := config.At("data"), config.At("binaryData")
	size := 0
	for _, m := range data.Members() {
		f.each(root.to("data").key(m.Key), m.Key, configKeyFaults(m.Key))
		if _, twice := binary.Get(m.Key); twice {
			f.invalid(root.to("data").key(m.Key), m.Key, "duplicate of key present in binaryData")
		}
		size += m.Value.Len()
	}
	for _, m := range binary.Members() {
		f.each(root.to("binaryData").key(m.Key), m.Key, configKeyFaults(m.Key))
		size += decodedLength(m.Value.Str())
	}
	if size > maxData {
		f.tooLong(root.to(""), maxData)
	}
}

// decodedLength is how many bytes a base64 text stands for.
func decodedLength(s string) int {
	n := len(s) / 4 * 3
	for i := len(s) - 1; i >= 0 && s[i] == '='; i-- {
		n--
	}
	return n
}

func configMapUpdate(f *faults, config, old object.Value) {
	f.frozen(config, old, "data", "binaryData")
	configMapCreate(f, config)
}

// frozen refuses changes of an object that has been declared immutable.
func (f *faults) frozen(obj, old object.Value, members ...string) {
	if !truth(old, "immutable") {
		return
	}
	if !truth(obj, "immutable") {
		f.forbidden((*place)(nil).to("immutable"), whenImmutable)
	}
	for _, key := range members {
		if now, was := obj.At(key), old.At(key); !object.Equal(now, was) {
			f.forbidden((*place)(nil).to(key), whenImmutable)
		}
	}
}

func secretCreate(f *faults, secret object.Value) {
	f.qualifiedFinalizers(secret)
	at := (*place)(nil).to("data")
	data := secret.At("data")
	size := 0
	for _, m := range data.Members() {
		f.each(at.key(m.Key), m.Key, configKeyFaults(m.Key))
		size += decodedLength(m.Value.Str())
	}
	if size > maxData {
		f.tooLong(at, maxData)
	}
	f.secretOfType(secret, data, at)
}

const accountAnnotation = "kubernetes.io/service-account.name"

// secretOfType demands what a Secret of a well-known type is to hold.
func (f *faults) secretOfType(secret, data object.Value, p *place) {
	switch text(secret, "type") {
	case "kubernetes.io/service-account-token":
		if text(secret.At("metadata", "annotations"), accountAnnotation) == "" {
			f.required((*place)(nil).to("metadata").to("annotations").key(accountAnnotation), "")
		}
	case "kubernetes.io/dockercfg":
		f.jsonInSecret(data, ".dockercfg", p)
	case "kubernetes.io/dockerconfigjson":
		f.jsonInSecret(data, ".dockerconfigjson", p)
	case "kubernetes.io/basic-auth":
		_, user := data.Get("username")
		if _, password := data.Get("password"); !user && !password {
			f.required(p.key("username"), "")
			f.required(p.key("password"), "")
		}
	case "kubernetes.io/ssh-auth":
		if text(data, "ssh-privatekey") == "" {
			f.required(p.key("ssh-privatekey"), "")
		}
	case "kubernetes.io/tls":
		for _, key := range [...]string{"tls.crt", "tls.key"} {
			if _, ok := data.Get(key); !ok {
				f.required(p.key(key), "")
			}
		}
	}
}

// jsonInSecret demands a JSON object under a key.
func (f *faults) jsonInSecret(data object.Value, key string, p *place) {
	value, ok := data.Get(key)
	if !ok {
		f.required(p.key(key), "")
		return
	}
	text, err := base64.StdEncoding.DecodeString(value.Str())
	if err == nil {
		err = json.Unmarshal(text, &map[string]any{})
	}
	if err != nil {
		f.invalid(p.key(key), "<secret contents redacted>", err.Error())
	}
}

func secretUpdate(f *faults, secret, old object.Value) {
	if now := text(secret, "type"); now != text(old, "type") {
		f.invalid((*place)(nil).to("type"), word(now), immutable)
	}
	f.frozen(secret, old, "data")
	secretCreate(f, secret)
}

// finalizersOnly are the rules of kinds whose own members may be anything.
var finalizersOnly = rule{
	create: (*faults).qualifiedFinalizers,
	update: func(f *faults, obj, _ object.Value) { f.qualifiedFinalizers(obj) },
	status: func(f *faults, obj, _ object.Value) { f.qualifiedFinalizers(obj) },
}

func namespaceCreate(f *faults, namespace object.Value) {
	f.qualifiedFinalizers(namespace)
	f.namespaceFinalizers(namespace, (*place)(nil).to("spec").to("finalizers"))
}

func (f *faults) namespaceFinalizers(namespace object.Value, p *place) {
	for _, item := range namespace.At("spec", "finalizers").Items() {
		f.qualified(p, item.Str())
		f.finalizerName(p, item.Str())
	}
}

func namespaceStatus(f *faults, namespace, _ object.Value) {
	f.qualifiedFinalizers(namespace)
	phase := text(namespace.At("status"), "phase")
	at := (*place)(nil).to("status").to("Phase")
	deleting := has(namespace.At("metadata"), "deletionTimestamp")
	if !deleting && phase != "Active" {
		f.invalid(at, word(phase), "may only be 'Active' if `deletionTimestamp` is empty")
	}
	if deleting && phase != "Terminating" {
		f.invalid(at, word(phase), "may only be 'Terminating' if `deletionTimestamp` is not empty")
	}
}
