package validation_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"plinth/internal/builtin/validation"
	"plinth/internal/builtin/validation/validationtest"
	"plinth/object"
)

// Without a clock of their own, the rules of Evictions use that of the system.
func TestClockOfEvictions(t *testing.T) {
	eviction := func(status string) object.Value {
		t.Helper()
		parsed, err := object.ParseJSON(fmt.Appendf(nil, `{"metadata":{"name":"a","namespace":"default"},"spec":{"target":
			{"pod":{"name":"web-0","uid":"5f3c0cbe-3f2c-4a0e-8a4e-6a3a1d3c09af"}}},"status":%s}`, status))
		if err != nil {
			t.Fatal(err)
		}
		return parsed.Value
	}
	started := func(at time.Time) object.Value {
		return eviction(fmt.Sprintf(`{"targetResponders":[{"name":"example.com/a","priority":2000,"state":"Active"}],
			"responders":[{"name":"example.com/a","startTime":%q}]}`, at.UTC().Format(time.RFC3339)))
	}
	rules := validation.Eviction.Rules(validation.Options{})
	if got := validationtest.Lines(rules.Status(started(time.Now()), eviction("{}"))); len(got) > 0 {
		t.Errorf("now: %q", got)
	}
	want := []string{`FieldValueInvalid status.responders[0].startTime: Invalid value: "2024-01-01T00:00:00Z": must be ` +
		"set to the present time"}
	past := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	if got := validationtest.Lines(rules.Status(started(past), eviction("{}"))); !slices.Equal(got, want) {
		t.Errorf("in 2024: %q", got)
	}
}
