package custom

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// tally counts the features of the cases, so that a generator that no longer produces one of them is noticed.
type tally struct {
	schemas, refusedSchemas, refusedObjects, valid, invalid, updates, ratchets int

	accepted, refused map[string]int // by keyword
	why               map[string]int // why schemas were refused
}

func newTally() *tally {
	return &tally{accepted: map[string]int{}, refused: map[string]int{}, why: map[string]int{}}
}

func (c *tally) schema(node) { c.schemas++ }

// words are the texts by which the causes of a keyword are recognised.
var words = map[string]string{
	"minimum": "greater than or equal to", "exclusiveMinimum": "should be greater than ",
	"maximum":          "less than or equal to",
	"exclusiveMaximum": "should be less than ", "multipleOf": "should be a multiple of", "minLength": "chars long",
	"maxLength": "Too long",
	"pattern":   "should match", "enum": "Unsupported value", "minItems": "should have at least",
	"maxItems":      "must have at most",
	"minProperties": "properties", "maxProperties": "must have at most", "required": "Required value", "allOf": "(allOf)",
	"anyOf": "(anyOf)", "oneOf": "(oneOf)",
	"not": "(not)", "type": "must be of type", "format": "must be of type", "set": "Duplicate value",
	"map": "Duplicate value", "embedded": "metadata.",
}

// object counts the keywords that a valid object has passed, or those that have refused it.
func (c *tally) object(s node, v any, causes []string) {
	if len(causes) == 0 {
		c.valid++
		c.passed(s, v)
		return
	}
	c.invalid++
	for keyword, text := range words {
		for _, cause := range causes {
			if strings.Contains(cause, text) {
				c.refused[keyword]++
				break
			}
		}
	}
	for _, format := range formats {
		for _, cause := range causes {
			if strings.Contains(cause, "must be of type "+format+":") {
				c.refused["format "+format]++
				break
			}
		}
	}
}

// passed counts the keywords that apply to a valid value.
func (c *tally) passed(s node, v any) {
	for keyword, content := range s {
		switch keyword {
		case "properties", "items", "additionalProperties", "description", "default":
		case "format":
			if _, isText := v.(string); isText {
				c.accepted["format "+content.(string)]++
			}
			c.accepted[keyword]++
		case "x-kubernetes-list-type":
			c.accepted[content.(string)]++
		case "x-kubernetes-embedded-resource":
			c.accepted["embedded"]++
		default:
			c.accepted[keyword]++
		}
	}
	switch v := v.(type) {
	case map[string]any:
		properties, _ := s["properties"].(node)
		for key, member := range v {
			if of, ok := properties[key].(node); ok {
				c.passed(of, member)
			} else if of, ok := s["additionalProperties"].(node); ok {
				c.passed(of, member)
			}
		}
	case []any:
		if of, ok := s["items"].(node); ok {
			for _, item := range v {
				c.passed(of, item)
			}
		}
	}
}

// ratcheted counts updates that would have been refused as creates.
func (c *tally) ratcheted(create, _ []string, update field.ErrorList) {
	if len(update) < len(create) {
		c.ratchets++
	}
}

// check holds the counts against their floors.
func (c *tally) check(t *testing.T, schemas uint64) {
	t.Logf("%+v", *c)
	for text, n := range c.why {
		t.Logf("%4d %.150s", n, text)
	}
	if t.Failed() || schemas < 200 {
		return
	}
	scale := int(schemas) / 200
	atLeast := func(what string, n, least int) {
		if n < least*scale {
			t.Errorf("%s: only %d, and not %d", what, n, least*scale)
		}
	}
	atLeast("schemas", c.schemas, 100)
	atLeast("objects that decoding refuses", c.refusedObjects, 20)
	atLeast("valid objects", c.valid, 200)
	atLeast("invalid objects", c.invalid, 200)
	atLeast("updates", c.updates, 200)
	atLeast("updates that ratcheting lets pass", c.ratchets, 20)
	for keyword := range words {
		atLeast(keyword+" accepts", c.accepted[keyword], 2)
		atLeast(keyword+" refuses", c.refused[keyword], 2)
	}
}
