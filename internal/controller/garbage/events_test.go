package garbage

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// What is said again is counted, many different messages become one Event, and there is a limit to all of them, as with
// the recorder of the reference.
//
// SPEC: DEL-5
func TestCorrelator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &correlator{now: time.Now}
		names := map[string]bool{}
		expect := func(e told, ok bool, count int64, message string, written bool) {
			t.Helper()
			if e.count != count || e.message != message || ok != written || e.last != time.Now() {
				t.Errorf("told %+v %t, not %d × %q %t", e, ok, count, message, written)
			}
			names[e.name] = true
		}
		say := func(message string) (told, bool) { return c.tell("1", "object", message) }
		e, ok := say("a")
		expect(e, ok, 1, "a", true)
		first := e
		time.Sleep(time.Minute)
		e, ok = say("a")
		expect(e, ok, 2, "a", true)
		if e.name != first.name || e.first != first.first || !strings.HasPrefix(e.name, "object.") {
			t.Errorf("it is counted on as %+v, not as %+v", e, first)
		}
		for i := range 8 {
			time.Sleep(time.Minute)
			message := fmt.Sprint(i)
			e, ok = say(message)
			expect(e, ok, 1, message, true)
		}
		time.Sleep(time.Second)
		e, ok = say("tenth")
		expect(e, ok, 1, "(combined from similar events): tenth", true)
		combined := e.name
		time.Sleep(time.Second)
		if e, ok = say("eleventh"); e.name != combined {
			t.Errorf("the tenth and the eleventh message are %q and %q", combined, e.name)
		}
		expect(e, ok, 2, "(combined from similar events): eleventh", true)
		if len(names) != 10 {
			t.Errorf("%d Events have a name", len(names))
		}
		if e, ok = c.tell("2", "other", "a"); e.count != 1 || !ok {
			t.Errorf("of another object is told %+v %t", e, ok)
		}

		time.Sleep(eventInterval + time.Second)
		e, ok = say("alone")
		expect(e, ok, 1, "alone", true)

		time.Sleep(25 * eventRefill)
		for i := range 30 {
			e, ok = say("often")
			expect(e, ok, int64(i)+1, "often", i < 25)
		}
		time.Sleep(eventRefill)
		e, ok = say("often")
		expect(e, ok, 31, "often", true)
		if e, ok = say("often"); ok {
			t.Errorf("told %+v although the budget is used", e)
		}
	})
}

// The memory of a correlator is limited.
func TestCorrelatorForgets(t *testing.T) {
	c := &correlator{now: time.Now}
	for i := range maxTold + 10 {
		c.tell(fmt.Sprint(i), "object", "message")
	}
	if len(c.objects) != maxTold {
		t.Errorf("%d objects are remembered, not %d", len(c.objects), maxTold)
	}
}
