package plinth

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// pkg is what `go list` says of a package.
type pkg struct {
	ImportPath                           string
	Imports, TestImports, XTestImports   []string
	GoFiles, IgnoredGoFiles, TestGoFiles []string
	Dir, Name, Doc                       string
	Module                               struct{ Path string }
}

// folder is the folder of the package, "." for the root. The path of the module is not named: make module changes it.
func (p *pkg) folder() string {
	if p.ImportPath == p.Module.Path {
		return "."
	}
	return strings.TrimPrefix(p.ImportPath, p.Module.Path+"/")
}

// allowed says, for each package of the project, which others it may import. A package that is not listed fails the
// test: a new package needs a row here.
var allowed = map[string][]string{
	"object":               {"internal/invariants"},
	"schema":               {"object", "internal/invariants", "internal/recent"},
	"patch":                {"object", "schema", "internal/invariants"},
	"merge":                {"object", "schema", "internal/invariants"},
	"internal/apierr":      {"object"},
	"internal/fielderrors": {"object"},
	"internal/objectmeta":  {"object", "internal/fielderrors"},
	"internal/configfile":  {},
	"internal/shard":       {"internal/invariants"},
	"internal/stack":       {},
	"internal/execution":   {"internal/invariants"},
	"internal/store":       {"internal/execution", "internal/invariants", "internal/recent", "internal/store/delta"},
	"internal/store/delta": {},
	"internal/durable":     {},
	"internal/datadir":     {"internal/durable"},
	"internal/backup": {"internal/backup/remote", "internal/datadir", "internal/durable", "internal/store",
		"internal/store/filelog"},
	"internal/backup/remote": {},
	"internal/occupant":      {},
	"internal/product":       {},
	"internal/systemd":       {},
	"internal/kubeconfig":    {"object", "internal/durable"},
	"internal/store/filelog": {"internal/durable", "internal/execution", "internal/invariants", "internal/occupant",
		"internal/store", "internal/store/delta"},
	"internal/store/memlog": {"internal/store"},
	"internal/store/past": {"internal/durable", "internal/execution", "internal/store",
		"internal/store/delta"},
	"internal/store/etcd":      {"internal/execution", "internal/stack", "internal/store"},
	"internal/store/storetest": {"internal/store"},
	"internal/scenario":        {},
	"internal/view":            {"internal/invariants", "internal/store"},
	"internal/fairness": {"object", "internal/access", "internal/execution", "internal/invariants", "internal/store",
		"internal/view"},
	"internal/engine": {"object", "schema", "patch", "merge", "internal/access", "internal/apierr",
		"internal/execution", "internal/invariants", "internal/objectmeta", "internal/proto", "internal/shard",
		"internal/store", "internal/view"},
	"internal/admission": {"object", "internal/access", "internal/apierr", "internal/authz", "internal/builtin/validation",
		"internal/cel", "internal/egress", "internal/engine", "internal/features", "internal/recent", "internal/store",
		"internal/view", "internal/admission/*", "internal/configfile", "internal/objectmeta", "internal/webhook"},
	"internal/admission/hooks": {"object", "patch", "internal/apierr", "internal/engine", "internal/execution"},
	"internal/admission/policies": {"object", "schema", "merge", "patch", "internal/admission/hooks", "internal/apierr",
		"internal/cel", "internal/engine", "internal/recent", "internal/store", "internal/view"},
	"internal/admission/quota": {"object", "internal/engine", "internal/objectmeta", "internal/recent",
		"internal/store", "internal/view"},
	"internal/admission/webhooks": {"object", "patch", "internal/admission/hooks", "internal/apierr",
		"internal/cel", "internal/engine", "internal/execution", "internal/recent", "internal/samplelog", "internal/store",
		"internal/view", "internal/webhook"},
	"internal/addresses": {"object", "internal/apierr", "internal/engine", "internal/fielderrors",
		"internal/store", "internal/view"},
	"internal/scale":    {"object", "merge", "internal/gotypes", "internal/engine"},
	"internal/features": {},
	"internal/cel":      {"object", "schema", "internal/access", "internal/fielderrors", "internal/recent"},
	"internal/builtin": {"object", "schema", "merge", "internal/access", "internal/addresses",
		"internal/apierr", "internal/authz", "internal/engine", "internal/execution", "internal/features", "internal/gotypes",
		"internal/scale", "internal/store", "internal/builtin/*"},
	"internal/gotypes":          {"object", "schema"},
	"internal/gotypes/facts":    {"object", "schema"},
	"internal/builtin/defaults": {"object"},
	"internal/builtin/convert":  {"object"},
	"internal/builtin/validation": {"object", "internal/cel", "internal/features", "internal/fielderrors",
		"internal/objectmeta", "internal/webhook"},
	"internal/builtin/columns":  {"object", "internal/engine"},
	"internal/builtin/warnings": {"object", "internal/engine", "internal/objectmeta"},
	"internal/crd/validation": {"object", "schema", "internal/fielderrors", "internal/objectmeta",
		"internal/webhook"},
	"internal/egress":  {},
	"internal/webhook": {"object", "internal/egress", "internal/execution", "internal/fielderrors", "internal/objectmeta"},
	"internal/access":  {},
	"internal/audit":   {"object", "internal/access", "internal/configfile", "internal/execution", "internal/webhook"},
	"internal/auth":    {"internal/access", "internal/auth/tokencache", "internal/execution"},
	"internal/auth/oidc": {"internal/access", "internal/auth", "internal/cel", "internal/configfile",
		"internal/execution", "internal/fielderrors"},
	"internal/authz": {"object", "internal/objectmeta", "internal/access", "internal/apierr", "internal/cel",
		"internal/configfile", "internal/engine", "internal/features", "internal/store", "internal/view",
		"internal/webhook"},
	"internal/auth/tokencache":      {"internal/recent"},
	"internal/recent":               {"internal/invariants"},
	"internal/samplelog":            {},
	"internal/auth/tokenwebhook":    {"internal/access", "internal/auth", "internal/webhook"},
	"internal/auth/oidc/issuertest": {},
	"internal/impersonation":        {"internal/access", "internal/apierr", "internal/recent"},
	"internal/auth/serviceaccount": {"object", "internal/access", "internal/apierr", "internal/auth",
		"internal/auth/tokencache", "internal/durable", "internal/engine", "internal/fielderrors"},
	"internal/pki": {"internal/durable"},
	"internal/auth/externaljwt": {"object", "internal/auth/serviceaccount", "internal/execution",
		"internal/grpcsocket"},
	"internal/auth/externaljwt/signertest": {},
	"internal/crd": {"object", "schema", "merge", "internal/access", "internal/apierr",
		"internal/engine", "internal/fielderrors", "internal/objectmeta", "internal/scale", "internal/store", "internal/view",
		"internal/gotypes", "internal/cel", "internal/invariants", "internal/recent", "internal/crd/*"},
	"internal/discovery": {"object", "schema", "internal/apierr", "internal/engine", "internal/features", "internal/wire"},
	"internal/proto":     {"object", "schema", "internal/invariants"},
	"internal/etcdform": {"object", "schema", "merge", "internal/gotypes", "internal/engine",
		"internal/invariants", "internal/proto", "internal/store"},
	"internal/wire": {"object", "schema", "internal/apierr", "internal/gotypes",
		"internal/engine", "internal/invariants", "internal/proto", "internal/store"},
	"internal/httpapi": {"object", "internal/access", "internal/audit", "internal/apierr", "internal/engine",
		"internal/execution", "internal/fairness", "internal/features", "internal/fielderrors", "internal/invariants",
		"internal/objectmeta", "internal/planes/route", "internal/proto",
		"internal/samplelog", "internal/shard",
		"internal/stack", "internal/webhook", "internal/wire", "internal/discovery"},
	"internal/encryption": {"internal/configfile", "internal/execution", "internal/grpcsocket",
		"internal/recent"},
	"internal/encryption/plugintest": {},
	"internal/grpcsocket":            {"internal/execution"},
	"internal/election":              {},
	"internal/aggregation": {"object", "internal/access", "internal/apierr", "internal/discovery", "internal/execution",
		"internal/egress", "internal/features", "internal/forward", "internal/store", "internal/view", "internal/webhook"},
	"internal/forward": {"internal/access", "internal/apierr", "internal/egress", "internal/execution"},
	"internal/expiry":  {},
	"internal/nodes": {"object", "internal/access", "internal/apierr", "internal/configfile", "internal/egress",
		"internal/execution",
		"internal/features", "internal/gotypes", "internal/forward", "internal/planes/route"},
	"internal/endpoints":  {"object"},
	"internal/etcdstub":   {},
	"internal/invariants": {},
	"internal/mutants":    {},
	"internal/controller": {"object", "internal/access", "internal/addresses", "internal/admission/policies",
		"internal/admission/quota", "internal/aggregation",
		"internal/apierr", "internal/controller/pace", "internal/controller/steps", "internal/controller/worklist",
		"internal/engine",
		"internal/objectmeta", "internal/store"},
	"internal/controller/controllertest": {"object", "internal/admission", "internal/apierr", "internal/builtin",
		"internal/controller/steps",
		"internal/engine", "internal/store", "internal/store/memlog"},
	"internal/controller/pace":     {},
	"internal/controller/steps":    {},
	"internal/controller/worklist": {"internal/controller/pace", "internal/controller/steps"},
	"internal/controller/garbage": {"object", "internal/access", "internal/aggregation", "internal/apierr",
		"internal/controller/pace", "internal/controller/steps", "internal/controller/worklist", "internal/engine",
		"internal/objectmeta", "internal/store"},
	"internal/metrics": {"internal/access", "internal/admission", "internal/admission/policies",
		"internal/admission/webhooks", "internal/aggregation", "internal/audit", "internal/auth/externaljwt",
		"internal/auth/oidc", "internal/auth/serviceaccount", "internal/authz", "internal/cel",
		"internal/controller/worklist",
		"internal/discovery",
		"internal/encryption", "internal/engine", "internal/execution", "internal/expiry", "internal/fairness",
		"internal/features", "internal/grpcsocket", "internal/httpapi", "internal/nodes", "internal/peerproxy",
		"internal/store", "internal/store/etcd", "internal/store/past", "internal/webhook"},
	"internal/initial": {"object", "internal/access", "internal/aggregation", "internal/apierr", "internal/authz",
		"internal/controller", "internal/controller/steps", "internal/discovery", "internal/endpoints",
		"internal/engine", "internal/features", "internal/store"},
	"internal/peers": {"object", "internal/apierr", "internal/controller", "internal/election", "internal/endpoints",
		"internal/engine", "internal/etcdform", "internal/features", "internal/initial", "internal/store/etcd"},
	"internal/peerproxy": {"object", "internal/access", "internal/aggregation", "internal/apierr", "internal/discovery",
		"internal/egress", "internal/forward"},
	"internal/storage": {"object", "internal/addresses", "internal/admission/quota", "internal/backup",
		"internal/configfile", "internal/crd",
		"internal/encryption", "internal/engine", "internal/etcdform", "internal/httpapi", "internal/metrics",
		"internal/store", "internal/store/*"},
	"internal/console": {"internal/access", "internal/apierr", "internal/auth", "internal/auth/oidc", "internal/httpapi",
		"internal/objectmeta", "internal/planes/route", "internal/samplelog", "object"},
	"internal/plane": {"internal/access", "internal/addresses", "internal/admission", "internal/aggregation",
		"internal/apierr", "internal/auth", "internal/auth/oidc", "internal/auth/serviceaccount", "internal/authz",
		"internal/builtin", "internal/cel", "internal/console", "internal/controller", "internal/controller/garbage",
		"internal/controller/pace", "internal/controller/steps", "internal/controller/worklist", "internal/crd",
		"internal/discovery", "internal/egress", "internal/engine",
		"internal/fairness", "internal/features", "internal/gotypes", "internal/httpapi", "internal/impersonation",
		"internal/initial", "internal/nodes", "internal/peerproxy", "internal/pki", "internal/planes/kind",
		"internal/product", "internal/recent", "internal/reviews", "internal/storage", "internal/store",
		"internal/webhook", "object"},
	"internal/planes": {"object", "internal/apierr", "internal/crd", "internal/engine", "internal/fairness",
		"internal/httpapi", "internal/plane",
		"internal/planes/kind", "internal/planes/route", "internal/storage", "internal/store"},
	"internal/planes/route": {"object", "internal/apierr", "internal/objectmeta"},
	"internal/planes/credentials": {"internal/access", "internal/auth", "internal/auth/serviceaccount",
		"internal/durable", "internal/initial", "internal/pki", "internal/plane", "internal/planes/kind"},
	"internal/reviews": {"object", "schema", "internal/access", "internal/apierr", "internal/authz", "internal/cel",
		"internal/engine", "internal/gotypes"},
	"internal/planes/kind/kindtest": {"internal/addresses", "internal/auth/serviceaccount", "internal/authz",
		"internal/engine", "internal/features", "internal/initial", "internal/plane", "internal/planes/kind",
		"internal/storage"},
	"internal/planes/kind": {"object", "internal/store", "internal/access", "internal/apierr", "internal/authz",
		"internal/crd",
		"internal/engine", "internal/gotypes"},
	"internal/server": {"*"},
	"plinthtest": {"internal/access", "internal/addresses", "internal/admission", "internal/apierr", "internal/auth",
		"internal/auth/serviceaccount", "internal/authz", "internal/builtin", "internal/engine", "internal/features",
		"internal/httpapi", "internal/initial", "internal/kubeconfig", "internal/nodes", "internal/pki", "internal/plane",
		"internal/planes/route", "internal/storage", "internal/store", "merge", "object"},
	"internal/background": {},
	"internal/transfer": {"object", "internal/addresses", "internal/builtin", "internal/crd", "internal/datadir",
		"internal/engine", "internal/etcdform", "internal/gotypes", "internal/planes", "internal/planes/kind",
		"internal/storage", "internal/store", "internal/store/etcd", "internal/store/filelog"},
	"cmd/plinth": {"internal/addresses", "internal/background", "internal/backup", "internal/builtin",
		"internal/console", "internal/datadir", "internal/durable", "internal/etcdstub", "internal/expiry",
		"internal/kubeconfig", "internal/occupant", "internal/plane", "internal/planes", "internal/planes/kind",
		"internal/product", "internal/server", "internal/storage", "internal/store", "internal/store/filelog",
		"internal/store/past", "internal/systemd", "internal/transfer", "merge", "object", "patch", "plinthtest", "schema"},

	"internal/builtin/validation/validationtest": {"object", "internal/access", "internal/builtin", "internal/engine",
		"internal/features", "internal/objectmeta"},
}

// outside says which packages from elsewhere only these packages may import.
var outside = map[string][]string{
	"filippo.io/keygen":                 {"internal/planes/credentials"},
	"filippo.io/age":                    {"internal/backup"},
	"github.com/schollz/progressbar":    {"cmd/plinth"},
	"github.com/cockroachdb/pebble/v2":  {"internal/durable", "internal/store/filelog", "internal/store/past"},
	"github.com/cockroachdb/datadriven": {"internal/scenario"},
	"github.com/coreos/go-systemd/":     {"internal/systemd"},
	"github.com/gorilla/websocket":      {"internal/httpapi", "internal/nodes"},
	"github.com/coreos/go-oidc/":        {"internal/auth/oidc"},
	"golang.org/x/oauth2":               {"internal/auth/oidc"},
	"k8s.io/component-helpers":          {"internal/admission", "internal/admission/quota"},
	"k8s.io/pod-security-admission":     {"internal/admission"},
	"github.com/go-jose/": {"internal/auth/serviceaccount", "internal/auth/oidc",
		"internal/auth/oidc/issuertest"},
	"go.etcd.io/": {"internal/store/filelog", "internal/store/etcd"},
	"k8s.io/api/": {"internal/admission", "internal/admission/policies", "internal/admission/quota",
		"internal/admission/webhooks",
		"internal/builtin/columns", "internal/builtin", "internal/builtin/convert",
		"internal/gotypes", "internal/builtin/warnings", "internal/nodes", "internal/scale"},
	"k8s.io/kube-aggregator/":         {"internal/builtin"},
	"k8s.io/apiextensions-apiserver/": {"internal/builtin", "internal/gotypes", "internal/etcdform"},
	"google.golang.org/protobuf/": {"internal/auth/externaljwt/signertest", "internal/cel", "internal/encryption",
		"internal/proto", "internal/wire", "plinthtest"},
	"google.golang.org/grpc": {"internal/auth/externaljwt", "internal/auth/externaljwt/signertest",
		"internal/encryption", "internal/encryption/plugintest", "internal/grpcsocket", "internal/store/etcd"},
	"k8s.io/externaljwt":  {"internal/auth/externaljwt", "internal/auth/externaljwt/signertest"},
	"golang.org/x/crypto": {"internal/encryption"},
	"go.etcd.io/etcd":     {"internal/store/etcd"},
	"go.uber.org/zap":     {"internal/store/etcd"},
	"k8s.io/kms":          {"internal/encryption", "internal/encryption/plugintest"},
	"net/http": {"internal/admission/policies", "internal/admission/webhooks", "internal/backup/remote",
		"internal/httpapi", "internal/server", "internal/plane", "internal/auth", "internal/console",
		"internal/auth/oidc", "internal/auth/oidc/issuertest", "internal/apierr", "internal/etcdstub",
		"internal/egress", "internal/metrics", "internal/webhook", "internal/forward", "internal/nodes",
		"internal/aggregation", "internal/peerproxy", "internal/planes", "internal/planes/credentials",
		"internal/planes/route", "cmd/plinth",
		"plinthtest"},
	"k8s.io/klog":                       {"internal/forward", "internal/nodes"},
	"k8s.io/streaming":                  {"internal/forward", "internal/nodes"},
	"github.com/mxk/go-flowrate":        {"internal/nodes"},
	"github.com/google/cel-go":          {"internal/cel"},
	"k8s.io/apiserver":                  {"internal/cel"},
	"k8s.io/kubernetes":                 {},
	"k8s.io/client-go":                  {"internal/crd"},
	"sigs.k8s.io/structured-merge-diff": {},
	"github.com/spf13/cobra":            {"cmd/plinth"},
	"golang.org/x/term":                 {"cmd/plinth"},
}

// pure packages decide, and do no I/O.
var pure = []string{"object", "schema", "merge", "patch"}

var impure = []string{"context", "net", "os", "log", "log/slog", "time"}

func packages(t *testing.T) []pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-json", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	var list []pkg
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
}

func TestWhoImportsWhom(t *testing.T) {
	for _, p := range packages(t) {
		self := p.folder()
		if self == "." {
			continue
		}
		may, listed := allowed[self]
		if !listed {
			t.Errorf("%s is not in the table of who may import whom", self)
			continue
		}
		for _, imported := range p.Imports {
			if own, ok := strings.CutPrefix(imported, p.Module.Path+"/"); ok && !matches(may, own) {
				t.Errorf("%s imports %s", self, own)
			}
			for prefix, only := range outside {
				if strings.HasPrefix(imported+"/", strings.TrimSuffix(prefix, "/")+"/") && !slices.Contains(only, self) {
					t.Errorf("%s imports %s", self, imported)
				}
			}
			if slices.Contains(pure, self) && slices.Contains(impure, imported) && !(imported == "time" && self == "schema") {
				t.Errorf("%s imports %s, but is to be pure", self, imported)
			}
		}
	}
}

func matches(patterns []string, name string) bool {
	for _, p := range patterns {
		if ok, _ := path.Match(p, name); ok || p == "*" {
			return true
		}
	}
	return false
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	banned := []string{"util", "utils", "common", "helpers", "types", "base"}
	for _, p := range packages(t) {
		if p.Doc == "" && len(p.GoFiles) > 0 {
			t.Errorf("%s has no package comment", p.ImportPath)
		}
		if slices.Contains(banned, path.Base(p.ImportPath)) {
			t.Errorf("%s: a package is named after what it is for", p.ImportPath)
		}
	}
}

// Nothing of another package is changed, neither at import nor later: it would be changed for the whole process, and
// for whoever links this one.
func TestNoVariableOfAnotherPackageIsSet(t *testing.T) {
	parsed := 0
	for _, p := range packages(t) {
		for _, name := range p.GoFiles {
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			parsed++
			for _, found := range foreign(file) {
				t.Errorf("%s: %s", files.Position(found.Pos()), p.ImportPath)
			}
		}
	}
	if parsed < 100 {
		t.Errorf("only %d files were read", parsed)
	}
	const bad = `package p
import ("a"; b "x/y"; "z/v4")
func init() {}
func f() { a.X = 1; b.Y++; b.Z.Field, _ = 1, 2; v4.M["k"] = 1; p := &a.X; *p = 2 }
func g(a struct{ X int }) { a.X = 1; q := b.New(); q.X = 1; q.Y++ }`
	file, err := parser.ParseFile(token.NewFileSet(), "bad.go", bad, 0)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(foreign(file)); n != 6 {
		t.Errorf("of a file with 6 such places %d were found", n)
	}
}

// foreign finds where a file sets a variable of another package, or may: func init is there for nothing else, and an
// address is there to write to.
func foreign(file *ast.File) (found []ast.Node) {
	imported := map[string]bool{}
	for _, i := range file.Imports {
		full := strings.Trim(i.Path.Value, `"`)
		name := path.Base(full)
		if i.Name != nil {
			name = i.Name.Name
		}
		imported[name] = true
	}
	look := func(node ast.Node, target ast.Expr) {
		for {
			switch e := target.(type) {
			case *ast.IndexExpr:
				target = e.X
				continue
			case *ast.SelectorExpr:
				// An identifier that the parser has not resolved within the file is a package.
				if of, ok := e.X.(*ast.Ident); ok && of.Obj == nil && imported[of.Name] {
					found = append(found, node)
				}
				target = e.X
				continue
			}
			return
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Name.Name == "init" && n.Recv == nil {
				found = append(found, n)
			}
		case *ast.AssignStmt:
			for _, target := range n.Lhs {
				look(n, target)
			}
		case *ast.IncDecStmt:
			look(n, n.X)
		case *ast.UnaryExpr:
			if n.Op == token.AND {
				look(n, n.X)
			}
		}
		return true
	})
	return found
}

// maxFunctionLines is the house limit (CONTRIBUTING).
const maxFunctionLines = 120

func TestFunctionsAreShort(t *testing.T) {
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "conformance" || d.Name() == "tools" || d.Name() == ".git") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") || strings.Contains(file, "generated") {
			return nil
		}
		files := token.NewFileSet()
		parsed, err := parser.ParseFile(files, file, nil, parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		for _, declaration := range parsed.Decls {
			f, ok := declaration.(*ast.FuncDecl)
			if !ok {
				continue
			}
			lines := files.Position(f.End()).Line - files.Position(f.Pos()).Line + 1
			if lines > maxFunctionLines {
				t.Errorf("%s: %s has %d lines", files.Position(f.Pos()), f.Name.Name, lines)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
