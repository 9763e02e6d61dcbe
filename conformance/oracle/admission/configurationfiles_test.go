package admission

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/apis/apiserver"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	apiserverv1alpha1 "k8s.io/apiserver/pkg/apis/apiserver/v1alpha1"

	ours "plinth/internal/admission"
)

// The configurations of plugins in a file of --admission-control-config-file are those of the reference.
//
// SPEC: AUTH-3
func TestConfigurationFiles(t *testing.T) {
	types := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{apiserver.AddToScheme, apiserverv1.AddToScheme,
		apiserverv1alpha1.AddToScheme} {
		if err := add(types); err != nil {
			t.Fatal(err)
		}
	}
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n"
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	absolute := write("other.yaml", "of: other\n")
	names := []string{"ImagePolicyWebhook", "PodNodeSelector", "PodSecurity", "Nobody"}
	accepted, refused := 0, 0
	for _, text := range []string{
		"", "{}", "[]", "a: b", ": :", head, head + "plugins: []\n", head + "plugins: 5\n", head + "others: []\n",
		"apiVersion: apiserver.k8s.io/v1alpha1\nkind: AdmissionConfiguration\n" +
			"plugins: [{name: PodSecurity, path: other.yaml}]\n",
		"apiVersion: apiserver.config.k8s.io/v1beta1\nkind: AdmissionConfiguration\n",
		"apiVersion: apiserver.config.k8s.io/v1\nkind: Other\n",
		head + "plugins: [{name: PodSecurity, path: other.yaml}, {name: Nobody, path: " + absolute + "}]\n",
		head + "plugins: [{name: PodSecurity, path: other.yaml, configuration: {a: b}}]\n",
		head + "plugins: [{name: PodSecurity, path: other.yaml, configuration: null}]\n",
		head + "plugins: [{name: PodSecurity}, {name: PodSecurity, configuration: {a: b}}]\n",
		head + "plugins: [{name: PodSecurity, configuration: {c: d}}, {name: PodSecurity, configuration: {a: b}}]\n",
		head + "plugins: [{name: PodSecurity, configuration: {c: d}}, {name: PodNodeSelector, configuration: {a: b}}]\n",
		head + "plugins: [{name: PodSecurity, wrong: {c: d}}]\n", head + "plugins: [{configuration: {a: b}}]\n",
		"imagePolicy: {kubeConfigFile: a}\n", "podNodeSelectorPluginConfig: {a: b}\n", "imagePolicy:\n",
		"kind: Other\nimagePolicy: {}\n", "apiVersion: v1\nimagePolicy: {}\n", "apiVersion: a/b/c\nimagePolicy: {}\n",
		"apiVersion: v1\nkind: Other\npodNodeSelectorPluginConfig: {}\n", head + "imagePolicy: {}\n",
		head + "plugins: 5\nimagePolicy: {}\n", `{"imagePolicy": {"a": "b"}}`, `{"imagePolicy": `,
	} {
		file := write("config.yaml", text)
		theirs, err := admission.ReadAdmissionConfiguration(names, file, types)
		mine, failed := ours.LoadConfigurations(file)
		if (err == nil) != (failed == nil) {
			t.Errorf("%q\nreference: %v\nours: %v", text, err, failed)
			continue
		}
		if err != nil {
			refused++
			continue
		}
		accepted++
		for _, name := range names {
			of, err := theirs.ConfigFor(name)
			if err != nil {
				t.Fatal(err)
			}
			var want []byte
			if of != nil {
				if want, err = io.ReadAll(of); err != nil {
					t.Fatal(err)
				}
			}
			if string(mine[name]) != string(want) {
				t.Errorf("%q: the configuration of %s is %q, want %q", text, name, mine[name], want)
			}
		}
	}
	if accepted < 12 || refused < 8 {
		t.Errorf("%d files are accepted, %d refused", accepted, refused)
	}
	none := filepath.Join(dir, "none")
	_, theirs := admission.ReadAdmissionConfiguration(names, none, types)
	if _, mine := ours.LoadConfigurations(none); theirs == nil || mine == nil || mine.Error() != theirs.Error() {
		t.Errorf("without the file\nreference: %v\nours: %v", theirs, mine)
	}
	// Ours reads the file of each plugin at the start, also of those that are off.
	lost := write("lost.yaml", head+"plugins: [{name: PodSecurity, path: none}, {name: Nobody, path: lost}]\n")
	want := fmt.Sprintf("the configuration of admission plugin PodSecurity: open %s: no such file or directory\n"+
		"the configuration of admission plugin Nobody: open %s: no such file or directory", none, filepath.Join(dir, "lost"))
	if _, err := ours.LoadConfigurations(lost); err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
}
