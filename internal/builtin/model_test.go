package builtin

import "testing"

// The names that documents have before a schema is compiled are those that the schemas have.
func TestModelNames(t *testing.T) {
	checked := 0
	for _, r := range Resources(Config{}) {
		if got := r.Schema().Name; got != r.Model {
			t.Errorf("%s is %s, not %s", r.Type(), got, r.Model)
		}
		for _, s := range r.Subresources {
			if (s.Schema == nil) != (s.Model == "") {
				t.Errorf("%s/%s: the model is %q", r.Type(), s.Name, s.Model)
			} else if s.Schema != nil && s.Schema().Name != s.Model {
				t.Errorf("%s/%s is %s, not %s", r.Type(), s.Name, s.Schema().Name, s.Model)
			}
		}
		checked++
	}
	if checked < 60 {
		t.Errorf("only %d types were looked at", checked)
	}
}
