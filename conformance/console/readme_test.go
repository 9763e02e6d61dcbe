package console

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"testing"

	"github.com/chromedp/chromedp"
)

var readme = flag.String("readme", "", "the directory for README's pictures (make pictures); none are written without it")

// The object of README's pictures has the owners that it shows.
//
// SPEC: BEY-15
func TestReadmePictures(t *testing.T) {
	server := start(t)
	apply(t, server, deployments+"/web", "helm", deployment)
	api(t, server, http.MethodPatch, deployments+"/web/scale?fieldManager=autoscaler", "application/merge-patch+json",
		`{"spec":{"replicas":5}}`)
	api(t, server, http.MethodPatch, deployments+"/web?fieldManager=kubectl-edit", "application/merge-patch+json",
		`{"metadata":{"annotations":{"example.com/owner":"team-a"}}}`)
	api(t, server, http.MethodPatch, deployments+"/web/status?fieldManager=deployment-controller",
		"application/merge-patch+json", `{"status":{"observedGeneration":1,"replicas":3,"conditions":[{"type":"Available",
			"status":"False","reason":"MinimumReplicasUnavailable","message":"Deployment does not have minimum availability.",
			"lastTransitionTime":"2026-01-01T00:00:00Z","lastUpdateTime":"2026-01-01T00:00:00Z"}]}}`)
	b := open(t, server)
	b.signIn()
	b.visit("r/apps/v1/deployments/default/web")
	b.sees("replicas: 5")
	b.sees("MinimumReplicasUnavailable")
	b.wait(`[...document.querySelectorAll(".line")].find((l) => l.textContent.includes("replicas: 5")).textContent.includes("autoscaler")`)
	b.click(".line", "replicas: 5")
	b.wait(`document.querySelector(".detail").innerText.includes("of scale")`)
	if *readme == "" {
		return
	}
	if err := os.MkdirAll(*readme, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, theme := range []string{"light", "dark"} {
		b.run(chromedp.EmulateViewport(1100, 760), chromedp.Evaluate[chromedp.Void](
			fmt.Sprintf("scrollTo(0, 0), document.documentElement.dataset.theme = %q", theme)))
		png := result(b, chromedp.CaptureScreenshot())
		if len(png) > 200_000 {
			t.Errorf("the picture has %d bytes", len(png))
		}
		if err := os.WriteFile(fmt.Sprintf("%s/console-%s.png", *readme, theme), png, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
