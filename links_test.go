package plinth

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	// A link or an image of Markdown, or what HTML in it names.
	link    = regexp.MustCompile("\\]\\(([^)\\s]+)\\)|\\b(?:href|src|srcset)=\"([^\"]+)\"")
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	// Code is no text: what looks like a link or a heading there is none.
	codeBlock = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	codeSpan  = regexp.MustCompile("`[^`\n]+`")
)

// Links within the repository lead to a file, and to a heading of it; and links lead from README.md to every page below
// docs.
func TestLinks(t *testing.T) {
	total := 0
	leadsTo := map[string][]string{}
	eachFile(t, ".md", func(path string, text []byte) {
		targets, complaints := followLinks(path, string(text), os.ReadFile)
		for _, complaint := range complaints {
			t.Error(complaint)
		}
		total += len(targets)
		leadsTo[path] = targets
	})
	if total < 120 {
		t.Errorf("only %d links were found", total)
	}
	reached := map[string]bool{"README.md": true}
	for todo := []string{"README.md"}; len(todo) > 0; todo = todo[1:] {
		for _, target := range leadsTo[todo[0]] {
			if !reached[target] {
				reached[target] = true
				todo = append(todo, target)
			}
		}
	}
	for path := range leadsTo {
		if strings.HasPrefix(path, "docs/") && !reached[path] {
			t.Errorf("no link leads to %s", path)
		}
	}
}

// followLinks returns the files that the links of a page lead to, and says which lead nowhere.
func followLinks(path, text string, read func(string) ([]byte, error)) (targets, complaints []string) {
	text = codeSpan.ReplaceAllString(codeBlock.ReplaceAllString(text, ""), "``")
	for _, m := range link.FindAllStringSubmatch(text, -1) {
		to := m[1] + m[2]
		if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
			continue
		}
		name, anchor, _ := strings.Cut(to, "#")
		target := path
		if name != "" {
			target = filepath.Join(filepath.Dir(path), name)
		}
		body, err := read(target)
		if info, failed := os.Stat(target); err != nil && (failed != nil || !info.IsDir()) {
			complaints = append(complaints, fmt.Sprintf("%s: %s is not there", path, to))
			continue
		}
		targets = append(targets, target)
		if anchor != "" && !slices.Contains(anchors(string(body)), anchor) {
			complaints = append(complaints, fmt.Sprintf("%s: %s has no heading %s", path, target, anchor))
		}
	}
	return targets, complaints
}

// anchors are what links into a page can name, as GitHub makes them of its headings: one that is there twice is numbered
// the second time.
func anchors(text string) (all []string) {
	times := map[string]int{}
	for _, m := range heading.FindAllStringSubmatch(codeBlock.ReplaceAllString(text, ""), -1) {
		slug := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		slug = strings.ReplaceAll(slug, " ", "-")
		if times[slug]++; times[slug] > 1 {
			slug += fmt.Sprintf("-%d", times[slug]-1)
		}
		all = append(all, slug)
	}
	return all
}

// A link that leads nowhere is noticed.
func TestLinksAreFollowed(t *testing.T) {
	files := map[string]string{
		"a.md":   "# A page\n## Twice: *x*\n## Twice: x\n```\n# no heading\n```\n",
		"d/b.md": "",
	}
	read := func(name string) ([]byte, error) {
		text, ok := files[name]
		if !ok {
			return nil, os.ErrNotExist
		}
		return []byte(text), nil
	}
	for text, want := range map[string]string{
		"[x](../a.md) [x](../a.md#a-page) [x](../a.md#twice-x-1) [x](https://nowhere.example) ![x](b.md)": "",
		"`[x](c.md)`\n```\n[x](c.md)\n```\n": "",
		"[x](a.md)":                          "d/b.md: a.md is not there",
		"[x](../a.md#no-heading)":            "d/b.md: a.md has no heading no-heading",
		"[x](../a.md#twice-x-2)":             "d/b.md: a.md has no heading twice-x-2",
		"[x](#a-page)":                       "d/b.md: d/b.md has no heading a-page",
		"![x](x.svg)":                        "d/b.md: x.svg is not there",
		`<img src="x.svg" alt="x">`:          "d/b.md: x.svg is not there",
	} {
		files["d/b.md"] = text
		_, complaints := followLinks("d/b.md", text, read)
		if got := strings.Join(complaints, "\n"); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}
