package etcdform

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// namespace is that of the objects that are recorded.
const namespace = "etcdform"

// stub is an object with which Kubernetes tests where its server stores objects.
type stub struct {
	resource           schema.GroupVersionResource
	json, status, path string // the object, its status, and the key in etcd
}

// stubs reads the objects of test/integration/etcd/data.go in the module of Kubernetes. The package is not imported, as
// it would link a whole kube-apiserver into the test.
func stubs(t testing.TB) []stub {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
	if err != nil {
		t.Fatal(err)
	}
	file, err := parser.ParseFile(token.NewFileSet(),
		filepath.Join(strings.TrimSpace(string(dir)), "test", "integration", "etcd", "data.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var all []stub
	ast.Inspect(file, func(n ast.Node) bool {
		entry, ok := n.(*ast.KeyValueExpr)
		if !ok {
			return true
		}
		key, isCall := entry.Key.(*ast.CallExpr)
		value, isLiteral := entry.Value.(*ast.CompositeLit)
		if !isCall || !isLiteral || fmt.Sprint(key.Fun) != "gvr" || len(key.Args) != 3 {
			return true
		}
		s := stub{resource: schema.GroupVersionResource{Group: textOf(t, key.Args[0]), Version: textOf(t, key.Args[1]),
			Resource: textOf(t, key.Args[2])}}
		for _, element := range value.Elts {
			switch field := element.(*ast.KeyValueExpr); fmt.Sprint(field.Key) {
			case "Stub":
				s.json = textOf(t, field.Value)
			case "StatusStub":
				s.status = textOf(t, field.Value)
			case "ExpectedEtcdPath":
				s.path = textOf(t, field.Value)
			}
		}
		if s.json != "" {
			all = append(all, s)
		}
		return false
	})
	if len(all) < 100 {
		t.Fatalf("only %d objects were found in data.go", len(all))
	}
	return all
}

// textOf is the value of an expression of texts.
func textOf(t testing.TB, e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		if err != nil {
			t.Fatal(err)
		}
		return text
	case *ast.BinaryExpr:
		return textOf(t, e.X) + textOf(t, e.Y)
	case *ast.Ident:
		if text, ok := map[string]string{"namespace": namespace, "image": "busybox", "alternateImage": "etcd"}[e.Name]; ok {
			return text
		}
	}
	t.Fatalf("data.go has an expression that is not understood: %T", e)
	return ""
}
