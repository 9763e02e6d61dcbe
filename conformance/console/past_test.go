package console

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// slide moves the slider by keys.
func (b *tab) slide(key string) {
	b.t.Helper()
	b.run(chromedp.Evaluate[chromedp.Void](`document.querySelector(".slide input").focus()`))
	b.keys(key)
}

// Task: who has changed this, and how does it go back?
//
// SPEC: BEY-4, BEY-15
func TestWhoHasChangedIt(t *testing.T) {
	server := start(t)
	const path = deployments + "/web"
	api(t, server, http.MethodPost, deployments+"?fieldManager=release", "application/yaml", deployment)
	patch := func(manager, body string) {
		api(t, server, http.MethodPatch, path+"?fieldManager="+manager, "application/merge-patch+json", body)
	}
	patch("scaler", `{"spec":{"replicas":3}}`)
	patch("team", `{"metadata":{"labels":{"team":"payments"}}}`)
	patch("hurry", `{"spec":{"replicas":7,"paused":true}}`)
	b := open(t, server)
	b.signIn()
	b.visit("r/apps/v1/deployments/default/web")
	b.sees("replicas: 7")
	b.keys("h")
	b.sees("1 of 4")
	b.sees("manager hurry")
	b.sees("+ .spec.paused: true")
	b.sees("- .spec.replicas: 3")
	// The lines as of then, with who has set them.
	b.wait(`[...document.querySelectorAll(".line")].some((l) => l.textContent.includes("tier: front") && l.querySelector(".who")?.textContent === "admin")`)
	b.picture("past")

	t.Run("older changes", func(*testing.T) {
		b.slide(kb.ArrowLeft)
		b.sees("2 of 4")
		b.sees("+ .metadata.labels.team: payments")
		b.slide(kb.Home)
		b.sees("created")
		b.sees("4 of 4")
		b.sees("+ .spec.replicas: 1")
		b.misses("older ones")
	})
	t.Run("a change is taken back", func(*testing.T) {
		b.slide(kb.End)
		b.sees("1 of 4")
		b.click(".ways button", "Undo this change")
		b.sees("It would become")
		b.wait(`document.querySelector(".outcome").innerText.includes("+ .spec.replicas: 3")`)
		if live := api(t, server, http.MethodGet, path, "application/json", ""); !strings.Contains(live,
			`"replicas":7`) {
			t.Errorf("a preview has written: %s", live)
		}
		b.picture("past-undo")
		b.click(".outcome button", "Write this")
		b.sees("1 of 5")
		b.sees("manager plinth-console")
		live := api(t, server, http.MethodGet, path, "application/json", "")
		if !strings.Contains(live, `"replicas":3`) || !strings.Contains(live, `"team":"payments"`) ||
			strings.Contains(live, `"paused":true`) {
			t.Errorf("it has become %s", live)
		}
	})
	t.Run("what has changed since is named", func(*testing.T) {
		patch("other", `{"spec":{"replicas":9}}`)
		b.visit("r/apps/v1/deployments/default/web?past")
		b.sees("1 of 6")
		for range 4 { // to the change of the scaler
			b.slide(kb.ArrowLeft)
		}
		b.sees("manager scaler")
		b.click(".ways button", "Undo this change")
		b.sees("was 1, became 3, and is 9")
		b.sees("There is nothing to write")
		b.click(".outcome button", "Take these back, too")
		b.wait(`document.querySelector(".outcome").innerText.includes("+ .spec.replicas: 1")`)
	})
	t.Run("back to a moment, after it was deleted", func(*testing.T) {
		api(t, server, http.MethodDelete, path, "application/json", "")
		b.visit("r/apps/v1/deployments/default/web?past")
		b.sees("1 of 7")
		b.sees("deleted")
		b.click(".ways button", "Undo this change")
		b.sees("It would be created anew")
		b.click(".outcome button", "Write this")
		b.sees("1 of 8")
		if live := api(t, server, http.MethodGet, path, "application/json", ""); !strings.Contains(live,
			`"replicas":9`) {
			t.Errorf("it is back as %s", live)
		}
		b.slide(kb.Home)
		b.sees("8 of 8")
		b.click(".ways button", "Back to this")
		b.wait(`document.querySelector(".outcome")?.innerText.includes("+ .spec.replicas: 1")`)
	})
}

// The values of a Secret are not seen in its past.
//
// SPEC: BEY-15
func TestPastOfASecret(t *testing.T) {
	server := start(t)
	const secrets = "/api/v1/namespaces/default/secrets"
	for i, value := range []string{"Zmlyc3Q=", "c2Vjb25k"} {
		body := fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"data":{"a":%q}}`, value)
		if i == 0 {
			create(t, server, secrets, body)
		} else {
			api(t, server, http.MethodPut, secrets+"/s", "application/json", body)
		}
	}
	b := open(t, server)
	b.signIn()
	b.visit("r/core/v1/secrets/default/s?past")
	b.sees("1 of 2")
	b.wait(`document.querySelectorAll(".line").length > 3 && document.querySelector(".minus")`)
	b.click(".ways button", "Undo this change")
	b.wait(`document.querySelector(".outcome .plus")`)
	for _, value := range []string{"Zmlyc3Q", "c2Vjb25k"} {
		b.misses(value)
	}
}
