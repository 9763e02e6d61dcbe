package cel

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/schema"
)

// Limits of estimated costs of a definition.
const (
	ruleLimit       = 10_000_000  // of one expression, over all values at its place
	definitionLimit = 100_000_000 // of all expressions of a schema together
)

// CheckOptions is what else is known of a definition whose rules are checked.
type CheckOptions struct {
	// Skip says of a path whether the rules of the schema there are not to be looked at, because something else is
	// wrong there or below. Nil: none are skipped.
	Skip func(path string) bool
	// Unchanged says that the schema is stored already: each of its rules may cost what it costs.
	Unchanged bool
	// Stored says whether an expression (a messageExpression if message is set) stands in the definition that is
	// replaced. It is compiled with all that this version knows, others with what the version before knows as well.
	// Nil: none does.
	Stored func(expression string, message bool) bool
}

// Check says what is wrong with the rules of a custom type, which path leads to: rules that do not compile, that may
// cost too much, each or together, or that use oldSelf where nothing can be compared. How rules are written down (that
// they are not empty, have a reason that there is) is not looked at.
func Check(t *schema.Type, path *field.Path, o CheckOptions) field.ErrorList {
	if !hasRules(t) {
		return nil
	}
	k := &check{CheckOptions: o, shapes: shapes{}}
	once := uint64(1)
	k.at(&spot{t: t, path: path, most: &once})
	if k.total > definitionLimit {
		for _, e := range k.expensive {
			k.errs = append(k.errs, field.Forbidden(e.path,
				"contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"))
		}
		k.errs = append(k.errs, field.Forbidden(path,
			overLimit("x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema", k.total,
				definitionLimit)))
	}
	return k.errs
}

// check is one check of one schema.
type check struct {
	CheckOptions
	shapes    shapes
	errs      field.ErrorList
	total     uint64
	expensive []expense // the four largest
}

type expense struct {
	path *field.Path
	cost uint64
}

// spot is a node of the schema that is looked at.
type spot struct {
	t    *schema.Type
	path *field.Path
	up   *spot
	name string // of the field that it is; else it is what up has as elements
	most *uint64
	// apart is the path of the outermost list above whose items have no old ones.
	apart *field.Path

	// What follows is there when a rule of the spot or of one below has been asked for.
	resolved bool
	shape    *shape
	err      error
}

// within says whether the spot or one above it has rules.
func (s *spot) within() bool {
	return s != nil && (s.t.Custom != nil && len(s.t.Custom.Rules) > 0 || s.up.within())
}

// declared is the shape that the rules of the spot are compiled against. It is the one that rules above see there, if
// there are any and they can see it.
func (k *check) declared(s *spot) (*shape, error) {
	if s.resolved {
		return s.shape, s.err
	}
	s.resolved = true
	if s.up.within() {
		above, err := k.declared(s.up)
		if err != nil {
			s.err = err
			return nil, err
		}
		if s.shape = above.elem; s.name != "" {
			if s.shape = nil; above.form == object_ {
				s.shape, _ = above.field(s.name)
			}
			if _, ok := escape(s.name); !ok {
				s.shape = nil
			}
		}
		if s.shape != nil && !s.shape.hidden {
			return s.shape, nil
		}
	}
	if s.shape = k.shapes.of(s.t); s.shape.hidden {
		s.shape, s.err = nil, errors.New("unable to convert structural schema to CEL declarations")
	}
	return s.shape, s.err
}

// at checks what is below a spot, and then the spot.
func (k *check) at(s *spot) {
	t := s.t
	if of := t.Additional(); of != nil {
		k.at(&spot{t: of, path: s.path.Child("additionalProperties"), up: s, most: s.below(), apart: s.apart})
	}
	for i := range t.Fields {
		name := t.Fields[i].Name
		if of := fieldType(t, name); of != nil {
			k.at(&spot{t: of, path: s.path.Child("properties").Key(name), up: s, name: name, most: s.below(), apart: s.apart})
		}
	}
	if of := t.Items(); of != nil {
		apart := s.apart
		if apart == nil && !(t.Kind == schema.List && t.ListType == schema.Associative) {
			apart = s.path
		}
		k.at(&spot{t: of, path: s.path.Child("items"), up: s, most: s.below(), apart: apart})
	}
	if t.Custom != nil && len(t.Custom.Rules) > 0 && (k.Skip == nil || !k.Skip(s.path.String())) {
		k.rules(s, t.Custom.Rules)
	}
}

// below is how many values there can be directly below all values of a spot together; nil where the schema does not
// bound it.
func (s *spot) below() *uint64 {
	c := s.t.Custom
	if c == nil {
		c = &schema.Constraints{}
	}
	factor := uint64(1)
	switch said := c.MaxItems; {
	case s.most == nil:
		return nil
	case s.t.Kind == schema.Map || s.t.Kind == schema.Struct:
		if !s.t.HasAdditional() {
			return s.most
		}
		said = c.MaxProperties
		fallthrough
	case s.t.Kind == schema.List:
		if said == nil {
			return nil
		}
		factor = uint64(max(*said, 0))
	}
	most := times(*s.most, factor)
	return &most
}

func (k *check) rules(s *spot, rules []schema.Rule) {
	path := s.path.Child("x-kubernetes-validations")
	self, err := k.declared(s)
	if err != nil {
		k.errs = append(k.errs, field.InternalError(path,
			fmt.Errorf("internal error: failed to construct type information for x-kubernetes-validations rules: %w", err)))
		return
	}
	c := newCompiler(self)
	for i := range rules {
		is := stored{}
		if k.Stored != nil {
			is = stored{k.Stored(rules[i].Rule, false), k.Stored(rules[i].MessageExpression, true)}
		}
		p, err := c.compile(&rules[i], s.t, is)
		if err != nil {
			k.errs = append(k.errs, field.InternalError(path, err))
			return
		}
		k.program(s, p, path.Index(i), self)
	}
}

// program tells what is wrong with a compiled rule.
func (k *check) program(s *spot, p *program, path *field.Path, self *shape) {
	times_ := self.cardinality()
	if s.most != nil {
		times_ = *s.most
	}
	rule := path.Child("rule")
	k.cost(rule, "estimated rule cost", times(p.cost, times_))
	if p.broken != "" {
		k.errs = append(k.errs, field.Invalid(rule, shown(p.rule), p.broken))
	}
	if message := path.Child("messageExpression"); p.brokenMessage != "" {
		k.errs = append(k.errs, field.Invalid(message, shown(p.rule), p.brokenMessage))
	} else if p.message != nil {
		k.cost(message, "estimated messageExpression cost", p.messageCost)
	}
	if p.usesOldSelf && s.apart != nil {
		k.errs = append(k.errs, field.Invalid(rule, p.rule.Rule,
			fmt.Sprintf("oldSelf cannot be used on the uncorrelatable portion of the schema within %v", s.apart)))
	}
	if !p.usesOldSelf && p.rule.OptionalOldSelf != nil {
		k.errs = append(k.errs, field.Invalid(path.Child("optionalOldSelf"), *p.rule.OptionalOldSelf,
			"may not be set if oldSelf is not used in rule"))
	}
}

// cost adds an estimated cost, and tells if it alone is too high.
func (k *check) cost(path *field.Path, what string, cost uint64) {
	if cost > ruleLimit && !k.Unchanged {
		k.errs = append(k.errs, field.Forbidden(path, overLimit(what, cost, ruleLimit)))
	}
	if math.MaxUint64-k.total < cost {
		k.total = math.MaxUint64
	} else {
		k.total += cost
	}
	if cost < definitionLimit/100 {
		return
	}
	k.expensive = append(k.expensive, expense{path, cost})
	slices.SortStableFunc(k.expensive, func(a, b expense) int { return cmp.Compare(b.cost, a.cost) })
	k.expensive = k.expensive[:min(len(k.expensive), 4)]
}

func overLimit(what string, cost, limit uint64) string {
	factor := float64(cost) / float64(limit)
	times := fmt.Sprintf("%.1fx", factor)
	switch {
	case factor > 100:
		times = "more than 100x"
	case factor < 1.5:
		times = fmt.Sprintf("%fx", factor)
	}
	return fmt.Sprintf(
		"%s exceeds budget by factor of %s (try simplifying the rule, or adding maxItems, maxProperties, and "+
			"maxLength where arrays, maps, and strings are declared)", what, times)
}

// shown is a rule as errors repeat it: with all its members, under the names that the reference has for them in Go.
func shown(r *schema.Rule) any {
	var reason *string
	if r.Reason != "" {
		reason = &r.Reason
	}
	return struct {
		Rule, Message, MessageExpression string
		Reason                           *string
		FieldPath                        string
		OptionalOldSelf                  *bool
	}{r.Rule, r.Message, r.MessageExpression, reason, r.FieldPath, r.OptionalOldSelf}
}
