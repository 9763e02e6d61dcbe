package object

// Native is the value as Go's own types hold it, and as unstructured objects of Kubernetes do: bool, int64, float64, string, []any,
// map[string]any, and nil for null. Messages print values in this form, and libraries ask for it. A list of no items is empty, not nil.
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
