package merge

import (
	"strings"
	"testing"

	"plinth/object"
)

// shared is a Widget that three managers have written to.
func shared(t testing.TB) object.Value {
	t.Helper()
	write := func(live object.Value, manager, spec string, force bool) object.Value {
		v, err := widgets.Apply(live, yaml(t, "apiVersion: v1\nkind: Widget\n"+spec),
			Writer{Manager: manager, APIVersion: "v1", Force: force, Now: "2026-01-02T03:04:05Z"})
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	v := write(object.Nil, "helm",
		"metadata: {name: w, labels: {app: web}}\nspec: {replicas: 1, selector: {a: b, c: d}, containers: [{name: web, image: a, args: [x, 'yes']}]}", false)
	v = write(v, "ops", "metadata: {labels: {app: web}}\nspec: {containers: [{name: web, ports: [{port: 80}]}]}", false)
	v = v.WithAt(object.StringOf("u"), "metadata", "uid")
	v, err := widgets.Update(v, v.WithAt(object.IntOf(3), "spec", "replicas").WithAt(yaml(t, "{x: {z: 1}}"), "spec",
		"template"),
		Writer{Manager: "hpa", APIVersion: "v1", Subresource: "scale", Now: "2026-01-02T03:04:05Z"})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// SPEC: BEY-1
func TestOwnersOfEachLine(t *testing.T) {
	v := shared(t)
	const want = `apiVersion: v1
kind: Widget
metadata:
  labels:
    app: web    # helm (Apply), ops (Apply)
  name: w
  uid: u
spec:
  containers:
  - args:       # item: helm (Apply), ops (Apply); helm (Apply)
    - x         # helm (Apply)
    - "yes"     # helm (Apply)
    image: a    # helm (Apply)
    name: web   # helm (Apply), ops (Apply)
    ports:
    - port: 80  # item: ops (Apply); ops (Apply)
  replicas: 3   # hpa (Update through /scale)
  selector:     # helm (Apply)
    a: b        # helm (Apply)
    c: d        # helm (Apply)
  template:     # hpa (Update through /scale)
    x:          # hpa (Update through /scale)
      z: 1      # hpa (Update through /scale)
`
	o, err := Owners(v, widget)
	if err != nil {
		t.Fatal(err)
	}
	if got := o.YAML(); got != want {
		t.Errorf("with the type:\n%s", got)
	}
	// Without the type, the kinds of lists are deduced from the owned paths; the default of the port's key is unknown
	// then.
	guessed, err := Owners(v, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := guessed.YAML(); strings.Replace(got, "nobody", "item: ops (Apply); ops (Apply)", 1) != want {
		t.Errorf("without the type:\n%s", got)
	}
	// The text is still YAML.
	if again := yaml(t, o.YAML()); !object.Equal(again, withoutManaged(v)) {
		t.Errorf("the YAML parses as %s", object.AppendJSON(nil, again))
	}
}

// SPEC: BEY-1
func TestNobodysFields(t *testing.T) {
	o, err := Owners(yaml(t, head+"spec: {replicas: 1}"), widget)
	if err != nil {
		t.Fatal(err)
	}
	if got := o.YAML(); !strings.Contains(got, "replicas: 1   # nobody\n") || strings.Contains(got, "name: w  #") {
		t.Errorf("owners are\n%s", got)
	}
}

// SPEC: BEY-1
func TestRemovedWithout(t *testing.T) {
	v := shared(t)
	for manager, want := range map[string]string{
		"ops":  `.spec.containers[name="web"].ports .spec.containers[name="web"].ports[port=80,protocol="TCP"] .spec.containers[name="web"].ports[port=80,protocol="TCP"].port`,
		"helm": `.spec.selector .spec.containers[name="web"].args .spec.containers[name="web"].image`,
	} {
		gone, err := widgets.RemovedWithout(v, Entry{Manager: manager, Operation: OperationApply})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.ReplaceAll(gone.String(), "\n", " "); got != want {
			t.Errorf("removed without %s: %s", manager, got)
		}
	}
	if gone, err := widgets.RemovedWithout(v, Entry{Manager: "hpa", Operation: OperationUpdate}); err != nil ||
		!gone.Empty() {
		t.Errorf("hpa: %v, %v", gone, err)
	}
}

// The YAML of an ownership is the object, regardless of the managedFields that a client has written: a line break in
// the name of a subresource does not end the comment that names it.
//
// SPEC: BEY-1
func TestOwnersWithLineBreaks(t *testing.T) {
	v := yaml(t, "apiVersion: v1\nkind: Widget\nmetadata: {name: w}\nspec: {replicas: 1}")
	managed := v.WithAt(yaml(t, `[{manager: "a\n b: 1", operation: Update, apiVersion: v1, subresource: "x\n  replicas: 2",
  fieldsType: FieldsV1, fieldsV1: {"f:spec": {"f:replicas": {}}}}]`), "metadata", "managedFields")
	o, err := Owners(managed, widget)
	if err != nil {
		t.Fatal(err)
	}
	if again := yaml(t, o.YAML()); !object.Equal(again, v) {
		t.Errorf("the YAML parses as another object:\n%s", o.YAML())
	}
}

// The lines of an object are YAML that has the same strings, whatever characters they have.
func TestStringsOfLines(t *testing.T) {
	check := func(text string) {
		line := "a: " + yamlScalar(object.StringOf(text)) + "\n" + yamlKey(text+"-") + ": 1\n"
		parsed, err := object.ParseYAML([]byte(line))
		if err != nil {
			t.Errorf("%q is printed as %q, which is no YAML: %v", text, line, err)
		} else if got := parsed.Value.At("a").Str(); got != text || parsed.Value.At(text+"-").Int() != 1 {
			t.Errorf("%q is printed as %q and read as %q", text, line, got)
		}
	}
	for r := range rune(0x3000) {
		check("x" + string(r) + "y")
	}
	for r := rune(0xfe00); r <= 0x10020; r++ {
		check("x" + string(r) + "y")
	}
	check("\U000e0041")
	check("\U0010ffff")
}
