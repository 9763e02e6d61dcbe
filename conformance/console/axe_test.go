package console

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"plinth/conformance/internal/harness"
)

// axe-core is fetched from npm once, into the user's cache. It is under the MPL-2.0, and no part of the product.
const (
	axeVersion   = "4.14.1"
	axeIntegrity = "sha512-FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
)

// axeSource returns the script axe.min.js.
func axeSource(t testing.TB) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "plinth-axe-core")
	archive := filepath.Join(dir, "axe-core-"+axeVersion+".tgz")
	data, err := os.ReadFile(archive)
	if err != nil || integrity(data) != axeIntegrity {
		data = fetchAxe(t, dir, archive)
	}
	if got := integrity(data); got != axeIntegrity {
		t.Fatalf("axe-core %s has the integrity %s, not %s", axeVersion, got, axeIntegrity)
	}
	source, err := fileOf(data, "package/axe.min.js")
	if err != nil {
		t.Fatal(err)
	}
	return source
}

func integrity(data []byte) string {
	sum := sha512.Sum512(data)
	return "sha512-" + base64.StdEncoding.EncodeToString(sum[:])
}

// fetchAxe fetches the package by npm, beside the place where it is kept: packages may be tested at the same time.
func fetchAxe(t testing.TB, dir, archive string) []byte {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	own, err := os.MkdirTemp(dir, "fetching-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(own)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "pack", "--silent", "axe-core@"+axeVersion)
	cmd.Dir = own
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("npm (https://nodejs.org) is needed to fetch axe-core: %v\n%s", err, out)
	}
	data, err := os.ReadFile(filepath.Join(own, filepath.Base(archive)))
	if err == nil {
		err = os.Rename(filepath.Join(own, filepath.Base(archive)), archive)
	}
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// fileOf returns a file of a package.
func fileOf(archive []byte, name string) (string, error) {
	unzipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return "", err
	}
	for files := tar.NewReader(unzipped); ; {
		file, err := files.Next()
		if errors.Is(err, io.EOF) {
			return "", fmt.Errorf("the package has no %s", name)
		}
		if err != nil {
			return "", err
		}
		if file.Name == name {
			data, err := io.ReadAll(files)
			return string(data), err
		}
	}
}

// runAxe is an expression in JavaScript: what axe finds in the page, as lines "rule: element: what to do". Its rules
// are those of WCAG 2.2, levels A and AA, the best practices, and the experimental ones.
const runAxe = `axe.run(document, {
	resultTypes: ["violations"],
	runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice", "experimental"],
}).then((r) => r.violations.flatMap((v) =>
	v.nodes.map((n) => v.id + ": " + n.html.slice(0, 200) + ": " + n.failureSummary.replaceAll("\n", " "))))`

// axe returns what axe finds in the page that is shown.
func (b *tab) axe(source string) []string {
	b.t.Helper()
	if !result(b, chromedp.Evaluate[bool]("window.axe !== undefined")) {
		b.run(chromedp.Evaluate[chromedp.Void](source + ";0"))
	}
	return result(b, chromedp.Evaluate[[]string](runAxe, awaited))
}

// awaited makes the result of an expression that is a promise that of the promise.
func awaited(p *runtime.EvaluateParams) {
	yes := true
	p.AwaitPromise = &yes
}

// accessible fails if axe finds anything in a page, in any of its forms, or if a narrow page is wider than the window.
func (b *tab) accessible(name, source string) {
	b.t.Helper()
	b.forms(func(theme string, width int64) {
		for _, found := range b.axe(source) {
			b.t.Errorf("%s, %s, %d pixels: %s", name, theme, width, found)
		}
		if wide := result(b, chromedp.Evaluate[int64]("document.documentElement.scrollWidth")); wide > width {
			b.t.Errorf("%s, %s: the page is %d pixels wide in a window of %d", name, theme, wide, width)
		}
	})
}

// No page has anything that axe finds.
//
// SPEC: BEY-15
func TestAccessibility(t *testing.T) {
	source := axeSource(t)
	server := start(t)
	writePages(t, server)
	b := open(t, server)
	b.visit("")
	b.sees("Sign in")
	b.accessible("signin", source)
	b.typeToken("wrong")
	b.sees("does not accept this credential")
	b.accessible("signin-refused", source)
	b.typeToken(harness.AdminToken)
	b.sees("Sign out")
	for _, p := range pageCases {
		b.enter(p)
		b.accessible(p.name, source)
	}

	// The check is able to fail, in both themes.
	b.visit("")
	b.sees("customresourcedefinitions")
	b.run(chromedp.Evaluate[chromedp.Void](`(() => {
		const button = document.createElement("button"), p = document.createElement("p");
		p.textContent = "hardly seen";
		p.style.color = "#808080";
		p.style.backgroundColor = "#8a8a8a";
		document.querySelector("main").append(button, p);
	})()`))
	b.forms(func(theme string, width int64) {
		found := strings.Join(b.axe(source), "\n")
		if !strings.Contains(found, "button-name: ") || !strings.Contains(found, "color-contrast: ") {
			t.Errorf("%s, %d pixels: axe does not find what is planted; it finds: %s", theme, width, found)
		}
	})
}
