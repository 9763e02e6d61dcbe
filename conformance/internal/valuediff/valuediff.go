// Package valuediff lists the fields in which two objects differ. The objects that are compared with upstream are too
// long to be compared by eye.
package valuediff

import (
	"fmt"

	"plinth/object"
)

// First describes the first difference of two values by its path and both values; "" if they are equal.
func First(want, got object.Value) string { return firstBelow("", want, got) }

func firstBelow(path string, want, got object.Value) string {
	switch {
	case object.Equal(want, got):
		return ""
	case want.Kind() == object.Map && got.Kind() == object.Map:
		for _, m := range want.Members() {
			other, ok := got.Get(m.Key)
			if !ok {
				return fmt.Sprintf("%s.%s: missing, want %s", path, m.Key, object.AppendJSON(nil, m.Value))
			}
			if d := firstBelow(path+"."+m.Key, m.Value, other); d != "" {
				return d
			}
		}
		for _, m := range got.Members() {
			if _, ok := want.Get(m.Key); !ok {
				return fmt.Sprintf("%s.%s: %s, want it missing", path, m.Key, object.AppendJSON(nil, m.Value))
			}
		}
	case want.Kind() == object.List && got.Kind() == object.List && want.Len() == got.Len():
		for i, item := range want.Items() {
			if d := firstBelow(fmt.Sprintf("%s[%d]", path, i), item, got.Items()[i]); d != "" {
				return d
			}
		}
	}
	return fmt.Sprintf("%s: %s, want %s", path, object.AppendJSON(nil, got), object.AppendJSON(nil, want))
}
