package plinth

import (
	"go/ast"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// The glossary of ARCHITECTURE.md gives each word one meaning, and names the packages that have the word in the names
// that they declare.
//
// A test cannot read the meaning of a name. It can see who uses the word: a second meaning begins with a declaration in
// a package that had nothing to do with the word, and whoever writes it has to choose another word, or to add the
// package to the list because the meaning is the same. Local variables and comments are not looked at.

// term is a row of the glossary.
type term struct {
	word         string
	packages     []string // by folder, that declare names with the word
	open         bool     // other packages may, too
	declarations []string // PACKAGE.NAME or PACKAGE.TYPE.MEMBER, which must exist
}

// notOurs are names that are not chosen here: those of the API, of the reference's flags and metrics. Feature gates are
// left out with their package.
var notOurs = map[string]string{
	"GitCommit":            "a member of /version",
	"ingressBackend":       "a type of the API of Ingresses",
	"claimOrSnapshot":      "VolumeSnapshots",
	"negativeHistory":      "revisionHistoryLimit",
	"claimsAndHistory":     "revisionHistoryLimit",
	"GarbageCollection":    "--enable-garbage-collector",
	"PermitAddressSharing": "--permit-address-sharing",
	"PermitPortSharing":    "--permit-port-sharing",
}

func TestGlossary(t *testing.T) {
	terms := glossary(read(t, "ARCHITECTURE.md"))
	declared := declarations(t)
	exempt := map[string]bool{}
	closed := 0
	for _, row := range terms {
		if !row.open && len(row.packages) > 0 {
			closed++
		}
		for _, complaint := range row.complaints(declared, exempt) {
			t.Error(complaint)
		}
	}
	for name, why := range notOurs {
		if !exempt[name] {
			t.Errorf("no package declares %s (%s), or no term of the glossary is in it", name, why)
		}
	}
	if len(terms) < 40 || closed < 22 || len(declared) < 45 {
		t.Errorf("only %d terms, %d of them with a complete list, and %d packages were found", len(terms), closed,
			len(declared))
	}
}

// The check notices a second meaning, a list with a package that does not use the word, and a declaration that is gone.
func TestGlossaryIsChecked(t *testing.T) {
	const page = "## Glossary\n" +
		"| word | meaning | declared in |\n|---|---|---|\n" +
		"| view | one | `view` |\n| media form | two | `wire.Media.Form`, `wire.Form` |\n" +
		"| parse | three | `object`, … |\n| set status | four | |\n## The folders\n| x | y | z |\n"
	terms := glossary(page)
	if len(terms) != 4 {
		t.Fatalf("%d terms were found", len(terms))
	}
	names := map[string][]string{
		"view": {"View"}, "wire": {"Media", "Media.Form"}, "object": {"Parse"}, "cmd": {"parse", "Reviews"},
	}
	for _, c := range []struct {
		folder, name string
		wrong        int
	}{
		{"", "", 2}, // wire.Form, and set status without a place
		{"engine", "Subresource.View", 3}, {"engine", "compileViews", 3}, {"engine", "viewer", 2}, {"engine", "parse", 2},
		{"view", "", 3}, {"object", "", 3}, {"wire", "Form", 3}, // which leaves no Media.Form
	} {
		changed := map[string][]string{}
		for folder, list := range names {
			changed[folder] = list
		}
		if c.folder != "" {
			changed[c.folder] = []string{c.name}
		}
		if c.name == "Form" {
			c.wrong = 2 // wire.Form is there now
		}
		got := 0
		for _, row := range terms {
			got += len(row.complaints(changed, map[string]bool{}))
		}
		if got != c.wrong {
			t.Errorf("with %s.%s there are %d errors, not %d", c.folder, c.name, got, c.wrong)
		}
	}
}

// glossary reads the rows of the page.
func glossary(page string) (terms []term) {
	_, text, _ := strings.Cut(page, "## Glossary\n")
	text, _, _ = strings.Cut(text, "\n## ")
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		word := strings.TrimSpace(cells[0])
		if !strings.HasPrefix(line, "| ") || word == "word" {
			continue
		}
		row := term{word: word, open: strings.HasSuffix(strings.TrimSpace(line), "… |")}
		for _, m := range code.FindAllStringSubmatch(cells[len(cells)-1], -1) {
			if len(cells) != 3 {
				break // the row has no list, which is an error
			}
			if strings.Contains(path.Base(m[1]), ".") {
				row.declarations = append(row.declarations, m[1])
			} else {
				row.packages = append(row.packages, m[1])
			}
		}
		terms = append(terms, row)
	}
	return terms
}

// complaints says how the row differs from what the packages declare, and notes the names of notOurs that it has met.
func (row *term) complaints(declared map[string][]string, exempt map[string]bool) (all []string) {
	if len(row.packages)+len(row.declarations) == 0 {
		return []string{"the glossary does not say where " + row.word + " is declared"}
	}
	for _, name := range row.declarations {
		folder, member, _ := strings.Cut(path.Base(name), ".")
		if !slices.Contains(declared[path.Join(path.Dir(name), folder)], member) {
			all = append(all, "the glossary says that "+row.word+" is "+name+", which is not declared")
		}
	}
	if len(row.packages) == 0 {
		return all
	}
	for _, folder := range row.packages {
		if row.namedIn(declared[folder], exempt) == "" {
			all = append(all, "the glossary lists "+folder+" for "+row.word+", but it declares no such name")
		}
	}
	for folder, names := range declared {
		if name := row.namedIn(names, exempt); name != "" && !row.open && !slices.Contains(row.packages, folder) {
			all = append(all, folder+" declares "+name+", but the glossary does not list it for "+row.word)
		}
	}
	return all
}

// namedIn returns the first name with the word in it, also as a plural, or "".
func (row *term) namedIn(names []string, exempt map[string]bool) string {
	for _, name := range names {
		_, member, ok := strings.Cut(name, ".")
		if !ok {
			member = name
		}
		if !slices.ContainsFunc(wordsOf(member), func(w string) bool {
			return w == strings.ToLower(row.word) || w == strings.ToLower(row.word)+"s"
		}) && !strings.EqualFold(member, row.word) {
			continue
		}
		if notOurs[member] == "" {
			return name
		}
		exempt[member] = true
	}
	return ""
}

// wordsOf splits a name in camel case into its words in lower case: HTTPViews is http and views.
func wordsOf(name string) (words []string) {
	text := []rune(name)
	start := 0
	for i := 1; i <= len(text); i++ {
		if i < len(text) {
			begins := unicode.IsUpper(text[i]) &&
				(!unicode.IsUpper(text[i-1]) || i+1 < len(text) && unicode.IsLower(text[i+1]))
			if !begins && text[i] != '_' {
				continue
			}
		}
		words = append(words, strings.ToLower(strings.Trim(string(text[start:i]), "_")))
		start = i
	}
	return words
}

// declarations lists what each package of the product declares, by its folder without internal/: NAME and TYPE.MEMBER.
// Tests, packages of tests, and the reference's feature gates are left out.
func declarations(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, p := range packages(t) {
		folder := strings.TrimPrefix(p.folder(), "internal/")
		if strings.HasSuffix(folder, "test") || folder == "features" || folder == "." {
			continue
		}
		for _, name := range slices.Concat(p.GoFiles, p.IgnoredGoFiles) {
			file := filepath.Join(p.Dir, name)
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			all[folder] = append(all[folder], namesIn(parsed(t, file, text))...)
		}
	}
	return all
}

// namesIn lists the declarations of a file.
func namesIn(file *ast.File) (names []string) {
	add := func(prefix string, idents ...*ast.Ident) {
		for _, id := range idents {
			names = append(names, prefix+id.Name)
		}
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			prefix := ""
			if d.Recv != nil {
				prefix = receiver(d.Recv.List[0].Type).Name + "."
			}
			add(prefix, d.Name)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.ValueSpec:
					add("", s.Names...)
				case *ast.TypeSpec:
					add("", s.Name)
					ast.Inspect(s.Type, func(n ast.Node) bool {
						switch n := n.(type) {
						case *ast.Field:
							add(s.Name.Name+".", n.Names...)
						case *ast.FuncType:
							return false // its parameters
						}
						return d.Tok == token.TYPE
					})
				}
			}
		}
	}
	return names
}
