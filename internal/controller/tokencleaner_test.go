package controller

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"plinth/internal/access"
	"plinth/internal/controller/controllertest"
	"plinth/object"
)

// cleaned is a bench with ServiceAccount gone/a, whose generated Secrets are s and t.
type cleaned struct {
	*bench
	began time.Time
}

// tokenPeriod is how long a token may be unused in these tests.
const tokenPeriod = 30 * 24 * time.Hour

// day is the day n days after the beginning, in the form of Secrets and the ConfigMap.
func (c *cleaned) day(n int) string { return c.began.AddDate(0, 0, n).UTC().Format(time.DateOnly) }

// until waits until shortly after the n-th day from the beginning, so that everything due by then is done.
func (c *cleaned) until(n int) {
	time.Sleep(time.Until(c.began.AddDate(0, 0, n).Add(time.Minute)))
	synctest.Wait()
}

// is expects a Secret whose label invalid-since is that day; "": it has no such label; "gone": the Secret does not
// exist.
func (c *cleaned) is(name, want string) {
	c.Helper()
	got := "gone"
	if obj, ok := c.Read("secrets", "gone", name); ok {
		got = obj.At("metadata", "labels", access.LegacyTokenInvalidSince).Str()
	}
	if got != want {
		c.Errorf("%d days after the beginning %s is invalid since %q, want %q",
			int(time.Since(c.began)/(24*time.Hour)), name, got, want)
	}
}

func (c *cleaned) secret(name, typ, annotations string) {
	c.Helper()
	c.Make("secrets", "gone", fmt.Sprintf(`{"metadata":{"name":%q,"annotations":{%s}},"type":%q}`, name, annotations,
		typ))
}

const (
	byName  = `"kubernetes.io/service-account.name":"a"`
	another = byName + `,"kubernetes.io/service-account.uid":"another"`
	podThat = `{"metadata":{"name":%q},"spec":{"containers":[{"name":"c","image":"s"}],` +
		`"volumes":[{"name":"v","secret":{"secretName":%q}}]}}`
)

// podSecrets reads one of the fields that name a Secret.
func podSecrets(pod object.Value) (names []string) {
	for _, v := range pod.At("spec", "volumes").Items() {
		names = append(names, v.At("secret", "secretName").Str())
	}
	return names
}

// cleaning runs a test in a synctest bubble, in which sleeping takes no time.
func cleaning(t *testing.T, test func(c *cleaned)) {
	synctest.Test(t, func(t *testing.T) {
		c := &cleaned{bench: newBench(t), began: time.Now()}
		c.Make("namespaces", "", `{"metadata":{"name":"kube-system"}}`)
		c.Make("configmaps", "kube-system", fmt.Sprintf(`{"metadata":{"name":%q},"data":{"since":%q}}`,
			access.LegacyTokenTracking, c.day(0)))
		c.Make("serviceaccounts", "gone", `{"metadata":{"name":"a"},"secrets":[{"name":"s"},{"name":"t"}]}`)
		c.secret("s", tokenType, byName)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			controllertest.Run(ctx, (&TokenCleaner{Engine: c.Engine, Registry: c.Registry, Logger: slog.New(slog.DiscardHandler),
				Period: tokenPeriod, PodSecrets: podSecrets}).Start)
		}()
		defer func() { cancel(); <-ended }()
		test(c)
	})
}

// A generated token is marked invalid after a period without use, and deleted after another one; the first day of the
// recording of uses, and that of the mark, do not count.
//
// SPEC: AUTH-2
func TestUnusedTokensGo(t *testing.T) {
	cleaning(t, func(c *cleaned) {
		c.until(30)
		c.is("s", "")
		c.until(31)
		c.is("s", c.day(31))
		c.until(61)
		c.is("s", c.day(31))
		c.until(62)
		c.is("s", "gone")
	})
}

// A use postpones the marking or the deletion of a token; a mark stays.
//
// SPEC: AUTH-2
func TestUsedTokensStay(t *testing.T) {
	cleaning(t, func(c *cleaned) {
		used := func(day string) {
			c.Helper()
			c.Change(c.Request("secrets", "gone", "s"), fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`,
				access.LegacyTokenLastUsed, day))
			synctest.Wait()
		}
		c.until(20)
		used(c.day(20))
		c.until(50)
		c.is("s", "")
		c.until(51)
		c.is("s", c.day(51))
		c.until(70)
		used(c.day(70))
		c.until(100)
		c.is("s", c.day(51))
		c.until(101)
		c.is("s", "gone")
	})
	cleaning(t, func(c *cleaned) { // the label is not a day
		c.Change(c.Request("secrets", "gone", "s"), fmt.Sprintf(`{"metadata":{"labels":{%q:"1999-13-01"}}}`,
			access.LegacyTokenLastUsed))
		c.until(200)
		c.is("s", "")
	})
}

// No token is marked before uses have been recorded for a whole period.
//
// SPEC: AUTH-2
func TestTokensThatWereNotTracked(t *testing.T) {
	cleaning(t, func(c *cleaned) {
		c.Change(c.Request("configmaps", "kube-system", access.LegacyTokenTracking),
			fmt.Sprintf(`{"data":{"since":%q}}`, c.day(10)))
		c.until(40)
		c.is("s", "")
		c.until(41)
		c.is("s", c.day(41))
	})
}

// An unused token whose mark is removed is marked again at once, and has another period; a mark that is not a day is
// replaced.
//
// SPEC: AUTH-2
func TestTokenIsMarkedAgain(t *testing.T) {
	for _, label := range []string{"null", `"soon"`, `""`} {
		cleaning(t, func(c *cleaned) {
			c.until(40)
			c.is("s", c.day(31))
			c.Change(c.Request("secrets", "gone", "s"), fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`,
				access.LegacyTokenInvalidSince, label))
			synctest.Wait()
			c.is("s", c.day(40))
			c.until(70)
			c.is("s", c.day(40))
			c.until(71)
			c.is("s", "gone")
		})
	}
}

// Secrets that are not known to be generated and unused are not changed.
//
// SPEC: AUTH-2
func TestTokensThatStay(t *testing.T) {
	for name, change := range map[string]func(c *cleaned){
		"made by hand": func(c *cleaned) {
			c.Change(c.Request("serviceaccounts", "gone", "a"), `{"secrets":[{"name":"t"}]}`)
		},
		"of a ServiceAccount that is gone": func(c *cleaned) { c.Remove("serviceaccounts", "gone", "a") },
		"used by a Pod":                    func(c *cleaned) { c.Make("pods", "gone", fmt.Sprintf(podThat, "p", "s")) },
		"not tracked": func(c *cleaned) {
			c.Remove("configmaps", "kube-system", access.LegacyTokenTracking)
		},
		"tracked since nobody knows when": func(c *cleaned) {
			c.Change(c.Request("configmaps", "kube-system", access.LegacyTokenTracking), `{"data":{"since":"x"}}`)
		},
		"of another ServiceAccount by this name": func(c *cleaned) {
			c.Change(c.Request("secrets", "gone", "s"), `{"metadata":{"annotations":{`+another+`}}}`)
		},
		"of another type": func(c *cleaned) {
			c.Remove("secrets", "gone", "s")
			c.secret("s", "Opaque", byName)
		},
		"being deleted": func(c *cleaned) {
			c.Change(c.Request("secrets", "gone", "s"), `{"metadata":{"finalizers":["a.b/c"]}}`)
			c.Remove("secrets", "gone", "s")
		},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			cleaning(t, func(c *cleaned) {
				change(c)
				c.until(200)
				c.is("s", "")
			})
		})
	}
}

// The period of a Secret begins with its creation, and a Secret that a Pod uses is kept until the Pod is gone. A Pod
// that uses another Secret, or only contains the name elsewhere, does not keep it.
//
// SPEC: AUTH-2
func TestTokensLastFromWhenTheyBegin(t *testing.T) {
	cleaning(t, func(c *cleaned) {
		c.Make("pods", "gone", fmt.Sprintf(podThat, "p", "t"))
		c.until(40)
		c.is("s", c.day(31))
		c.secret("t", tokenType, byName)
		c.until(100)
		c.is("t", "")
		c.Remove("pods", "gone", "p")
		c.until(101)
		c.is("t", c.day(101))
		c.secret("s", tokenType, byName)
		c.until(131)
		c.is("s", "")
		c.until(132)
		c.is("s", c.day(132))
		c.is("t", "gone")
	})
}

// The mark is set by the controller's own user, as the manager of the reference's controllers.
//
// SPEC: AUTH-2
func TestTokenMarkHasAManager(t *testing.T) {
	cleaning(t, func(c *cleaned) {
		c.until(31)
		obj, _ := c.Read("secrets", "gone", "s")
		managed := obj.At("metadata", "managedFields").Items()
		if !slices.ContainsFunc(managed, func(m object.Value) bool {
			return m.At("manager").Str() == manager && m.At("operation").Str() == "Update" &&
				!m.At("fieldsV1", "f:metadata", "f:labels", "f:"+access.LegacyTokenInvalidSince).IsNull()
		}) {
			t.Errorf("the Secret is managed by %s", object.AppendJSON(nil, obj.At("metadata", "managedFields")))
		}
	})
}
