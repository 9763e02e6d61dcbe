package cel

import (
	"slices"
	"sync"

	"plinth/schema"
)

// ruled is a node of a schema with rules at or below it.
type ruled struct {
	rules []schema.Rule
	t     *schema.Type // of the values
	self  *shape       // of the values
	// declared is the shape that rules are compiled against. It differs from self only for metadata, which can have
	// other fields here than in its schema. Nil if expressions cannot access the values.
	declared *shape

	fields     []child // by name
	items      *ruled
	additional *ruled

	once     sync.Once
	programs []*program
	usesOld  bool  // one of the programs uses oldSelf
	err      error // of compiling programs
}

type child struct {
	name string
	*ruled
}

// hasRules says whether objects of this type have rules. A structural schema has none below allOf, anyOf, oneOf or
// not.
func hasRules(t *schema.Type) bool {
	if t == nil {
		return false
	}
	if c := t.Custom; c != nil && (len(c.Rules) > 0 || hasRules(c.Metadata)) {
		return true
	}
	return hasRules(t.Items()) || hasRules(t.Additional()) ||
		slices.ContainsFunc(t.Fields, func(f schema.Field) bool { return hasRules(t.Property(f.Name)) })
}

// build creates the places at and below a type; nil if there are no rules.
func (m shapes) build(t *schema.Type, declared *shape) *ruled {
	p := &ruled{t: t, declared: declared}
	var elem *shape
	if declared != nil {
		elem = declared.elem
	}
	if of := t.Items(); of != nil {
		p.items = m.build(of, elem)
	}
	if of := t.Additional(); of != nil {
		p.additional = m.build(of, elem)
	}
	for i := range t.Fields {
		m.buildField(p, t.Fields[i].Name)
	}
	if t.Custom != nil {
		p.rules = t.Custom.Rules
	}
	if len(p.rules) == 0 && len(p.fields) == 0 && p.items == nil && p.additional == nil {
		return nil
	}
	p.self = m.of(t)
	return p
}

// buildField creates the place of a field. A field that expressions cannot access has none; its rules are not run.
func (m shapes) buildField(p *ruled, name string) {
	t := p.t.Property(name)
	if t == nil {
		return
	}
	var declared *shape
	if p.declared != nil {
		declared, _ = p.declared.field(name)
	}
	if _, ok := escape(name); !ok {
		declared = m.of(t)
	}
	if declared == nil || declared.hidden {
		return
	}
	if of := m.build(t, declared); of != nil {
		p.fields = append(p.fields, child{name, of})
	}
}

// compile compiles the rules of the place, once, when it first has a value.
func (p *ruled) compile() {
	p.once.Do(func() {
		if len(p.rules) == 0 {
			return
		}
		if p.declared == nil || p.declared.hidden {
			p.err = errUndeclared
			return
		}
		c := newCompiler(p.declared)
		p.programs = make([]*program, len(p.rules))
		for i := range p.rules {
			if p.programs[i], p.err = c.compile(&p.rules[i], p.t, stored{rule: true, message: true}); p.err != nil {
				return
			}
			p.usesOld = p.usesOld || p.programs[i].usesOldSelf
		}
	})
}

// count is the number of rules at and below the place.
func (p *ruled) count() int {
	if p == nil {
		return 0
	}
	n := len(p.rules) + p.items.count() + p.additional.count()
	for _, f := range p.fields {
		n += f.count()
	}
	return n
}
