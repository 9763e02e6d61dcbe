package kubeconfig

import (
	"errors"
	"strings"
	"testing"

	"plinth/object"
)

// copyOf is a context pr@prod of the context prod in users.
func copyOf() *Copy {
	return &Copy{Name: "pr@prod", User: "me", Cluster: object.Fields("server", object.StringOf("https://prod/clusters/pr"),
		"x-unknown", object.ListOf(object.IntOf(1)))}
}

// What was added is dropped again, and the file is as it was.
//
// SPEC: RUN-7, BEY-9
func TestAddAndDropACopy(t *testing.T) {
	withUser := copyOf()
	withUser.User, withUser.Credentials = "pr@prod", object.Fields("token", object.StringOf("x"))
	for name, c := range map[string]*Copy{"the same user": copyOf(), "a user of its own": withUser} {
		out, err := c.in([]byte(users))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		config, err := parse(out)
		if err != nil || config.Contexts["pr@prod"] == nil || config.Contexts["pr@prod"].AuthInfo != c.User ||
			config.AuthInfos[c.User] == nil || config.Clusters["pr@prod"].Server != "https://prod/clusters/pr" ||
			config.CurrentContext != "prod" {
			t.Errorf("%s: %v:\n%s", name, err, out)
		}
		if again, err := c.in(out); err != nil || string(again) != string(out) {
			t.Errorf("%s: added twice: %v:\n%s", name, err, again)
		}
		if back, err := c.out(out); err != nil || string(back) != users {
			t.Errorf("%s: dropped: %v:\n%s", name, err, back)
		}
		if same, err := c.out([]byte(users)); err != nil || string(same) != users {
			t.Errorf("%s: dropped from a file without it: %v:\n%s", name, err, same)
		}
	}
	alone, err := withUser.Text()
	if config, _ := parse(alone); err != nil || config.CurrentContext != "pr@prod" ||
		config.AuthInfos["pr@prod"].Token != "x" {
		t.Errorf("alone: %v:\n%s", err, alone)
	}
}

// Nothing of somebody else is changed or removed.
//
// SPEC: RUN-7
func TestCopiesOfOthers(t *testing.T) {
	for _, text := range []string{
		"contexts: [{name: pr@prod, context: {cluster: prod, user: me}}]\n",
		"clusters: [{name: pr@prod, cluster: {server: 'https://other'}}]\n",
		"clusters: [{name: pr@prod, cluster: {server: 'https://other'}}]\n" +
			"contexts: [{name: pr@prod, context: {cluster: pr@prod, user: me}}]\n",
		"clusters: [{name: pr@prod, cluster: {server: 'https://prod/clusters/pr'}}]\n" +
			"contexts: [{name: pr@prod, context: {cluster: pr@prod, user: you}}]\n",
	} {
		if out, err := copyOf().in([]byte(text)); !errors.Is(err, ErrTaken) {
			t.Errorf("%v: %s became\n%s", err, text, out)
		}
	}
	added, err := copyOf().in([]byte(users))
	if err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{
		"server: https://prod/clusters/pr": "server: https://other",
		"cluster: pr@prod\n":               "cluster: pr@prod\n    namespace: mine\n",
		"- 1":                              "- 2",
	} {
		changed := strings.Replace(string(added), from, to, 1)
		if out, err := copyOf().out([]byte(changed)); changed == string(added) || !errors.Is(err, ErrChanged) {
			t.Errorf("%v: %s:\n%s", err, changed, out)
		}
	}
	// A new value of the same server's is not another cluster.
	rotated := copyOf()
	rotated.Cluster = rotated.Cluster.With("certificate-authority-data", object.StringOf("new"))
	if out, err := rotated.in(added); err != nil || !strings.Contains(string(out), "certificate-authority-data: new") {
		t.Errorf("%v:\n%s", err, out)
	}
	shared := string(added) + "# more\n"
	shared = strings.Replace(shared, "contexts:\n", "contexts:\n- context: {cluster: pr@prod, user: me}\n  name: more\n", 1)
	out, err := copyOf().out([]byte(shared))
	if config, _ := parse(out); err != nil || config.Clusters["pr@prod"] == nil || config.Contexts["pr@prod"] != nil {
		t.Errorf("what another context uses is gone: %v\n%s", err, out)
	}
}
