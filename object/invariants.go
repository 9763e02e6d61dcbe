package object

import "plinth/internal/invariants"

// The checks of this file run if invariants.Enabled is set: in every test, and in no release. A failed check ends the
// process: otherwise bytes that are not canonical, or an offset that is off by one, would be stored, and every later
// reader would get them.

// mustHold fails with the formula that does not hold.
func mustHold(ok bool, formula string) {
	if !ok {
		invariants.Fail("%s", formula)
	}
}

// check: 0 < Item ≤ Splice < len(data), a key starts at each of them, and managedFields, if present, lies between them:
// Item < Managed < ManagedEnd ≤ Splice. Printing in parts relies on it: it cuts the text at these offsets without a
// further check.
func (at *Offsets) check(data []byte) {
	key := func(pos int) bool { return 0 < pos && pos < len(data) && data[pos] == '"' }
	mustHold(key(at.Item) && key(at.Splice) && at.Item <= at.Splice, "object: Item or Splice is not at a key")
	mustHold(at.Managed == 0 && at.ManagedEnd == 0 || key(at.Managed) && key(at.ManagedEnd) &&
		at.Item < at.Managed && at.Managed < at.ManagedEnd && at.ManagedEnd <= at.Splice,
		"object: Managed is out of its place")
}

// checkExact: exact ⇒ ParseJSON(text) = v. A value that is kept with its text must be the one that a reader of the text
// gets.
func checkExact(text []byte, v Value, exact bool) {
	if exact {
		parsed, err := ParseJSON(append([]byte(nil), text...))
		mustHold(err == nil && Equal(parsed.Value, v), "object: text that is said to be exact is read as another value")
	}
}

// check: the parser has left every container that it entered, and the shared stacks are empty again.
func (p *parser) check() {
	mustHold(len(p.items) == 0 && len(p.members) == 0 && len(p.path) == 0 && !p.skim,
		"object: the parser has not left all containers")
}
