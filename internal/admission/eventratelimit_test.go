package admission

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// Plugins go by the clock of the configuration; without one by time.Now.
//
// SPEC: AUTH-3
func TestClocksOfPlugins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		passes := func() { now = now.Add(time.Minute) }
		for _, clock := range []func() time.Time{nil, func() time.Time { return now }} {
			s := newStageOf(t, Config{Selection: Selection{Only: []string{"EventRateLimit"}}, Now: clock,
				Configurations: map[string][]byte{"EventRateLimit": []byte(
					"apiVersion: eventratelimit.admission.k8s.io/v1alpha1\nkind: Configuration\n" +
						"limits: [{type: Server, qps: 1, burst: 1}]\n")}})
			for i, want := range []bool{true, false, true} {
				if i == 2 && clock == nil {
					time.Sleep(time.Minute)
				} else if i == 2 {
					passes()
				}
				_, _, _, err := s.admit(t, "v1", "events", `{"metadata":{"name":"e","namespace":"ns"}}`, "")
				if (err == nil) != want {
					t.Errorf("with a clock of its own: %t, %d: %v", clock != nil, i, err)
				}
			}
		}
	})
}

// How many keys a limit tells apart follows from its configuration. The reference forgets the least recently used key,
// ours one that was not used for a while: the limits of the two are not compared.
//
// SPEC: AUTH-3
func TestKeysOfEventLimits(t *testing.T) {
	limits, err := eventLimits([]byte("apiVersion: eventratelimit.admission.k8s.io/v1alpha1\nkind: Configuration\nlimits:\n" +
		"- {type: User, qps: 1, burst: 1}\n- {type: Namespace, qps: 1, burst: 1, cacheSize: 7}\n"))
	if err != nil {
		t.Fatal(err)
	}
	var got []int
	for _, l := range limits {
		got = append(got, l.limiters.Limit)
	}
	if fmt.Sprint(got) != "[4096 7]" {
		t.Errorf("the limits tell %v keys apart", got)
	}
	for i := range 100 { // of which the second limit keeps the last 14 at most
		for _, l := range limits {
			l.of(fmt.Sprint(i))
		}
	}
	for i, want := range []bool{true, false} {
		if _, has := limits[i].limiters.Get("50"); has != want {
			t.Errorf("limit %d knows the key: %t", i, has)
		}
		for _, key := range []string{"93", "99"} { // the last 7
			if _, has := limits[i].limiters.Get(key); !has {
				t.Errorf("limit %d has forgotten the key %s", i, key)
			}
		}
	}
}
