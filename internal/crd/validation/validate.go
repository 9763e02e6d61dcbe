package validation

import (
	"slices"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/fielderrors"
	"plinth/internal/webhook"
	"plinth/object"
)

// checker collects the errors of one definition.
type checker struct {
	fielderrors.Errors
	Options
	ratcheting
	def definition

	errorText, counted int // see full
}

// maxErrorText limits the text of the errors of one definition. Every node of a deep schema can have errors, and a
// path is as long as its node is deep, so the text would otherwise grow with the square of the schema's size.
const maxErrorText = 1 << 20

// full says that a walk may end: the text has reached the limit, and the definition is refused anyway, or validation is
// to stop.
func (c *checker) full() bool {
	if c.Stop != nil && c.Stop() != nil {
		return true
	}
	for ; c.counted < len(c.List); c.counted++ {
		c.errorText += len(c.List[c.counted].Field) + len(c.List[c.counted].Detail)
	}
	return c.errorText > maxErrorText
}

// ratcheting are the rules that do not apply to an update, because the old object breaks them already. For a new
// object only badCABundle is set.
type ratcheting struct {
	badCABundle       bool
	unknownReviews    bool // conversionReviewVersions without one that the server supports
	changedNames      bool // of a definition that is not established yet
	missingSchemas    bool // versions without a schema
	badTypes          bool // types that OpenAPI does not have
	notStructural     bool // schemas that are not structural
	unprunedDefaults  bool // defaults with unknown fields
	compositeSets     bool // sets of items that are not atomic
	looseKeys         bool // sets and maps whose items or keys may be null or missing
	storedExpressions func(expression string, message bool) bool
	unchangedSchemas  map[string]bool // versions with an unchanged schema
	manySelectable    map[string]bool // versions that may exceed the limit of selectable fields; "" is spec
	preserveUnknown   bool
	approval          *Approval // the old object's approval; nil: there is no old object
}

var root *fielderrors.Location

// Names validates the name of a definition, which must be its plural, a dot and its group. It is used by
// objectmeta.ObjectMeta.
func Names(crd object.Value) func(name string, prefix bool) []string {
	spec := crd.At("spec")
	demanded := spec.At("names", "plural").Str() + "." + spec.At("group").Str()
	return func(name string, prefix bool) []string {
		wrong := apivalidation.NameIsDNSSubdomain(name, prefix)
		if name != demanded {
			wrong = append(slices.Clip(wrong), `must be spec.names.plural+"."+spec.group`)
		}
		return wrong
	}
}

// Validate validates a new definition.
func Validate(crd object.Value, o Options) field.ErrorList {
	c := &checker{Options: o, def: newDefinition(crd), ratcheting: ratcheting{badCABundle: true}}
	c.spec()
	c.rest(crd)
	return c.List
}

// ValidateUpdate validates a definition that replaces old. The storage version has already been added to
// status.storedVersions.
func ValidateUpdate(crd, old object.Value, o Options) field.ErrorList {
	c := &checker{Options: o, def: newDefinition(crd)}
	before := newDefinition(old)
	c.ratcheting = c.ratchetingOf(&before, old)
	c.spec()
	c.unchanged(&before)
	c.rest(crd)
	return c.List
}

// ValidateStatusUpdate validates a write of the status. It validates the accepted names; the stored versions are taken
// from the client as they are.
func ValidateStatusUpdate(crd, _ object.Value) field.ErrorList {
	c := &checker{}
	c.names(crd.At("status", "acceptedNames"), root.To("status").To("acceptedNames"))
	return c.List
}

// rest validates everything but the spec.
func (c *checker) rest(crd object.Value) {
	status := root.To("status")
	c.names(crd.At("status", "acceptedNames"), status.To("acceptedNames"))
	c.storedVersions(crd.At("status", "storedVersions"), status.To("storedVersions"))
	c.approved(crd)
	if c.def.spec.At("preserveUnknownFields").Bool() && !c.preserveUnknown {
		c.Invalid(root.To("spec").To("preserveUnknownFields"), true,
			"cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead")
	}
}

// unchanged refuses changes of fields that determine where objects are stored.
func (c *checker) unchanged(previous *definition) {
	p := root.To("spec")
	for _, path := range [...][]string{{"scope"}, {"names", "kind"}, {"group"}, {"names", "plural"}} {
		if (path[0] == "scope" || path[len(path)-1] == "kind") && c.changedNames {
			continue
		}
		now, before := c.def.spec.At(path...).Str(), previous.spec.At(path...).Str()
		if now == before {
			continue
		}
		at := p.To(path[0])
		if len(path) > 1 {
			at = at.To(path[1])
		}
		if path[0] == "scope" {
			c.Invalid(at, fielderrors.Word(now), fielderrors.Immutable)
		} else {
			c.Invalid(at, now, fielderrors.Immutable)
		}
	}
}

// storedVersions requires that the stored versions include the storage version, and that the definition has all of
// them.
func (c *checker) storedVersions(stored object.Value, p *fielderrors.Location) {
	if stored.Len() == 0 {
		c.Invalid(p, fielderrors.Show(stored), "must have at least one stored version")
		return
	}
	last := map[string]int{}
	for i, item := range stored.Items() {
		last[item.Str()] = i
	}
	for i := range c.def.versions {
		v := &c.def.versions[i]
		_, isStored := last[v.name]
		if v.storage && !isStored {
			c.Invalid(p, fielderrors.Show(stored), "must have the storage version "+v.name)
		}
		delete(last, v.name)
	}
	for i, item := range stored.Items() {
		name := item.Str()
		if at, missing := last[name]; missing && at == i {
			c.Invalid(p.Item(i), name,
				"missing from spec.versions; "+name+" was previously a storage version, and must remain in spec.versions "+
					"until a storage migration ensures no data remains persisted in "+name+" and removes "+name+
					" from status.storedVersions")
		}
	}
}

// conversion validates the conversion strategy.
func (c *checker) conversion() {
	conversion, p := c.def.spec.At("conversion"), root.To("spec").To("conversion")
	strategy := conversion.At("strategy").Str()
	if strategy != "None" && c.def.spec.At("preserveUnknownFields").Bool() {
		c.Invalid(p.To("strategy"), fielderrors.Word(strategy), "must be None if spec.preserveUnknownFields is true")
	}
	c.oneOf(p.To("strategy"), strategy, conversionStrategies)
	client, reviews := conversion.At("webhook", "clientConfig"), conversion.At("webhook", "conversionReviewVersions")
	at := p.To("webhookClientConfig")
	if strategy != "Webhook" {
		const without = "should not be set when strategy is not set to Webhook"
		if !client.IsNull() {
			c.Forbidden(at, without)
		}
		if reviews.Len() > 0 {
			c.Forbidden(p.To("conversionReviewVersions"), without)
		}
		return
	}
	if client.IsNull() {
		c.Required(at, "required when strategy is set to Webhook")
	} else {
		webhook.CheckClient(&c.Errors, client, at)
		if err := BadCABundle(client); err != nil && !c.badCABundle {
			c.Invalid(at.To("caBundle"), fielderrors.Show(client.At("caBundle")), err.Error())
		}
	}
	c.reviewVersions(reviews, p.To("conversionReviewVersions"))
}

// reviewVersions validates the review versions that a webhook supports.
func (c *checker) reviewVersions(versions object.Value, p *fielderrors.Location) {
	if versions.Len() == 0 {
		c.Required(p, "")
		return
	}
	seen := map[string]bool{}
	for i, item := range versions.Items() {
		version := item.Str()
		if seen[version] {
			c.Invalid(p.Item(i), version, "duplicate version")
			continue
		}
		seen[version] = true
		c.Each(p.Item(i), version, dnsLabelErrors(version))
	}
	if !c.unknownReviews && !understands(versions) {
		c.Invalid(p, fielderrors.Show(versions), "must include at least one of "+strings.Join(reviewVersions, ", "))
	}
}

// understands says whether the server supports one of these review versions.
func understands(versions object.Value) bool {
	return slices.ContainsFunc(versions.Items(),
		func(v object.Value) bool { return slices.Contains(reviewVersions, v.Str()) })
}
