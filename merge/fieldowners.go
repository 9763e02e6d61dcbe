package merge

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"plinth/object"
	"plinth/schema"
)

// Ownership has the owners of every field and item of an object (BEY-1).
//
// managedFields answers "which paths does this manager own"; a reader of an object has the inverse question, for each
// line of it. The two do not match one to one. The parts of an atomic value have no paths, so that they take the owners
// of the value around them. The members of a struct have paths, but the struct has none. And a path may no longer
// select anything, and is then not shown.
type Ownership struct {
	Managers  []Entry    // as in metadata.managedFields
	Locations []Location // every field and item, from top to bottom as the object is printed
}

// Location is one field or item of an object.
type Location struct {
	Path  Path
	Value object.Value
	// the places below have no separate owners: a scalar, an empty map or list, an atomic value or a part of one
	Leaf   bool
	Owners []int // indices into Managers, ascending; shared with other places: do not change it
	System bool  // set by the server and never owned (SSA-15)
}

// Owners lists the owners of every place of an object. t is its type, or nil if that is unknown. Then the paths that
// are owned decide which lists are associative: an element [name="web"] in some set selects the item with that name.
//
// One walk visits the object and all sets in parallel, from the top. The sets are used as stored: an entry whose
// version is not the object's names the fields of its own version, and may select nothing.
//
// The cost is the size of the object times the number of managers.
func Owners(obj object.Value, t *schema.Type) (*Ownership, error) {
	entries, err := ParseManagedFields(obj.At("metadata", "managedFields"))
	if err != nil {
		return nil, err
	}
	o := &Ownership{Managers: entries}
	if t == nil {
		t = deduced
	}
	sets := make([]Set, len(entries))
	for i := range entries {
		sets[i] = entries[i].Fields
	}
	s := search{to: o}
	s.members(withoutManaged(obj), t, sets, nil, enclosing{})
	return o, nil
}

// search is one walk of Owners.
type search struct{ to *Ownership }

// enclosing is the atomic value around a place, if there is one. The place has its owners.
type enclosing struct {
	atomic bool
	owners []int
}

// members adds the members of a map and all below them; at is the path of the map.
func (s *search) members(v object.Value, t *schema.Type, sets []Set, at Path, above enclosing) {
	for _, m := range v.Members() {
		of, _ := memberType(t, m.Key)
		s.locate(m.Value, of, FieldElement(m.Key), sets, at, above)
	}
}

// locate adds a location and all locations below it. sets holds, for each manager, the paths that it owns below the
// path at, and above is the atomic value around the place. Inside an atomic value the sets are not followed any
// further: paths that lead into it are of a schema in which it was granular.
func (s *search) locate(v object.Value, t *schema.Type, e Element, sets []Set, at Path, above enclosing) {
	p := Location{Path: append(slices.Clip(at), e), Value: v, Owners: above.owners}
	below := make([]Set, len(sets))
	for i, set := range sets {
		n := set.at(e)
		if n.marks != 0 && !above.atomic {
			p.Owners = append(slices.Clip(p.Owners), i)
		}
		below[i] = n.below
	}
	kind := shapeOf(t, v)
	inside := above
	if !above.atomic && (kind == leaf || ownedAsAWhole(t, kind, below, len(p.Owners) > 0)) {
		inside = enclosing{true, p.Owners}
	}
	p.Leaf = inside.atomic || v.Len() == 0
	p.System = unowned.Has(p.Path) && len(p.Owners) == 0
	s.to.Locations = append(s.to.Locations, p)
	switch v.Kind() {
	case object.Map:
		s.members(v, t, below, p.Path, inside)
	case object.List:
		var keys [][]string
		if t.Kind != schema.List {
			keys = keysOf(below)
		}
		for i, item := range v.Items() {
			s.locate(item, itemType(t), itemElement(t, keys, item, i, below), below, p.Path, inside)
		}
	}
}

// ownedAsAWhole says whether a map or list is owned as a whole. Without a schema it is if it has an owner and no path
// below it has.
func ownedAsAWhole(t *schema.Type, kind shape, below []Set, has bool) bool {
	if t.Kind == schema.Any && !t.AtomicMap {
		return has && !slices.ContainsFunc(below, func(s Set) bool { return !s.Empty() })
	}
	return atomic(t, kind)
}

// itemElement is the element of an item of a list: the one by which the sets select it, or its position if none can.
// keys are those of keysOf, for a list without a type.
func itemElement(t *schema.Type, keys [][]string, item object.Value, i int, sets []Set) Element {
	switch {
	case t.Kind != schema.List:
		for _, set := range sets {
			if e, ok := set.selects(keys, item); ok {
				return e
			}
		}
	case t.ListType != schema.Atomic:
		if id, err := identify(t, item); err == nil {
			return elementOf(t, id)
		}
	}
	return Element{Index, object.IntOf(int64(i))}
}

// maxKeys is how many sorts of keys keysOf distinguishes. All items of a list that has a schema have one sort, or two
// if a key may be left out; more are found only in managedFields that a client has made up. Each sort costs a look-up
// per item.
const maxKeys = 8

// keysOf are the names of the keys by which the sets select the items of one list, each sort once.
func keysOf(sets []Set) [][]string {
	var all [][]string
	for _, set := range sets {
		for i := range set.nodes {
			e := &set.nodes[i].element
			if e.step != Key || len(all) == maxKeys {
				continue
			}
			names := make([]string, 0, e.v.Len())
			for _, m := range e.v.Members() {
				names = append(names, m.Key)
			}
			known := slices.ContainsFunc(all, func(other []string) bool { return slices.Equal(other, names) })
			if len(names) > 0 && !known {
				all = append(all, names)
			}
		}
	}
	return all
}

// selects is the element of the set that selects this item, by keys with these names or by its value. A key that the
// item leaves to its default is not found: the default is in the type, which is unknown here.
//
// It makes the element that the item would have and looks it up. Comparing the item with each element of the set would
// take quadratic time in the length of the list.
func (s Set) selects(keys [][]string, item object.Value) (Element, bool) {
	for _, names := range keys {
		members := make([]object.Member, 0, len(names))
		for _, name := range names {
			if v, ok := item.Get(name); ok {
				members = append(members, object.Member{Key: name, Value: v})
			}
		}
		if len(members) < len(names) {
			continue
		}
		e := KeyElement(object.MapOf(members...))
		if _, ok := s.find(e); ok {
			return e, true
		}
	}
	e := ItemElement(item)
	_, ok := s.find(e)
	return e, ok
}

// Orphan says whether the place could have an owner and has none.
func (p *Location) Orphan() bool { return p.Leaf && !p.System && len(p.Owners) == 0 }

// String names a manager: `kubectl (Apply)`, `hpa (Update through /scale)`.
func (e *Entry) String() string {
	text := e.Manager + " (" + e.Operation
	if e.Subresource != "" {
		text += " through /" + e.Subresource
	}
	return text + ")"
}

// RemovedWithout is the set of paths that would be removed from the object if this manager applied an empty intent:
// those that only this manager keeps there. It is empty for managers of updates, as an apply prunes only applied
// fields. It makes that apply and compares, so that it cannot differ from the real result. The set is in the version of
// the object.
func (k *Kind) RemovedWithout(obj object.Value, manager Entry) (Set, error) {
	if manager.Operation != OperationApply {
		return Set{}, nil
	}
	intent := object.Fields("apiVersion", obj.At("apiVersion"), "kind", obj.At("kind"))
	next, err := k.Apply(obj, intent, Writer{
		Manager: manager.Manager, APIVersion: obj.At("apiVersion").Str(), Subresource: manager.Subresource, Force: true,
	})
	if err != nil {
		return Set{}, err
	}
	diff, err := compare(withoutManaged(obj), withoutManaged(next), k.Type, new(arena))
	return diff.only(removed), err
}

// Line is one line of an object that is printed as YAML.
type Line struct {
	Text string
	// At is the field or item that begins on the line. Item is the item of a list that begins there, too, and has owners
	// of its own; nil: there is none.
	At, Item *Location
}

// Lines prints the object as YAML: a parser reads the same value from their texts. The item of an associative list has
// no line of its own if it is a map: its first field has the dash.
func (o *Ownership) Lines() []Line {
	p := linePrinter{locations: o.Locations}
	p.level(0, 0, false)
	return p.lines
}

// YAML prints the object as YAML with the owners of each line in a comment. Without the comments it is the object: a
// parser reads the same value.
//
//	spec:
//	  replicas: 5                # hpa (Update through /scale)
//	  template:
//	    spec:
//	      containers:
//	      - image: a             # item: alice (Apply), bob (Apply); alice (Apply)
//	        name: web            # alice (Apply), bob (Apply)
//
// Managers and subresources are texts of a client, and a subresource need not be printable: a line break in one must
// not end the comment.
func (o *Ownership) YAML() string { return Annotated(o.Lines(), o.comment) }

// Annotated joins lines, with a comment behind each that has one. A comment is without unprintable characters.
func Annotated(lines []Line, comment func(Line) string) string {
	width := 0
	for _, l := range lines {
		if len(l.Text) <= maxAligned {
			width = max(width, len(l.Text))
		}
	}
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.Text)
		if text := comment(l); text != "" {
			b.WriteString(strings.Repeat(" ", max(0, width-len(l.Text))+2) + "# " + strings.Map(printable, text))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func printable(r rune) rune {
	if !unicode.IsPrint(r) {
		return unicode.ReplacementChar
	}
	return r
}

// comment has the owners of a line, or the remark that it has none.
func (o *Ownership) comment(l Line) string {
	owners := o.names(l.At)
	if owners == "" && l.At.Orphan() {
		owners = "nobody"
	}
	if l.Item != nil {
		owners = "item: " + o.names(l.Item) + "; " + owners
	}
	return owners
}

// names are the owners of a place.
func (o *Ownership) names(p *Location) string {
	names := make([]string, len(p.Owners))
	for i, owner := range p.Owners {
		names[i] = o.Managers[owner].String()
	}
	return strings.Join(names, ", ")
}

// maxAligned is the length up to which a line counts for the column of the comments. Longer ones have their comment
// directly behind them: one annotation of a thousand bytes would move all comments out of sight.
const maxAligned = 60

// linePrinter prints places as lines of YAML. It does not use a YAML printer, because those do not report on which line
// a value is printed.
type linePrinter struct {
	locations []Location // in the order of printing, each before those below it
	next      int        // the first place that is not printed yet
	lines     []Line
}

// level prints the places of one map or list, and all below them: those from next on whose path is longer by one than
// depth, until a shorter path ends the level. dashed: the first line of an item follows its dash.
func (p *linePrinter) level(depth, indent int, dashed bool) {
	for p.next < len(p.locations) && len(p.locations[p.next].Path) == depth+1 {
		at := &p.locations[p.next]
		p.next++
		margin := strings.Repeat(" ", indent)
		if dashed {
			margin = strings.Repeat(" ", indent-2) + "- "
			dashed = false
		}
		element := at.Path[depth]
		empty := at.Value.Len() == 0
		composite := !empty && (at.Value.Kind() == object.Map || at.Value.Kind() == object.List)
		switch {
		case element.step == Field && composite:
			p.line(margin+yamlKey(element.v.Str())+":", at)
			deeper := indent
			if at.Value.Kind() == object.Map {
				deeper += 2
			}
			p.level(depth+1, deeper, false)
		case element.step == Field:
			p.line(margin+yamlKey(element.v.Str())+": "+yamlScalar(at.Value), at)
		case composite && at.Value.Kind() == object.Map:
			before := len(p.lines)
			p.level(depth+1, indent+2, true)
			if before < len(p.lines) && len(at.Owners) > 0 && at.Path[depth].step != Index {
				p.lines[before].Item = at
			}
		case composite:
			p.line(margin+"-", at)
			p.level(depth+1, indent+2, false)
		default:
			p.line(margin+"- "+yamlScalar(at.Value), at)
		}
	}
}

// line adds the line on which a place begins.
func (p *linePrinter) line(text string, at *Location) {
	p.lines = append(p.lines, Line{Text: text, At: at})
}

// yamlKey prints a key or string on one line. It is quoted as in JSON, which is valid YAML, unless YAML 1.1 surely
// reads the unquoted text as the same string: it begins with a letter, has no character of YAML's syntax, and is not a
// word like "yes".
func yamlKey(name string) string {
	for i := 0; i < len(name); i++ {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', i > 0 && ('0' <= c && c <= '9' || c == '-' || c == '.' ||
			c == '/' || c == '_'):
		default:
			return quoted(name)
		}
	}
	if slices.Contains(yamlWords, strings.ToLower(name)) || name == "" {
		return quoted(name)
	}
	return name
}

// quoted prints a string as in JSON, which is valid YAML but for some characters that JSON lets stand: YAML refuses
// controls and U+FFFE, U+FFFF, and folds what is the end of a line for it alone.
func quoted(text string) string {
	var b strings.Builder
	for _, r := range string(object.AppendString(nil, text)) {
		switch {
		case r >= 0x7f && r <= 0x9f, r == 0x2028, r == 0x2029, r == 0xfeff, r == 0xfffe, r == 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// yamlWords are read by YAML 1.1 as something other than strings.
var yamlWords = []string{"true", "false", "yes", "no", "on", "off", "y", "n", "null"}

// yamlScalar prints a scalar, or an empty map or list, on one line.
func yamlScalar(v object.Value) string {
	if v.Kind() == object.String {
		return yamlKey(v.Str())
	}
	return string(object.AppendJSON(nil, v))
}
