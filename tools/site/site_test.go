package site

import (
	"encoding/json"
	"flag"
	"fmt"
	"html"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var external = flag.Bool("external", false, "ask the sites that links lead to whether they have the pages (make links)")

// build makes the site in a temporary directory.
func build(t *testing.T) fs.FS {
	t.Helper()
	dir := t.TempDir()
	hugo := exec.Command("go", "tool", "hugo", "--destination", filepath.Join(dir, "site"), "--noBuildLock",
		"--cacheDir", filepath.Join(dir, "cache"), "--panicOnWarning")
	if out, err := hugo.CombinedOutput(); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	return os.DirFS(filepath.Join(dir, "site"))
}

var (
	attribute = regexp.MustCompile(`\b(?:href|src)="([^"]*)"`)
	anchor    = regexp.MustCompile(`\bid="([^"]+)"`)
	heading   = regexp.MustCompile(`<title>([^<]+)</title>`)
)

// check follows the links of a site, and returns what is wrong, how many links it has within itself, and those to
// elsewhere, with a page that has them.
func check(site fs.FS) (complaints []string, within int, elsewhere map[string]string, err error) {
	texts, anchors := map[string]string{}, map[string][]string{}
	err = fs.WalkDir(site, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(site, name)
		texts[name] = string(text)
		for _, m := range anchor.FindAllStringSubmatch(string(text), -1) {
			anchors[name] = append(anchors[name], html.UnescapeString(m[1]))
		}
		return err
	})
	elsewhere = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if path.Ext(name) != ".html" {
			continue
		}
		if heading.FindString(texts[name]) == "" {
			complaints = append(complaints, name+" has no title")
		}
		for _, m := range attribute.FindAllStringSubmatch(texts[name], -1) {
			to, err := url.Parse(html.UnescapeString(m[1]))
			switch {
			case err != nil:
				complaints = append(complaints, fmt.Sprintf("%s: %v", name, err))
				continue
			case to.Scheme != "" || to.Host != "":
				elsewhere[to.String()] = name
				continue
			}
			within++
			target := name
			if to.Path != "" {
				target = path.Join(path.Dir(name), to.Path)
			}
			if _, ok := texts[target]; !ok || strings.HasPrefix(to.Path, "/") {
				complaints = append(complaints, fmt.Sprintf("%s: %s leads nowhere", name, to))
			} else if to.Fragment != "" && !slices.Contains(anchors[target], to.Fragment) {
				complaints = append(complaints, fmt.Sprintf("%s: %s has no heading %s", name, target, to.Fragment))
			}
		}
	}
	return complaints, within, elsewhere, err
}

// Links of the site lead to its pages and their headings, nothing is fetched from elsewhere, and the search knows every
// page and its headings.
func TestSite(t *testing.T) {
	site := build(t)
	complaints, within, elsewhere, err := check(site)
	if err != nil {
		t.Fatal(err)
	}
	for _, complaint := range complaints {
		t.Error(complaint)
	}
	if within < 1500 || len(elsewhere) < 10 {
		t.Errorf("only %d links within the site, and %d to elsewhere, were found", within, len(elsewhere))
	}
	pages, err := fs.Glob(site, "*.html")
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"*/*.html", "*/*/*.html"} {
		more, err := fs.Glob(site, pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, more...)
	}
	text, err := fs.ReadFile(site, "search-index.js")
	if err != nil {
		t.Fatal(err)
	}
	var index []struct {
		Path, Title, Text string
		Headings          []struct{ ID, Title string }
	}
	if err := json.Unmarshal([]byte(strings.TrimPrefix(string(text), "window.plinthSearchIndex = ")), &index); err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, page := range index {
		known[page.Path] = true
		body, err := fs.ReadFile(site, page.Path)
		if err != nil {
			t.Errorf("the search leads nowhere: %v", err)
		}
		if page.Title == "" || len(page.Text) < 100 || len(page.Headings) == 0 {
			t.Errorf("the search knows little of %s: %q, %d headings, %d bytes", page.Path, page.Title, len(page.Headings),
				len(page.Text))
		}
		for _, h := range page.Headings {
			if !strings.Contains(string(body), `id="`+html.EscapeString(h.ID)+`"`) {
				t.Errorf("the search leads to the heading %s, which %s does not have", h.ID, page.Path)
			}
		}
	}
	for _, page := range pages {
		if strings.HasSuffix(page, "readme.html") {
			t.Errorf("%s is a page twice: the README of a folder is its index", page)
		}
		if !known[page] {
			t.Errorf("the search does not know %s", page)
		}
		body, err := fs.ReadFile(site, page)
		if err != nil {
			t.Fatal(err)
		}
		if m := regexp.MustCompile(`(?:src|<link[^>]* href)="(?:https?:)?//[^"]*"`).Find(body); m != nil {
			t.Errorf("%s fetches something from elsewhere: %s", page, m)
		}
	}
	if len(pages) < 40 {
		t.Errorf("only %d pages were found", len(pages))
	}
}

// A site with a link that leads nowhere is noticed.
func TestCheckNotices(t *testing.T) {
	for text, want := range map[string]string{
		`<title>x</title><a href="b/b.html#here">`: "",
		`<title>x</title><a href="c.html">`:        "a.html: c.html leads nowhere",
		`<title>x</title><a href="/a.html">`:       "a.html: /a.html leads nowhere",
		`<title>x</title><img src="x.svg">`:        "a.html: x.svg leads nowhere",
		`<title>x</title><a href="b/b.html#gone">`: "a.html: b/b.html has no heading gone",
		`<title>x</title><a href="#gone">`:         "a.html: a.html has no heading gone",
		`<a href="b/b.html">`:                      "a.html has no title",
	} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "b"), 0o700); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"a.html": text, "b/b.html": `<title>b</title><h1 id="here">`} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		complaints, _, _, err := check(os.DirFS(dir))
		if got := strings.Join(complaints, "\n"); err != nil || got != want {
			t.Errorf("%s: got %q, %v; want %q", text, got, err, want)
		}
	}
}

// reach asks for a page, and returns an error if it is not there. Some sites refuse programs: that is no error.
func reach(client *http.Client, to string) error {
	resp, err := client.Get(to)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusGone {
		return fmt.Errorf("%s", resp.Status)
	}
	return nil
}

// The pages of other sites that links lead to are there (make links).
func TestExternalLinks(t *testing.T) {
	client := &http.Client{Timeout: 30 * time.Second}
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	if reach(client, server.URL) == nil {
		t.Error("a page that is not there is not noticed")
	}
	if !*external {
		return
	}
	_, _, elsewhere, err := check(build(t))
	if err != nil {
		t.Fatal(err)
	}
	for to, page := range elsewhere {
		if err := reach(client, to); err != nil {
			t.Errorf("%s: %s: %v", page, to, err)
		}
	}
}
