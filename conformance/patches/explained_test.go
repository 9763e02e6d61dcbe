package patches

import "strings"

// explained is a difference that is meant.
type explained struct {
	name, why string
	is        func(want, got outcome) bool
}

// explanations are all of them. Each is met by the cases of a run, which counts them.
var explanations = []explained{
	{
		name: "a crash",
		why: "Upstream compares merge keys and the items of lists as Go interfaces, which panics where they are lists or maps, and " +
			"asks for the kind of a list's first item even if that is null. The client gets 500 for a request that crashed the " +
			"API server's handler; here it gets 400 with the reason.",
		is: func(want, got outcome) bool { return want.crashed && got.status == 400 },
	},
}

func explain(want, got outcome) (string, bool) {
	for _, e := range explanations {
		if e.is(want, got) {
			return e.name, true
		}
	}
	return "", false
}

var _ = strings.Contains
