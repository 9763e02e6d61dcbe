package validation

import (
	"encoding/base64"
	"slices"

	"plinth/internal/fielderrors"
	"plinth/internal/webhook"
	"plinth/object"
)

// ratchetingOf returns the rules that an old definition breaks. New rules were added over the years, and definitions
// that were stored before must stay writable.
func (c *checker) ratchetingOf(before *definition, old object.Value) ratcheting {
	def := &c.def
	state, _ := ApprovalOf(old)
	reviews := before.spec.At("conversion", "webhook", "conversionReviewVersions")
	established := isEstablished(old)
	e := ratcheting{
		badCABundle:      !established || BadCABundle(before.spec.At("conversion", "webhook", "clientConfig")) != nil,
		unknownReviews:   reviews.Len() > 0 && !understands(reviews),
		changedNames:     !established,
		missingSchemas:   !before.allHaveSchemas(),
		badTypes:         before.anySchema(hasBadTypes),
		notStructural:    before.anySchema(isNotStructural),
		unprunedDefaults: before.anySchema(c.hasUnprunedDefaults),
		compositeSets:    before.anySchema(hasCompositeSets),
		looseKeys:        before.anySchema(hasLooseKeys),
		preserveUnknown:  before.spec.At("preserveUnknownFields").Bool(),
		approval:         &state,
		unchangedSchemas: map[string]bool{},
		manySelectable:   map[string]bool{},
	}
	for i := range def.versions {
		name := def.versions[i].name
		if object.Equal(def.schemaOf(name), before.schemaOf(name)) {
			e.unchangedSchemas[name] = true
		}
	}
	e.selectable(def, before)
	e.expressions(before)
	return e
}

// expressions collects the rules and messageExpressions of the old definition. They may use functions of CEL libraries
// that new rules may not use yet.
func (e *ratcheting) expressions(before *definition) {
	stored := [2]map[string]bool{{}, {}}
	before.anySchema(func(schema object.Value) bool {
		return anyNode(schema, func(n *node) bool {
			for _, rule := range n.rules.Items() {
				stored[0][rule.At("rule").Str()] = true
				if message := rule.At("messageExpression").Str(); message != "" {
					stored[1][message] = true
				}
			}
			return false
		})
	})
	e.storedExpressions = func(expression string, message bool) bool {
		if message {
			return stored[1][expression]
		}
		return stored[0][expression]
	}
}

// selectable finds selectable fields that exceed the limit and are unchanged.
func (e *ratcheting) selectable(def, previous *definition) {
	kept := func(now, before object.Value) bool {
		return before.Len() > maxSelectableFields && object.Equal(now, before)
	}
	e.manySelectable[""] = kept(def.moved.selectable, previous.moved.selectable)
	before := map[string]object.Value{}
	for i := range previous.versions {
		before[previous.versions[i].name] = previous.versions[i].selectable
	}
	for i := range def.versions {
		if v := &def.versions[i]; kept(v.selectable, before[v.name]) {
			e.manySelectable[v.name] = true
		}
	}
}

// isEstablished says whether a definition is established.
func isEstablished(crd object.Value) bool {
	for _, condition := range crd.At("status", "conditions").Items() {
		if condition.At("type").Str() == "Established" {
			return condition.At("status").Str() == "True"
		}
	}
	return false
}

// BadCABundle is the error in the certificates of a client configuration; nil if it has no certificates.
func BadCABundle(client object.Value) error {
	text := client.At("caBundle").Str()
	bundle, err := base64.StdEncoding.DecodeString(text)
	if text == "" || err != nil { // decoding has checked that it is base64
		return nil
	}
	_, err = webhook.CABundle(bundle)
	return err
}

func hasBadTypes(schema object.Value) bool {
	return anyNode(schema, func(n *node) bool { return n.typ != "" && !slices.Contains(types, n.typ) })
}

func isNotStructural(schema object.Value) bool {
	var c checker
	return unconvertible(schema) != "" || !c.structural(schema, nil)
}

func hasCompositeSets(schema object.Value) bool {
	return anyNode(schema, func(n *node) bool {
		item := read(n.item())
		return n.listType == "set" && compositeItem(&item) != ""
	})
}

func hasLooseKeys(schema object.Value) bool {
	return anyNode(schema, func(n *node) bool {
		c := checker{Errors: fielderrors.Errors{}}
		c.tightKeys(n, nil)
		return len(c.List) > 0
	})
}
