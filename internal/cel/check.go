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

// Limits of estimated costs (see the package comment), as in the reference.
const (
	ruleLimit       = 10_000_000  // of one rule, for all values at its node
	definitionLimit = 100_000_000 // of all rules of a schema together
)

// CheckOptions are properties of the definition on which Check depends.
type CheckOptions struct {
	// Skip says whether the rules at this path are not checked, because the schema there or below has other errors.
	// Nil: all are checked.
	Skip func(path string) bool
	// Unchanged says that this schema is stored already. Then a single rule may exceed its limit.
	Unchanged bool
	// Stored says whether an expression (a messageExpression if message is set) is in the stored definition. Stored
	// expressions may use all functions of this version; others only those that the previous version has, too. Nil: no
	// expression is stored.
	Stored func(expression string, message bool) bool
	// Stop is asked before each rule: to compile one takes as long as to validate an object. If it returns an error,
	// the check ends, and its errors mean nothing. Nil: it runs to its end.
	Stop func() error
}

// Check returns the errors of a custom type's rules. path is the path of its schema. An error is a rule that does not
// compile, is too expensive alone or with the others, or uses oldSelf where there is no old value to compare with. The
// form of rules (not empty, a known reason) is checked elsewhere.
func Check(t *schema.Type, path *field.Path, o CheckOptions) field.ErrorList {
	if !hasRules(t) {
		return nil
	}
	k := &check{CheckOptions: o, shapes: shapes{}}
	once := uint64(1)
	k.at(&node{t: t, path: path, count: &once})
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

// check is one call of Check.
type check struct {
	CheckOptions
	shapes    shapes
	errs      field.ErrorList
	total     uint64
	expensive []ruleCost // the four most expensive, for the error
}

type ruleCost struct {
	path *field.Path
	cost uint64
}

// node is a node of the schema, with its parents.
type node struct {
	t    *schema.Type
	path *field.Path
	up   *node
	name string // of the field; "" if the node is the element of up
	// count is how many values an object can have at this node at most; nil if the schema does not limit it.
	count *uint64
	// uncorrelated is the path of the outermost list above whose items cannot be matched with the old ones; nil if
	// there is none. Only items of lists of type map can be matched.
	uncorrelated *field.Path

	// The shape that rules are compiled against, or an error. Set by declared.
	resolved bool
	shape    *shape
	err      error
}

// within says whether the node or one above it has rules.
func (s *node) within() bool {
	return s != nil && (s.t.Custom != nil && len(s.t.Custom.Rules) > 0 || s.up.within())
}

// declared returns the shape that the rules of a node are compiled against. If a node above has rules, it is the part
// of that node's shape, as in the reference, unless those rules cannot access the part.
func (k *check) declared(s *node) (*shape, error) {
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

// at checks the nodes below a node, and then the node.
func (k *check) at(s *node) {
	t := s.t
	if of := t.Additional(); of != nil {
		k.at(&node{t: of, path: s.path.Child("additionalProperties"), up: s, count: s.below(), uncorrelated: s.uncorrelated})
	}
	for i := range t.Fields {
		name := t.Fields[i].Name
		if of := t.Property(name); of != nil {
			k.at(&node{t: of, path: s.path.Child("properties").Key(name), up: s, name: name, count: s.below(),
				uncorrelated: s.uncorrelated})
		}
	}
	if of := t.Items(); of != nil {
		uncorrelated := s.uncorrelated
		if uncorrelated == nil && !(t.Kind == schema.List && t.ListType == schema.Associative) {
			uncorrelated = s.path
		}
		k.at(&node{t: of, path: s.path.Child("items"), up: s, count: s.below(), uncorrelated: uncorrelated})
	}
	if t.Custom != nil && len(t.Custom.Rules) > 0 && (k.Skip == nil || !k.Skip(s.path.String())) {
		k.rules(s, t.Custom.Rules)
	}
}

// below is the count of the nodes directly below; nil if it has no limit.
func (s *node) below() *uint64 {
	c := s.t.Custom
	if c == nil {
		c = &schema.Constraints{}
	}
	factor := uint64(1)
	switch said := c.MaxItems; {
	case s.count == nil:
		return nil
	case s.t.Kind == schema.Map || s.t.Kind == schema.Struct:
		if !s.t.HasAdditional() {
			return s.count
		}
		said = c.MaxProperties
		fallthrough
	case s.t.Kind == schema.List:
		if said == nil {
			return nil
		}
		factor = uint64(max(*said, 0))
	}
	most := times(*s.count, factor)
	return &most
}

func (k *check) rules(s *node, rules []schema.Rule) {
	path := s.path.Child("x-kubernetes-validations")
	self, err := k.declared(s)
	if err != nil {
		k.errs = append(k.errs, field.InternalError(path,
			fmt.Errorf("internal error: failed to construct type information for x-kubernetes-validations rules: %w", err)))
		return
	}
	c := newCompiler(self)
	for i := range rules {
		if k.Stop != nil && k.Stop() != nil {
			return
		}
		current := stored{}
		if k.Stored != nil {
			current = stored{k.Stored(rules[i].Rule, false), k.Stored(rules[i].MessageExpression, true)}
		}
		p, err := c.compile(&rules[i], s.t, current)
		if err != nil {
			k.errs = append(k.errs, field.InternalError(path, err))
			return
		}
		k.program(s, p, path.Index(i), self)
	}
}

// program checks a compiled rule.
func (k *check) program(s *node, p *program, path *field.Path, self *shape) {
	count := self.cardinality()
	if s.count != nil {
		count = *s.count
	}
	rule := path.Child("rule")
	k.cost(rule, "estimated rule cost", times(p.cost, count))
	if p.broken != "" {
		k.errs = append(k.errs, field.Invalid(rule, shown(p.rule), p.broken))
	}
	if message := path.Child("messageExpression"); p.brokenMessage != "" {
		k.errs = append(k.errs, field.Invalid(message, shown(p.rule), p.brokenMessage))
	} else if p.message != nil {
		k.cost(message, "estimated messageExpression cost", p.messageCost)
	}
	if p.usesOldSelf && s.uncorrelated != nil {
		k.errs = append(k.errs, field.Invalid(rule, p.rule.Rule,
			fmt.Sprintf("oldSelf cannot be used on the uncorrelatable portion of the schema within %v", s.uncorrelated)))
	}
	if !p.usesOldSelf && p.rule.OptionalOldSelf != nil {
		k.errs = append(k.errs, field.Invalid(path.Child("optionalOldSelf"), *p.rule.OptionalOldSelf,
			"may not be set if oldSelf is not used in rule"))
	}
}

// cost adds an estimated cost to the total. It is an error if it alone exceeds the limit.
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
	k.expensive = append(k.expensive, ruleCost{path, cost})
	slices.SortStableFunc(k.expensive, func(a, b ruleCost) int { return cmp.Compare(b.cost, a.cost) })
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

// shown is a rule as errors print it: with the names of the reference's Go fields.
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
