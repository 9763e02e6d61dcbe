// Package stubs has the objects with which Kubernetes' own tests find out where kube-apiserver stores each type
// (test/integration/etcd/data.go).
package stubs

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

// Stub is an object of one type.
type Stub struct {
	Resource           schema.GroupVersionResource
	JSON, Status, Path string // the object, its status ("": it has none), and the key in etcd
}

// All reads the objects, with a namespace for those that need one, of test/integration/etcd/data.go in the module of
// Kubernetes. The package is not imported, as it would link a whole kube-apiserver into the test.
func All(t testing.TB, namespace string) []Stub {
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
	var all []Stub
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
		s := Stub{Resource: schema.GroupVersionResource{Group: textOf(t, namespace, key.Args[0]),
			Version: textOf(t, namespace, key.Args[1]), Resource: textOf(t, namespace, key.Args[2])}}
		for _, element := range value.Elts {
			switch field := element.(*ast.KeyValueExpr); fmt.Sprint(field.Key) {
			case "Stub":
				s.JSON = textOf(t, namespace, field.Value)
			case "StatusStub":
				s.Status = textOf(t, namespace, field.Value)
			case "ExpectedEtcdPath":
				s.Path = textOf(t, namespace, field.Value)
			}
		}
		if s.JSON != "" {
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
func textOf(t testing.TB, namespace string, e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		if err != nil {
			t.Fatal(err)
		}
		return text
	case *ast.BinaryExpr:
		return textOf(t, namespace, e.X) + textOf(t, namespace, e.Y)
	case *ast.Ident:
		if text, ok := map[string]string{"namespace": namespace, "image": "busybox", "alternateImage": "etcd"}[e.Name]; ok {
			return text
		}
	}
	t.Fatalf("data.go has an expression that is not understood: %T", e)
	return ""
}
