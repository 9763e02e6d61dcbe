package kubeconfig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/tools/clientcmd/api/latest"

	"plinth/object"
)

var entry = Entry{Name: "plinth", User: "plinth-admin", Server: "https://127.0.0.1:6443",
	Authority: []byte("authority"), Cert: []byte("cert"), Key: []byte("key")}

// parse reads a kubeconfig as client-go does.
func parse(text []byte) (*api.Config, error) {
	config := api.NewConfig()
	_, _, err := latest.Codec.Decode(text, &schema.GroupVersionKind{Version: latest.Version, Kind: "Config"}, config)
	return config, err
}

func load(file string) (*api.Config, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return parse(text)
}

// merge merges the entry, and checks that the result is what client-go reads.
func merge(t *testing.T, text string, e *Entry) string {
	t.Helper()
	out, err := Merge([]byte(text), e)
	if err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	again, err := Merge(out, e)
	if err != nil || string(again) != string(out) {
		t.Errorf("merged twice: %v:\n%s\n%s", err, out, again)
	}
	config, err := parse(out)
	if err != nil {
		t.Fatalf("client-go: %v:\n%s", err, out)
	}
	cluster, user, c := config.Clusters[e.Name], config.AuthInfos[e.User], config.Contexts[e.Name]
	if cluster == nil || user == nil || c == nil || cluster.Server != e.Server || c.Cluster != e.Name ||
		c.AuthInfo != e.User ||
		string(cluster.CertificateAuthorityData) != "authority" || string(user.ClientCertificateData) != "cert" ||
		string(user.ClientKeyData) != "key" {
		t.Errorf("client-go finds %+v %+v %+v in\n%s", cluster, user, c, out)
	}
	return string(out)
}

const users = `# my clusters, in the order of their age
apiVersion: v1
clusters: # all of them
# production: careful
- cluster:
    server: 'https://prod'   # the old one
    x-unknown: [1, 2]
  name: prod
contexts:
- context: {cluster: prod, user: me}
  name: prod
current-context: prod
kind: Config
users:
- name: me
  user:
    token: "secret" # from the vault
preferences: {}
`

// What is not ours stays to the byte, and so does the current context.
//
// SPEC: RUN-7
func TestMergeKeepsWhatOthersWrote(t *testing.T) {
	out := merge(t, users, &entry)
	at := 0
	for line := range strings.Lines(users) {
		i := strings.Index(out[at:], line)
		if i < 0 {
			t.Fatalf("%q is lost, or in another place:\n%s", line, out)
		}
		at += i + len(line)
	}
	if !strings.Contains(out, "# production: careful\n- cluster:\n    server: 'https://prod'") {
		t.Errorf("a comment is no longer at its item:\n%s", out)
	}
	used := entry
	used.Use = true
	if out := merge(t, out, &used); !strings.Contains(out, "\ncurrent-context: plinth\n") {
		t.Errorf("the context is not used:\n%s", out)
	}
}

// Files in all the forms in which people and programs write them.
func TestMergeForms(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":      "",
		"comments":     "# mine",
		"a document":   "---\n",
		"kubectl's":    "apiVersion: v1\nclusters: null\ncontexts: []\ncurrent-context: \"\"\nkind: Config\npreferences: {}\nusers: null\n",
		"no newline":   "apiVersion: v1\nkind: Config\nusers:",
		"null comment": "clusters: null # none\nusers: ~\ncontexts: # none\nkind: Config\n",
		"JSON":         `{"apiVersion":"v1","kind":"Config","clusters":[],"users":[{"name":"me","user":{"token":"x"}}]}`,
		"JSON lines":   "{\n  \"kind\": \"Config\",\n  \"clusters\": [\n    {\"name\": \"a\", \"cluster\": {\"server\": \"https://a\"}}\n  ]\n}\n",
		"empty JSON":   "{}",
		"indented":     "clusters:\n  - name: a\n    cluster:\n      server: https://a\n",
		"CRLF":         "apiVersion: v1\r\nclusters:\r\n- cluster:\r\n    server: https://a\r\n  name: a\r\n",
		"ours is old":  "clusters:\n- name: plinth\n  cluster:\n    server: \"https://x\\\"\" # mine\n    proxy-url: http://p\n",
		"ours is half": "clusters:\n- name: plinth\n- cluster: {}\n  name: b\nusers:\n- name: plinth-admin\n  user:\n",
		"in flow":      "clusters: [{name: plinth, cluster: {server: https://x}}]\ncontexts: [{name: plinth, context: null}]\n",
		"an alias":     "x: &y https://y\nclusters:\n- cluster:\n    server: *y\n  name: plinth\n",
		"documents":    "kind: Config\n---\nkind: Config\n", // client-go reads the first one
		"BOM":          "\ufeffclusters:\n- cluster:\n    server: https://ü\n  name: ü\n",
	} {
		t.Run(name, func(t *testing.T) { merge(t, text, &entry) })
	}
}

// Whatever was merged is cut again, and what others wrote is there to the byte.
//
// SPEC: RUN-7
func TestCut(t *testing.T) {
	for name, text := range map[string]string{
		"users":      users,
		"JSON":       `{"apiVersion":"v1","kind":"Config","clusters":[{"name":"a{","cluster":{"server":"x"}}],"users":[]}`,
		"in flow":    "clusters: [{name: a, cluster: {server: 'https://x]'}}]\ncontexts: [{name: a}]\nkind: Config\n",
		"indented":   "clusters:\n  - name: a\n    cluster:\n      server: https://a\nusers: []\nkind: Config\n",
		"CRLF":       "apiVersion: v1\r\nclusters:\r\n- cluster:\r\n    server: https://a\r\n  name: a\r\n",
		"no newline": "kind: Config\nusers:\n- name: a # mine",
	} {
		t.Run(name, func(t *testing.T) {
			both := merge(t, text, &entry)
			out, err := Cut([]byte(both), entry.Name, entry.Server)
			if err != nil {
				t.Fatalf("%v:\n%s", err, both)
			}
			config, err := parse(out)
			if err != nil || config.Clusters[entry.Name] != nil || config.Contexts[entry.Name] != nil ||
				config.AuthInfos[entry.User] != nil {
				t.Fatalf("%v:\n%s", err, out)
			}
			at := 0
			for line := range strings.Lines(text) {
				line = strings.TrimSuffix(strings.Trim(line, "{\r\n"), "]")
				line = strings.TrimSuffix(line, "]") // a list may have got its first item in there
				i := strings.Index(string(out)[at:], line)
				if i < 0 {
					t.Fatalf("%q is lost, or in another place:\n%s", line, out)
				}
				at += i + len(line)
			}
		})
	}
	whole := merge(t, "", &entry)
	out, err := Cut([]byte(whole), entry.Name, entry.Server)
	const empty = "apiVersion: v1\nclusters: []\ncontexts: []\ncurrent-context: \"\"\nkind: Config\nusers: []\n"
	if err != nil || string(out) != empty {
		t.Errorf("%v:\n%s", err, out)
	}
	if again := merge(t, string(out), &entry); !strings.Contains(again, "\ncurrent-context: plinth\n") {
		t.Errorf("the only context is not the current one:\n%s", again)
	}
	if _, err := Cut([]byte(whole), entry.Name, "https://other"); !errors.Is(err, ErrOther) {
		t.Errorf("of another server: %v", err)
	}
	if out, err := Cut([]byte(users), entry.Name, entry.Server); err != nil || string(out) != users {
		t.Errorf("of a file without it: %v\n%s", err, out)
	}
	const more = "contexts:\n- {name: more, context: {cluster: plinth, user: plinth-admin}}\n"
	shared := strings.Replace(whole, "contexts:\n", more, 1)
	out, err = Cut([]byte(shared), entry.Name, entry.Server)
	if config, _ := parse(out); err != nil || config.Clusters["plinth"] == nil ||
		config.AuthInfos["plinth-admin"] == nil || config.Contexts["plinth"] != nil || config.Contexts["more"] == nil {
		t.Errorf("what another context uses is gone: %v\n%s", err, out)
	}
}

// Our own additions to our own entries stay, too.
func TestMergeKeepsWhatWasAddedToOurs(t *testing.T) {
	out := merge(t, "", &entry)
	out = strings.Replace(out, "    user: plinth-admin\n", "    user: plinth-admin\n    namespace: team-a # mine\n", 1)
	moved := entry
	moved.Server = "https://127.0.0.1:7443"
	if got, want := merge(t, out, &moved), strings.Replace(out, ":6443", ":7443", 1); got != want {
		t.Errorf("got\n%s\nnot\n%s", got, want)
	}
}

func TestMergeRefuses(t *testing.T) {
	for _, text := range []string{
		"clusters: [", "apiVersion: v1\nkind: Pod\n", "a: 1\na: 2\n", "- a\n", "null\n", "clusters: {}\n", "clusters: 3\n",
		"clusters:\n- name: plinth\n- name: plinth\n", "clusters:\n- name: plinth\n  cluster: x\n", "\xff",
		"clusters:\n- &x\n  name: plinth\n  cluster:\n    server: |\n      https://x\n",
	} {
		if out, err := Merge([]byte(text), &entry); err == nil {
			t.Errorf("%q became\n%s", text, out)
		}
	}
}

// FuzzMerge merges into any text: the result parses, has all that was there, in its order, and merging again changes
// nothing.
func FuzzMerge(f *testing.F) {
	f.Add(users)
	f.Add("clusters: null # none\nusers: []\ncontexts:\n- {name: plinth, context: {user: x}}\n")
	f.Add(`{"kind":"Config","clusters":[{"name":"plinth","cluster":{"server":"https://x"}}]}`)
	f.Add("\ufeffclusters:\r\n- name: plinth\r\n  cluster:\r\n    server: 'it''s'\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		used := entry
		used.Use = len(text)%2 == 0
		out, err := Merge([]byte(text), &used)
		if err != nil {
			return
		}
		after, err := object.ParseYAML(out)
		if err != nil || len(after.Duplicates) > 0 {
			t.Fatalf("%v:\n%s", err, out)
		}
		if again, err := Merge(out, &used); err != nil || string(again) != string(out) {
			t.Fatalf("merged twice: %v\n%s\n%s", err, out, again)
		}
		before, err := object.ParseYAML([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range before.Value.Members() {
			switch m.Key {
			case "clusters", "users", "contexts":
				for _, item := range m.Value.Items() {
					if name := item.At("name").Str(); name != used.Name && name != used.User && !has(after.Value.At(m.Key), item) {
						t.Fatalf("an item of %s is lost:\n%s\n%s", m.Key, text, out)
					}
				}
			case "current-context":
			default:
				if !object.Equal(after.Value.At(m.Key), m.Value) {
					t.Fatalf("%s changed:\n%s\n%s", m.Key, text, out)
				}
			}
		}
		// A line that has none of the members that are ours is there to the byte.
		rest := string(out)
		for line := range strings.Lines(text) {
			if line = strings.TrimRight(line, "\r\n"); mayChange(line) {
				continue
			}
			i := strings.Index(rest, line)
			if i < 0 {
				t.Fatalf("%q is lost:\n%s\n%s", line, text, out)
			}
			rest = rest[i+len(line):]
		}
	})
}

func has(items, item object.Value) bool {
	for _, other := range items.Items() {
		if object.Equal(item, other) {
			return true
		}
	}
	return false
}

// mayChange says whether a line can have a value that is replaced, or brackets to insert into.
func mayChange(line string) bool {
	return strings.ContainsAny(line, "[]{}:?*&!|>\"'") && !strings.HasPrefix(strings.TrimSpace(line), "#")
}

// A file keeps its mode, and a link stays a link.
//
// SPEC: RUN-7
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "dotfiles", "config"), filepath.Join(dir, "config")
	if err := os.Symlink(filepath.Join("dotfiles", "config"), link); err != nil {
		t.Fatal(err)
	}
	check := func(path string, mode os.FileMode) {
		t.Helper()
		if err := Write(t.Context(), path, &entry); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
		config, err := load(path)
		if err != nil || config.Clusters["plinth"] == nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	check(link, 0o600) // the target is made
	if err := os.WriteFile(file, []byte(users), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o640); err != nil {
		t.Fatal(err)
	}
	check(link, 0o640)
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link was replaced: %v, %v", info, err)
	}
	if config, err := load(file); err != nil || config.CurrentContext != "prod" || config.Clusters["prod"] == nil {
		t.Errorf("the user's contexts are gone: %v, %v", config, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*", "*")); len(left) != 1 {
		t.Errorf("files are left: %q", left)
	}
	const broken = "clusters: [\n"
	if err := os.WriteFile(file, []byte(broken), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Write(t.Context(), link, &entry); err == nil || !strings.Contains(err.Error(), link) {
		t.Errorf("the error of a file that cannot be parsed: %v", err)
	}
	if text, _ := os.ReadFile(file); string(text) != broken {
		t.Errorf("it became\n%s", text)
	}
}

// A lock of client-go is waited for; one of a process of ours that is gone is taken over.
func TestLock(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file+".lock", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Write(ctx, file, &entry); err == nil || !strings.Contains(err.Error(), file+".lock exists") {
		t.Errorf("with the lock of another program: %v", err)
	}
	if err := os.WriteFile(file+".lock", []byte("plinth\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Write(t.Context(), file, &entry); err != nil {
		t.Errorf("with the lock of a process that is gone: %v", err)
	}
	// While several programs write, neither loses what the other wrote.
	const n = 8
	failed := make(chan error, n)
	for i := range n {
		go func() {
			e := entry
			e.Name, e.User = fmt.Sprint("plinth-", i), fmt.Sprint("admin-", i)
			failed <- Write(t.Context(), file, &e)
		}()
	}
	for range n {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	config, err := load(file)
	if err != nil || len(config.Clusters) != n+1 {
		t.Errorf("%d clusters of %d, %v", len(config.Clusters), n+1, err)
	}
}
