package cel

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apimachinery/pkg/util/validation/field"
	limits "k8s.io/apiserver/pkg/apis/cel"

	"plinth/internal/fielderrors"
	"plinth/object"
	"plinth/schema"
)

// validation is one validation of one object. Rules of a place run before those below it, and members in the order of
// their names. All share a budget. If it is exceeded, or a single rule is too expensive, no further rule is run.
type validation struct {
	ctx      context.Context
	root     *field.Path
	budget   int64
	over     bool // no further rule is run
	errs     field.ErrorList
	warnings []string
	// The text of the errors and of the warnings: see maxReported.
	reported, warned int
}

// maxReported bounds the text of the errors of one validation, and that of its warnings; only the last error and the
// last warning may exceed it. The cost budget does not bound it: a rule may cost next to nothing, and a path may
// contain a key of a megabyte, above a million items that break the rule. An object with so many errors is refused
// without its other errors. When the warnings have reached the bound, the rules continue to run, because errors may
// follow.
//
// The reference has no such bound.
const maxReported = 1 << 20

// ratchet says whether the value at a place differs from the old one: an error in an unchanged value is only a warning,
// unless the rule uses oldSelf. here is the pair of new and old value. If the value has no counterpart, here is nil and
// around, the pair of the nearest enclosing value that has one, decides.
type ratchet struct{ here, around *schema.Pair }

func (r ratchet) unchanged() bool {
	if r.here != nil {
		return r.here.Unchanged()
	}
	return r.around.Unchanged()
}

func (r ratchet) key(name string) ratchet {
	switch {
	case r.here == nil:
		return r
	case r.around == nil && (name == "apiVersion" || name == "kind"):
		return ratchet{} // both objects were converted to one version, so these two cannot be compared
	}
	return ratchet{r.here.Key(name), r.here}
}

func (r ratchet) item(i int) ratchet {
	if r.here == nil {
		return r
	}
	return ratchet{r.here.Item(i), r.here}
}

// at validates the value at a place. Null is skipped: only the rules of the enclosing value see it.
func (d *validation) at(p *ruled, path *fielderrors.Location, v, old object.Value, r ratchet) {
	if p == nil || v.IsNull() || d.over {
		return
	}
	d.rules(p, path, v, old, r)
	switch v.Kind() {
	case object.List:
		d.items(p, path, v, old, r)
	case object.Map:
		d.members(p, path, v, old, r)
	}
}

func (d *validation) items(p *ruled, path *fielderrors.Location, v, old object.Value, r ratchet) {
	if p.items == nil {
		return
	}
	before := p.t.Keyed(old)
	for i, item := range v.Items() {
		if d.over {
			return
		}
		d.at(p.items, path.Item(i), item, before.Get(item), r.item(i))
	}
}

func (d *validation) members(p *ruled, path *fielderrors.Location, v, old object.Value, r ratchet) {
	if p.additional != nil {
		for _, m := range v.Members() {
			if d.over {
				return
			}
			before, _ := old.Get(m.Key)
			d.at(p.additional, path.Key(m.Key), m.Value, before, r.key(m.Key))
		}
	}
	for _, f := range p.fields {
		value, ok := v.Get(f.name)
		if !ok || d.over {
			continue
		}
		before, _ := old.Get(f.name)
		d.at(f.ruled, path.To(f.name), value, before, r.key(f.name))
	}
}

// path converts a place to a field.Path. The root's path is returned as it was given, even nil, which is printed as
// <nil>.
func (d *validation) path(p *fielderrors.Location) *field.Path {
	if p == nil {
		return d.root
	}
	return (&fielderrors.Errors{Root: d.root}).Path(p)
}

// Messages of errors after which no rule is run.
const (
	outOfBudget = "validation failed due to running out of cost budget, no further validation rules will be run"
	noCost      = "runtime cost could not be calculated for validation rule: %v, no further validation rules will be run"
)

// rules runs the rules of a place on a value that is not null.
func (d *validation) rules(p *ruled, path *fielderrors.Location, v, old object.Value, r ratchet) {
	kind := typeName(p.t)
	if p.compile(); p.err != nil {
		d.add(field.Invalid(d.path(path), kind, fmt.Sprintf("rule compiler initialization error: %v", p.err)))
		return
	}
	if len(p.programs) == 0 {
		return
	}
	if err := d.ctx.Err(); err != nil {
		d.end(field.InternalError(d.path(path), err))
		return
	}
	if d.budget <= 0 {
		d.end(field.Invalid(d.path(path), kind, outOfBudget))
		return
	}
	vars := newVariables(p, v, old)
	for _, rule := range p.programs {
		switch {
		case d.over:
			return
		case rule.broken != "":
			d.add(field.Invalid(d.path(path), kind, "rule compile error: "+rule.broken))
		case rule.run == nil, rule.usesOldSelf && old.IsNull() && !rule.optional():
		default:
			d.rule(p, rule, path, v, &vars, r)
		}
	}
}

func (d *validation) add(err *field.Error) {
	d.errs = append(d.errs, err)
	d.reported += len(err.Field) + len(err.Detail)
	if value, ok := err.BadValue.(string); ok {
		d.reported += len(value)
	}
	d.over = d.over || d.reported > maxReported
}

func (d *validation) warn(err *field.Error) {
	text := err.Error()
	d.warnings = append(d.warnings, text)
	d.warned += len(text)
}

// end adds an error after which no rule is run.
func (d *validation) end(err *field.Error) {
	d.add(err)
	d.over = true
}

// rule runs one rule.
func (d *validation) rule(p *ruled, rule *program, path *fielderrors.Location, v object.Value, vars *variables,
	r ratchet) {
	kind := typeName(p.t)
	vars.optional = rule.optional()
	out := evaluate(d.ctx, rule.run, vars)
	vars.optional = false
	switch {
	case !out.counted:
		d.end(field.InternalError(d.path(path), fmt.Errorf(noCost, rule.name())))
		return
	case out.cost > math.MaxInt64 || int64(out.cost) > d.budget:
		d.end(field.Invalid(d.path(path), kind, outOfBudget))
		return
	}
	d.budget -= int64(out.cost)
	if out.err != nil {
		d.failed(rule, d.path(path), kind, out.err)
		return
	}
	if out.value == true {
		return
	}
	where := d.path(path)
	if rule.fieldPath != "" {
		where = where.Child(rule.fieldPath)
	}
	report := d.add
	warns := !rule.usesOldSelf && r.unchanged()
	if warns {
		report = d.warn
	}
	detail, end := d.detail(rule, vars)
	if end != nil {
		d.over = true
		if end.internal {
			report(field.InternalError(where, end))
		} else {
			report(field.Invalid(where, kind, end.Error()))
		}
		return
	}
	if !warns || d.warned <= maxReported {
		report(wrong(where, kind, v, detail, rule.rule.Reason))
	}
}

// wrong is the error of a rule that is false. It does not contain the value of objects and lists.
func wrong(where *field.Path, kind string, v object.Value, detail, reason string) *field.Error {
	var shown any = field.OmitValueType{}
	if kind != "object" && kind != "array" {
		shown = v.Native()
	}
	switch reason {
	case "FieldValueForbidden":
		return field.Forbidden(where, detail)
	case "FieldValueRequired":
		return field.Required(where, detail)
	case "FieldValueDuplicate":
		return field.Duplicate(where, shown)
	}
	return field.Invalid(where, shown, detail)
}

// failed adds the error of a rule whose evaluation failed.
func (d *validation) failed(rule *program, where *field.Path, kind string, err error) {
	text := err.Error()
	switch {
	case strings.HasPrefix(text, "no such overload"):
		// The type is dynamic, so the compiler could not check it. The error does not say where in the rule it
		// occurred.
		d.add(field.Invalid(where, kind, fmt.Sprintf(
			"'%v': call arguments did not match a supported operator, function or macro signature for rule: %v", text,
			rule.name())))
	case strings.HasPrefix(text, tooExpensive):
		d.end(field.Invalid(where, kind, fmt.Sprintf(
			"'%v': no further validation rules will be run due to call cost exceeds limit for rule: %v", text, rule.name())))
	default:
		d.add(field.Invalid(where, kind, fmt.Sprintf("%v evaluating rule: %v", text, rule.name())))
	}
}

// tooExpensive is the prefix of the error of an expression that exceeds the limit of a single one.
const tooExpensive = "operation cancelled: actual cost limit exceeded"

// name is the name of a rule in errors.
func (p *program) name() string {
	if p.rule.Message != "" {
		return strings.TrimSpace(p.rule.Message)
	}
	return strings.TrimSpace(p.rule.Rule)
}

// fatal is an error of a messageExpression after which no rule is run.
type fatal struct {
	text     string
	internal bool
}

func (f *fatal) Error() string { return f.text }

// detail is the text of the error of a rule that is false: the result of its messageExpression, or if that fails or is
// not usable, its message.
func (d *validation) detail(rule *program, vars *variables) (string, *fatal) {
	if rule.message != nil {
		out := evaluate(d.ctx, rule.message, vars)
		source := rule.rule.MessageExpression
		switch {
		case !out.counted:
			return "", &fatal{fmt.Sprintf("runtime cost could not be calculated for messageExpression: %q", source), true}
		case out.cost > math.MaxInt64 || int64(out.cost) > d.budget:
			return "", &fatal{"messageExpression evaluation failed due to running out of cost budget, " +
				"no further validation rules will be run", false}
		case out.err != nil && strings.HasPrefix(out.err.Error(), tooExpensive):
			return "", &fatal{fmt.Sprintf("no further validation rules will be run due to call cost exceeds limit for "+
				"messageExpression: %q", source), false}
		}
		d.budget -= int64(out.cost)
		if said, ok := out.value.(string); ok && out.err == nil {
			said = strings.TrimSpace(said)
			if said != "" && len(said) <= limits.MaxEvaluatedMessageExpressionSizeBytes && !strings.Contains(said, "\n") {
				return said, nil
			}
		}
	}
	if rule.rule.Message == "" {
		return "failed rule: " + rule.name(), nil
	}
	return rule.name(), nil
}

// variables are self and oldSelf. As in the reference, oldSelf is set only if a rule of the place uses it (a
// messageExpression does not count), and it is an optional value in rules with optionalOldSelf but never in a
// messageExpression.
type variables struct {
	self, old ref.Val // old is nil for a new object
	usesOld   bool
	optional  bool // oldSelf is an optional value
}

func newVariables(p *ruled, v, old object.Value) variables {
	vars := variables{self: p.self.value(v), usesOld: p.usesOld}
	if p.usesOld && !old.IsNull() {
		vars.old = p.self.value(old)
	}
	return vars
}

// ResolveName implements interpreter.Activation.
func (v *variables) ResolveName(name string) (any, bool) {
	switch name {
	case "self":
		return v.self, true
	case "oldSelf":
		switch {
		case v.usesOld && v.optional && v.old != nil:
			return types.OptionalOf(v.old), true
		case v.usesOld && v.optional:
			return types.OptionalNone, true
		}
		return v.old, v.old != nil
	}
	return nil, false
}

// Parent implements interpreter.Activation.
func (v *variables) Parent() interpreter.Activation { return nil }
