package admission

import (
	"fmt"
	"testing"
)

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
