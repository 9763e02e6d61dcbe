package aggregation

import (
	"iter"
	"maps"

	"plinth/internal/view"
	"plinth/object"
)

// Availability says of each APIService, by its name, whether it is available. It is read by metrics alone, so nothing
// is compiled on a server whose metrics nobody reads.
func (a *Aggregator) Availability() map[string]bool {
	known, _ := a.availability.Now() // nothing is known of those that cannot be read
	return known
}

// compileAvailability is a view.Compile.
func compileAvailability(before map[string]bool, changes iter.Seq[view.Change]) map[string]bool {
	now := maps.Clone(before)
	if now == nil {
		now = map[string]bool{}
	}
	for c := range changes {
		delete(now, c.Name)
		if c.Version == nil || c.Version.Sidecar.Unreadable != nil {
			continue
		}
		if obj, err := object.ParseJSON(c.Version.Data()); err == nil {
			now[c.Name] = isAvailable(obj.Value)
		}
	}
	return now
}
