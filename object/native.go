package object

// Native converts the value to Go's own types, as in unstructured objects of Kubernetes: bool, int64, float64, string,
// []any, map[string]any, and nil for null. Error messages print values in this form, and some libraries take it. An
// empty list is not nil.
func (v Value) Native() any {
	switch v.Kind() {
	case Bool:
		return v.Bool()
	case Int:
		return v.Int()
	case Float, Number:
		return v.Float()
	case String:
		return v.Str()
	case List:
		items := make([]any, v.Len())
		for i, item := range v.Items() {
			items[i] = item.Native()
		}
		return items
	case Map:
		members := make(map[string]any, v.Len())
		for _, m := range v.Members() {
			members[m.Key] = m.Value.Native()
		}
		return members
	}
	return nil
}
