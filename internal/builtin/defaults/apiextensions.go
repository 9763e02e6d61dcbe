package defaults

import (
	"strings"

	"plinth/object"
)

// CustomResourceDefinition defaults a CustomResourceDefinition.
func CustomResourceDefinition(obj object.Value) object.Value {
	w := over(obj)
	w.part("spec", definitionSpec)
	w.part("status", func(status object.Value) object.Value {
		return definitionStatus(status,
			obj.At("spec", "versions"))
	})
	return w.done()
}

func definitionSpec(spec object.Value) object.Value {
	w := over(spec)
	w.part("conversion", definitionConversion)
	w.part("names", definitionNames)
	return w.done()
}

func definitionConversion(conversion object.Value) object.Value {
	if conversion.IsNull() {
		return object.Fields("strategy", object.StringOf("None"))
	}
	return optionalOf(conversion, "webhook", definitionWebhook)
}

func definitionWebhook(hook object.Value) object.Value {
	return optionalOf(hook, "clientConfig", webhookClientConfig)
}

func definitionNames(names object.Value) object.Value {
	kind := names.At("kind").Str()
	if kind == "" {
		return names
	}
	w := over(names)
	w.text("listKind", kind+"List")
	w.text("singular", strings.ToLower(kind))
	return w.done()
}

// definitionStatus sets status.storedVersions of a new definition to its storage version.
func definitionStatus(status, versions object.Value) object.Value {
	w := over(status)
	if w.get("storedVersions").Len() > 0 {
		return status
	}
	for _, version := range versions.Items() {
		if version.At("storage").Bool() {
			w.set("storedVersions", object.ListOf(version.At("name")))
			break
		}
	}
	return w.done()
}
