package schema

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/object"
)

// This file validates custom objects against their schema: types, junctors, numbers of items and members, enums,
// required members. Strings and numbers are in scalars.go, embedded objects in embedded.go, list types in lists.go, and
// the rules of x-kubernetes-validations in package cel. Built-in objects have their own rules (internal/builtin).

// Validate returns the errors in an object of a custom type that has been decoded and has its defaults: the causes of
// the reference's 422, except for those of the object's own metadata, of its scale subresource and of its rules. old is
// the object that it replaces, null on create. The order of errors is that of the reference: the schema, embedded
// objects, lists; within the schema, where the reference iterates over a Go map in random order, members are visited in
// the order of their names.
//
// An update is not refused for errors in values that it leaves unchanged (ratcheting): errors of the schema are ignored
// in a value whose [Pair] is unchanged, and duplicates in lists are ignored if the old object has any. Embedded
// metadata is always validated.
//
// The text of the errors is bounded (maxReported), but an invalid object always has at least one error.
//
// The time is not bounded: it is the product of the value and the schema, which may apply thousands of patterns to each
// of 100,000 strings. So stop is asked now and then. If it returns an error, validation ends and the errors mean
// nothing; the caller asks stop once more, which is to return an error again. This package has no clock; a caller with
// a context passes its Err. With nil, validation runs to its end.
func (t *Type) Validate(v, old object.Value, stop func() error) field.ErrorList {
	var pair *Pair
	if !old.IsNull() {
		pair = Correlate(t, v, old)
	}
	errs := t.check(v, pair, nil, stop)
	if t.Custom.inspect != nil {
		errs = append(errs, embeddedErrors(v, t)...)
	}
	return append(errs, t.listErrors(v, old)...)
}

// ValidateStatus is Validate for an update of the status subresource: only the schema of status applies, and embedded
// objects are not validated (ValidateStatusUpdate of the reference's customResourceValidator). An error in spec could
// not be corrected by the client that writes the status, usually a controller.
//
// The pair of status is taken from that of the whole object where there is one; if the old object has no status, it is
// compared with null.
func (t *Type) ValidateStatus(v, old object.Value, stop func() error) field.ErrorList {
	var errs field.ErrorList
	if status, ok := v.Get("status"); ok {
		if of := t.member("status"); of != nil {
			pair := Correlate(t, v, old).Key("status")
			if pair == nil {
				pair = Correlate(of, status, old.At("status"))
			}
			errs = of.check(status, pair, field.NewPath("status"), stop)
		}
	}
	return append(errs, t.listErrors(v, old)...)
}

// check validates a value, whose place has the path root, against the schema. Errors have the full path in Field, but
// without root in their messages, as in the reference: "status.count: Invalid value: 9: count in body should be …".
func (t *Type) check(v object.Value, pair *Pair, root *field.Path, stop func() error) field.ErrorList {
	c := checker{root: root, stop: stop}
	f := c.ratcheted(v, t, nil, pair)
	return f.errors()
}

func (f *findings) errors() (errs field.ErrorList) {
	for i := range f.list {
		errs = append(errs, f.list[i].err)
	}
	return errs
}

// checker validates a value against its schema, as kube-openapi's SchemaValidator does, which the reference runs on the
// schema of the definition. JSON schema defines which values are valid; which errors are reported for an invalid one is
// defined by that library:
//
//   - Every violation in a value is reported, but no message twice.
//   - Where anyOf or oneOf has no valid branch, the errors of one branch are reported: of the first that has the most
//     matches, which is a count of the checks that took place in it and below it. So matches have to be counted as the
//     library counts them, though they mean little.
//   - Errors of a branch that is not reported still make that branch invalid.
//
// For example, anyOf: [{type: object, required: [a]}, {type: string}] and the value {} make
//
//	"x" must validate at least one schema (anyOf)
//	x.a in body is required
//
// The first branch has more matches, since the type of the value is right, and so its error is reported. That the value
// is not a string is not reported, but counts.
//
// One list that all checks write to would violate the second rule; so each value has separate findings, which are
// merged into those of its parent.
//
// The branches of anyOf, oneOf and not are first checked without reporting anything (quiet). Only where errors of a
// branch are to be reported, it is checked once more. So a value that is valid by its second branch prints no error of
// the first one. A branch within a branch is checked quietly for each branch around it: the cost is that of checking
// all branches once, times how deep the schema nests them.
type checker struct {
	root     *field.Path // of the value at which validation starts; nil where that is an object
	reported int         // length of the text in findings that have not been discarded
	full     bool        // no further error is reported (maxReported) unless some are discarded
	quiet    bool        // only matches and failed of findings are needed
	// asDefault says that the value is a default, which the reference validates against the schema as written: formats
	// apply that are otherwise ignored, and x-kubernetes-int-or-string does not stand for a type.
	asDefault bool

	stop    func() error // see Type.Validate; nil: never
	stopped bool         // stop has returned an error
	values  int          // that were checked, see ended
}

// askedEvery is the number of values that are checked between two calls of stop: it reads a clock, which takes as long
// as checking a value.
const askedEvery = 64

// ended says whether validation is to end. It is called for each value.
func (c *checker) ended() bool {
	if c.values++; c.values%askedEvery == 0 {
		return c.asked()
	}
	return c.stopped
}

// asked is ended before a check that takes long by itself.
func (c *checker) asked() bool {
	c.stopped = c.stopped || c.stop != nil && c.stop() != nil
	return c.stopped
}

// findings are the results for one value and everything below it: Result of the library. Invariants:
//
//	list has no message twice      len(list) > 0 ⇒ failed      reported(checker) = Σ size of all findings not discarded
//	full(checker) ⇒ reported(checker) > 0
//
// failed without list is possible: in a quiet check, and when maxReported is reached. Errors that are not reported
// still make the value invalid.
type findings struct {
	list    []finding
	said    map[string]bool // of list, by message; nil while it is short
	matches int             // MatchCount of the library: how many checks took place here and below, see checker
	failed  bool            // there was an error, whether or not it is in list
}

// finding is one error. The library treats two errors with the same message as one, even if they show different values.
type finding struct {
	message string
	err     *field.Error
	size    int // of its text, against maxReported
}

// manyFindings is the number of findings from which on duplicates are found by a map. Nearly all objects have few, but
// comparing each with each would take quadratic time for a list of 100,000 invalid items.
const manyFindings = 16

// silent records that there is an error, and says whether its text will not be reported. It is called before the text
// is created: see maxReported.
func (c *checker) silent(f *findings) bool {
	f.failed = true
	return c.quiet || c.full
}

// add adds an error, unless its message exists already, or maxReported is reached.
func (c *checker) add(to *findings, one finding) {
	to.failed = true
	if to.said == nil && len(to.list) >= manyFindings {
		to.said = make(map[string]bool, 2*manyFindings)
		for i := range to.list {
			to.said[to.list[i].message] = true
		}
	}
	if to.said[one.message] {
		return
	}
	if to.said == nil {
		for i := range to.list {
			if to.list[i].message == one.message {
				return
			}
		}
	} else {
		to.said[one.message] = true
	}
	if c.reported > 0 && c.reported+one.size > maxReported {
		c.full = true
		return
	}
	c.reported += one.size
	to.list = append(to.list, one)
}

// merge adds the findings of a part to those of the whole. part may not be used afterwards: if the whole has no
// findings yet, it takes over the memory of part.
func (c *checker) merge(to *findings, part findings) {
	to.matches += part.matches
	to.failed = to.failed || part.failed
	if len(to.list) == 0 {
		to.list, to.said = part.list, part.said
		return
	}
	for i := range part.list {
		c.reported -= part.list[i].size
		c.add(to, part.list[i])
	}
}

// discard drops findings that are not reported, since the value is unchanged, so that they do not count against
// maxReported.
func (c *checker) discard(f findings) {
	for i := range f.list {
		c.reported -= f.list[i].size
		c.full = false
	}
}

// name is the path of a place in the form of the library: spec.ports[0].name. It is String, except that the name of an
// additional member of the top begins with a dot: ".a in body must be of type integer". The name of nil, the object
// itself, is "".
func (p *location) name() string {
	var dst []byte
	for top := p; top != nil; top = top.up {
		if top.up == nil && top.free {
			dst = append(dst, '.')
		}
	}
	return string(p.appendPath(dst))
}

// at is the path for a name: one element that holds all of it, brackets and dots included. The reference parses it from
// the text of the library's error in the same way.
func (c *checker) at(name string) *field.Path {
	if name = strings.TrimPrefix(name, "."); name == "" {
		return c.root
	}
	return c.root.Child(name)
}

// put adds an error whose message begins with the name of its place. make turns path and message into the error. Some
// kinds of errors show a fixed text instead of the message (field.TooLong); duplicates are still found by the message
// (finding).
func (c *checker) put(
	f *findings, at *location, format string, args []any, make func(path *field.Path, message string) *field.Error,
) {
	if c.silent(f) {
		return
	}
	name := at.name()
	message := name + " in body " + fmt.Sprintf(format, args...)
	err := make(c.at(name), message)
	c.add(f, finding{message, err, len(message) + len(err.Field) + len(err.Detail) + badSize(err.BadValue)})
}

// invalid adds an error of the most frequent type: field.Invalid, with the value.
func (c *checker) invalid(f *findings, at *location, value any, format string, args ...any) {
	c.put(f, at, format, args, func(path *field.Path, message string) *field.Error {
		return field.Invalid(path, value, message)
	})
}

// wrongType adds an error for a value of a wrong type or format. The error shows is, the actual type, in place of the
// value.
func (c *checker) wrongType(f *findings, at *location, want, current string) {
	c.put(f, at, "must be of type %s: %q", []any{want, current}, func(path *field.Path, message string) *field.Error {
		return field.TypeInvalid(path, current, message)
	})
}

// say adds an error about the object as a whole: errors of the junctors and of the ranges of number types name their
// place in the text alone. The name is the first argument of the format.
func (c *checker) say(f *findings, at *location, format string, args ...any) {
	if c.silent(f) {
		return
	}
	message := fmt.Sprintf(format, append([]any{at.name()}, args...)...)
	err := field.Invalid(c.root, "", message)
	c.add(f, finding{message, err, 2 * len(message)})
}

// ratcheted checks a value, and ignores its errors if the value is unchanged (KEP-4008; Validate of the reference's
// ratchetingValueValidator). The comparison is last: most values are valid, and need none.
//
// A comparison takes time linear in the value. It is not repeated at the places around it: if it finds a change, items
// and members mark the enclosing pair as changed, and if it finds none, the errors are dropped.
func (c *checker) ratcheted(v object.Value, t *Type, at *location, pair *Pair) findings {
	f := c.value(v, t, at, pair)
	if f.failed && pair.Unchanged() {
		c.discard(f)
		return findings{matches: f.matches}
	}
	return f
}

// value checks a value. pair is nil if there is no old value, and within junctors: errors of a branch are ignored only
// if the value around the junctor is unchanged. The order of the checks is that of the library: it decides the order of
// the errors, and together with matches which branch of a junctor is reported.
func (c *checker) value(v object.Value, t *Type, at *location, pair *Pair) (f findings) {
	if c.ended() {
		return f
	}
	said := t.Custom
	if said == nil {
		said = &unconstrained
	}
	if c.asDefault && t.Kind == IntOrString {
		written := *t
		written.Kind = t.Custom.written
		t = &written
	}
	if v.Kind() == object.Number { // the result of an apply is validated before it is decoded
		v = object.FloatOf(v.Float())
	}
	if v.IsNull() {
		switch {
		case t.Kind != Any && !said.Nullable:
			c.wrongType(&f, at, t.jsonType(), "null")
		default:
			f.matches++
		}
		c.enum(&f, v, said, at)
		return f
	}
	if t.Kind != Any || c.format(said) != "" {
		c.ofType(&f, v, t, said, at)
	}
	f.matches += 2
	if said.AnyOf != nil || said.OneOf != nil || said.AllOf != nil || said.Not != nil {
		c.junctors(&f, v, t, said, at)
	}
	switch v.Kind() {
	case object.String:
		c.text(&f, v, said, at)
	case object.Int, object.Float:
		c.number(&f, v, t, said, at)
	case object.List:
		c.items(&f, v, t, said, at, pair)
	}
	c.enum(&f, v, said, at)
	if v.Kind() == object.Map {
		c.members(&f, v, t, said, at, pair)
	}
	f.matches += 2
	return f
}

// unconstrained stands for the constraints of a type that has none. It is shared, and never written.
var unconstrained Constraints

// jsonType is the name of the type in JSON schema; "" for Any. An int-or-string has two, which errors join by a comma,
// as the reference does by its OpenAPI definition.
func (t *Type) jsonType() string {
	switch t.Kind {
	case Struct, Map:
		return "object"
	case List:
		return "array"
	case String:
		return "string"
	case Bool:
		return "boolean"
	case Int:
		return "integer"
	case Float:
		return "number"
	case IntOrString:
		return "integer,string"
	}
	return ""
}

// jsonType is the type of a value in JSON schema, and the format that the library assigns to it. "float64" is not a
// format that a schema may have; it appears in errors.
func jsonType(v object.Value) (typ, format string) {
	switch v.Kind() {
	case object.Bool:
		return "boolean", ""
	case object.Int:
		return "integer", "int64"
	case object.Float:
		return "number", "float64"
	case object.String:
		return "string", ""
	case object.List:
		return "array", ""
	}
	return "object", ""
}

// has says whether a value of this JSON type is one of t by its name alone.
func (t *Type) has(current string) bool {
	switch t.Kind {
	case IntOrString:
		return current == "integer" || current == "string"
	case Any:
		return false
	}
	return current == t.jsonType()
}

// ofType checks the type (typeValidator). An integer is a number as well, and a float without a fraction is an integer:
// 1.0, which is stored as 1.
//
// With a format, the library leaves strings and lists to the check of the format, which looks at strings alone: so a
// list passes for {type: string, format: date}, and a string for {type: object, format: x}, as long as the format is
// not removed from the schema (checker.format). A value of another type is then reported to be of the wrong format:
//
//	{type: string, format: date} and 5        must be of type date: "int64"
//	{type: string} and 5                      must be of type string: "integer"
func (c *checker) ofType(f *findings, v object.Value, t *Type, said *Constraints, at *location) {
	f.matches++
	want := c.format(said)
	current, format := jsonType(v)
	whole := current == "number" && isWhole(v.Float()) && t.has("integer")
	fits := t.has(current) || whole || current == "integer" && t.Kind == Float
	switch textual := current == "string" || current == "array"; {
	case want != "" && !textual && !fits && format != want:
		c.wrongType(f, at, want, format)
	case want != "" && textual && t.Kind != Int && t.Kind != Float && t.Kind != IntOrString:
		f.matches++
	case !fits:
		c.wrongType(f, at, t.jsonType(), current)
	default:
		f.matches++
	}
}

// junctors checks allOf, anyOf, oneOf and not (schemaPropsValidator). All branches check the same value, so that the
// time is the product of the value and the branches; nested junctors multiply, but only the author of the schema can
// nest them, and definitions are written by administrators.
func (c *checker) junctors(f *findings, v object.Value, t *Type, said *Constraints, at *location) {
	if len(said.AnyOf) > 0 && !t.takesEither(v, said) {
		c.anyOf(f, v, said.AnyOf, at)
	}
	if len(said.OneOf) > 0 {
		c.oneOf(f, v, said.OneOf, at)
	}
	valid := 0
	for _, of := range said.AllOf {
		part := c.value(v, of, at, nil)
		if !part.failed {
			valid++
		}
		c.merge(f, part)
	}
	if valid != len(said.AllOf) {
		none := ""
		if valid == 0 {
			none = ". None validated"
		}
		c.say(f, at, "%[1]q must validate all the schemas (allOf)%[2]s", none)
	}
	if said.Not != nil && !c.quietly(v, said.Not, at).failed {
		c.say(f, at, "%[1]q must not validate the schema (not)")
	}
}

// takesEither says whether `anyOf: [{type: integer}, {type: string}]` accepts v. Every x-kubernetes-int-or-string has
// this anyOf, for documentation. It need not be checked where the type has been checked already. The matches that are
// then not counted are never used: x-kubernetes-int-or-string is not allowed within a junctor, and matches decide only
// there.
func (t *Type) takesEither(v object.Value, said *Constraints) bool {
	return t.Kind == IntOrString && (v.Kind() == object.Int || v.Kind() == object.String) &&
		len(said.AnyOf) == 2 && said.AnyOf[0] == plainInt && said.AnyOf[1] == plainString
}

// quietly checks a value against a branch of a junctor. The findings have an empty list.
func (c *checker) quietly(v object.Value, branch *Type, at *location) findings {
	before := c.quiet
	c.quiet = true
	part := c.value(v, branch, at, nil)
	c.quiet = before
	return part
}

// closest is the branch, of those that a value fails, whose errors are reported: the first of those with the most
// matches.
type closest struct {
	branch  *Type // nil: none yet
	matches int
}

func (b *closest) prefer(branch *Type, matches int) {
	if b.branch == nil || matches > b.matches {
		b.branch, b.matches = branch, matches
	}
}

// explain reports the errors of the branch that the value matches best.
func (c *checker) explain(f *findings, v object.Value, best closest, at *location) {
	if c.quiet {
		f.matches += best.matches
		return
	}
	c.merge(f, c.value(v, best.branch, at, nil))
}

// anyOf checks that a branch is valid. The first valid one ends the search, and its matches are counted.
func (c *checker) anyOf(f *findings, v object.Value, branches []*Type, at *location) {
	var best closest
	for _, branch := range branches {
		part := c.quietly(v, branch, at)
		if !part.failed {
			f.matches += part.matches
			return
		}
		best.prefer(branch, part.matches)
	}
	c.say(f, at, "%[1]q must validate at least one schema (anyOf)")
	c.explain(f, v, best, at)
}

// oneOf checks that exactly one branch is valid, for which all are checked. Its matches are those of the valid branch.
// The errors of a branch are reported only where none is valid.
func (c *checker) oneOf(f *findings, v object.Value, branches []*Type, at *location) {
	var best closest
	valid, matches := 0, 0
	for _, branch := range branches {
		part := c.quietly(v, branch, at)
		if part.failed {
			best.prefer(branch, part.matches)
			continue
		}
		valid++
		matches = part.matches
	}
	switch valid {
	case 0:
		c.say(f, at, "%[1]q must validate one and only one schema (oneOf). Found none valid")
		c.explain(f, v, best, at)
	case 1:
		f.matches += matches
	default:
		c.say(f, at, "%[1]q must validate one and only one schema (oneOf). Found %[2]d valid alternatives", valid)
	}
}

// items checks a list (schemaSliceValidator): its items, its length, and uniqueItems, which the validation of
// definitions forbids. An item of a list of type map has a pair by its keys; items of other lists have none, so that an
// error in an old item is ignored only if the whole list is unchanged.
func (c *checker) items(f *findings, v object.Value, t *Type, said *Constraints, at *location, pair *Pair) {
	items := v.Items()
	if of := t.Items(); of != nil {
		here := location{up: at}
		for i, item := range items {
			here.index = i
			part := c.ratcheted(item, of, &here, pair.Item(i))
			if part.failed && pair != nil && t.Kind == List && t.ListType == Associative {
				pair.compared, pair.unchanged = true, false
			}
			c.merge(f, part)
		}
	}
	size := int64(len(items))
	if said.MinItems != nil && size < *said.MinItems {
		c.invalid(f, at, size, "should have at least %d items", *said.MinItems)
	}
	if said.MaxItems != nil && size > *said.MaxItems {
		c.tooMany(f, at, size, *said.MaxItems, "should have at most %d items")
	}
	if said.UniqueItems && len(duplicates(items)) > 0 {
		c.invalid(f, at, "", "shouldn't contain duplicates")
	}
	f.matches += 2
}

// tooMany adds the error of a list or map that is too long.
func (c *checker) tooMany(f *findings, at *location, size, limit int64, format string) {
	c.put(f, at, format, []any{limit}, func(path *field.Path, _ string) *field.Error {
		return field.TooMany(path, int(size), int(limit))
	})
}

// members checks a map (objectValidator): the number of its members, each member that the schema describes, and the
// required ones. Unknown members are counted, too: below x-kubernetes-preserve-unknown-fields there may be some.
func (c *checker) members(f *findings, v object.Value, t *Type, said *Constraints, at *location, pair *Pair) {
	f.matches++
	members := v.Members()
	size := int64(len(members))
	if said.MinProperties != nil && size < *said.MinProperties {
		c.invalid(f, at, size, "should have at least %d properties", *said.MinProperties)
	}
	if said.MaxProperties != nil && size > *said.MaxProperties {
		c.tooMany(f, at, size, *said.MaxProperties, "should have at most %d properties")
	}
	here := location{up: at, index: -1}
	for i := range members {
		here.key = members[i].Key
		if here.free = t.Field(here.key) == nil; here.free && t.additional() == closed {
			c.notAllowed(f, here.key, at)
		}
		of := t.member(here.key)
		if of == nil {
			continue
		}
		var below *Pair
		// apiVersion and kind cannot change: both objects have been brought into the same version.
		ratchets := at != nil || here.key != "apiVersion" && here.key != "kind"
		if ratchets {
			below = pair.Key(here.key)
		}
		part := c.ratcheted(members[i].Value, of, &here, below)
		if part.failed && pair != nil && ratchets {
			// A member that has changed, or has no old value, has changed the map. Marking it avoids comparing a whole subtree
			// once more for each level above it.
			pair.compared, pair.unchanged = true, false
		}
		c.merge(f, part)
	}
	for _, name := range said.Required {
		if _, ok := v.Get(name); !ok {
			c.missing(f, name, at)
		}
	}
}

// notAllowed adds the error of a member that additionalProperties: false excludes. Its path is that of the map, unlike
// that of missing.
func (c *checker) notAllowed(f *findings, key string, at *location) {
	if c.silent(f) {
		return
	}
	name := at.name()
	message := name + "." + key + " in body is a forbidden property"
	c.add(f, finding{message, field.Invalid(c.at(name), key, message), 2*len(message) + len(key)})
}

// missing adds the error of a required member that is absent.
func (c *checker) missing(f *findings, key string, at *location) {
	if c.silent(f) {
		return
	}
	name := at.name() + "." + key
	c.add(f, finding{name + " in body is required", field.Required(c.at(name), ""), 2 * len(name)})
}

// enum checks that the value is one of those that are listed. Null never is, even if null is listed: the library skips
// it. The time is linear in the length of the list.
func (c *checker) enum(f *findings, v object.Value, said *Constraints, at *location) {
	if len(said.Enum) == 0 {
		return
	}
	for _, one := range said.Enum {
		if !v.IsNull() && object.Equal(converted(v, one.Kind()), one) {
			return
		}
	}
	if c.silent(f) {
		return
	}
	names := make([]string, 0, len(said.Enum))
	for _, one := range said.Enum {
		if one.Kind() == object.String {
			names = append(names, one.Str())
		} else {
			names = append(names, string(object.AppendJSON(nil, one)))
		}
	}
	c.put(f, at, "should be one of %v", []any{names}, func(path *field.Path, _ string) *field.Error {
		return field.NotSupported(path, BadValue(v), names)
	})
}

// converted is a value in the kind that it is compared with, by the rules of Go's conversions, which the reference's
// enum uses: 1.5 is 1 among integers, and 65 is "A" among strings. An integer that is not a code point becomes U+FFFD,
// as in Go.
func converted(v object.Value, to object.Kind) object.Value {
	switch {
	case v.Kind() == object.Float && to == object.Int:
		return object.IntOf(int64(v.Float()))
	case v.Kind() == object.Int && to == object.Float:
		return object.FloatOf(v.Float())
	case v.Kind() == object.Int && to == object.String:
		r := v.Int()
		if r != int64(rune(r)) {
			r = -1
		}
		return object.StringOf(string(rune(r)))
	}
	return v
}
