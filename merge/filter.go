package merge

// Filter is what a request may not touch, and so does not own (SSA-14): status on the main endpoint, all but status on the
// other one. The zero Filter lets everything through.
type Filter struct {
	Except Set       // these paths and all below them
	Only   []Pattern // where there are any: nothing but these
}

// Pattern is a path by names. "*" stands for any element.
type Pattern []string

// Apply is what the filter lets through.
func (f *Filter) Apply(s Set) Set {
	s = s.MinusAll(f.Except)
	if len(f.Only) > 0 {
		s = s.matching(f.Only)
	}
	return s
}

// matching is the paths that begin with a pattern, and those that a pattern begins with.
func (s Set) matching(patterns []Pattern) Set {
	var out []node
	for _, n := range s.nodes {
		var rest []Pattern
		matches, all := false, false
		for _, p := range patterns {
			if p[0] != "*" && (n.element.step != Field || n.element.v.Str() != p[0]) {
				continue
			}
			matches = true
			if len(p) == 1 {
				all = true
			} else {
				rest = append(rest, p[1:])
			}
		}
		if !matches {
			continue
		}
		if !all {
			n.below = n.below.matching(rest)
		}
		if n.marks != 0 || !n.below.Empty() {
			out = append(out, n)
		}
	}
	return Set{out}
}
