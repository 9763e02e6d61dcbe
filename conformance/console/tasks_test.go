package console

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/chromedp/chromedp/kb"

	"plinth/conformance/internal/harness"
)

var rewriteTasks = flag.Bool("rewrite-tasks", false, "write the figures of TestTasks into "+tasksPage)

const tasksPage = "../../docs/console-tasks.md"

// task is a question that people ask of a cluster, how it is answered in the console by keys, and by kubectl in the
// shortest commands that are known.
type task struct {
	question  string
	console   func(b *counted) // from the types to the answer
	kubectl   []string         // with the shell around
	meanwhile func()           // what happens before the last command
	answer    string           // what the last command prints of it
}

// counted is a tab whose keys are counted.
type counted struct {
	*tab
	pressed int
	clicked int
}

func (c *counted) click(selector, text string) {
	c.t.Helper()
	c.clicked++
	c.tab.click(selector, text)
}

// press presses a key with Ctrl, which are two keys.
func (c *counted) press(key string) {
	c.t.Helper()
	c.pressed += 2
	c.tab.press(key)
}

func (c *counted) keys(keys string) {
	c.t.Helper()
	c.pressed += utf8.RuneCountInString(keys)
	c.tab.keys(keys)
}

// open opens an object from the types: the key of its type, its name in the filter, the first row.
func (c *counted) open(key, name string) {
	c.t.Helper()
	c.keys("g" + key)
	c.wait(`document.querySelector("[data-state=live]") && document.querySelector(".space .row")`)
	c.keys("/")
	c.wait(`document.activeElement.matches("[data-search]")`)
	c.keys(name)
	c.wait(fmt.Sprintf(`document.querySelector(".space .row")?.textContent.includes(%q)`, name))
	c.keys(kb.Enter)
	c.wait(`document.activeElement === document.body`)
	c.keys(kb.Enter)
	c.wait(fmt.Sprintf(`document.querySelector("h1")?.textContent.includes(%q)`, name))
}

// tasks are those of docs/console-tasks.md.
func tasks(t *testing.T, server *harness.Server) []task {
	change := func(to string) {
		api(t, server, http.MethodPatch, configMaps+"/big?fieldManager=controller", "application/merge-patch+json",
			fmt.Sprintf(`{"data":{"key-007":%q}}`, to))
	}
	return []task{
		{"Who has set one field among 200?", func(b *counted) {
			b.open("c", "big")
			b.wait(`document.querySelector(".line")`)
			b.keys("/")
			b.wait(`document.activeElement.matches("[data-search]")`)
			b.keys("key-137" + kb.Enter)
			b.wait(`document.querySelector(".detail").innerText.includes("needle")`)
		}, []string{`kubectl get cm big -o yaml --show-managed-fields`}, nil, "manager: needle"},
		{"Why does a namespace stay Terminating?", func(b *counted) {
			b.open("n", "stays")
			b.wait(`document.querySelector(".stuck")?.innerText.includes("NamespaceFinalizersRemaining") &&
				document.querySelector(".found")?.innerText.includes("example.com/held")`)
		}, []string{`kubectl get ns stays -o yaml`, `kubectl get cm -n stays -o yaml`}, nil, "example.com/held"},
		{"What does a controller change while one looks?", func(b *counted) {
			b.open("c", "big")
			b.wait(`document.querySelector(".status").innerText.includes("live")`)
			change("changed")
			b.wait(`document.querySelector(".changes")?.innerText.includes("+ .data.key-007: changed")`)
		}, []string{`kubectl get cm big -o yaml > a`, `kubectl get cm big -o yaml | diff a -`},
			func() { change("again") }, "key-007: again"},
		{"Why can an object not be deleted, and who has to act?", func(b *counted) {
			b.open("c", "held")
			b.wait(`document.querySelector(".stuck")?.innerText.includes("Finalizer example.com/held") &&
				document.querySelector(".stuck").innerText.includes("set by operator")`)
		}, []string{`kubectl get cm held -n stays -o yaml --show-managed-fields`}, nil, "manager: operator"},
		{"Resolve a conflict: Helm has set the replicas that kubectl is to set", func(b *counted) {
			b.open("d", "web")
			b.keys("e")
			b.editorReady("replicas: 1")
			b.wait(inEditor + `(".cm-content").ownerDocument.activeElement.matches(".editor")`)
			b.press(kb.Home)
			b.keys(strings.Repeat(kb.ArrowDown, 9) + kb.End + kb.Backspace + "3")
			b.wait(inEditor + `(".cm-content").innerText.includes("replicas: 3")`)
			b.press(kb.Enter)
			b.click(".ways button", "Take over")
			b.click("button.apply", "Apply")
			b.wait(`location.search === "" && document.querySelector(".lines")?.textContent.includes("replicas: 3")`)
		}, []string{`kubectl get deploy web -o yaml > web.yaml`, `sed -i 's/replicas: 1/replicas: 3/' web.yaml`,
			`kubectl apply --server-side --field-manager=ops -f web.yaml --force-conflicts`}, nil, "serverside-applied"},
	}
}

// The tasks are done in the console by keys, and by kubectl; the page of figures has how many keys and lines each
// takes.
//
// SPEC: BEY-15
func TestTasks(t *testing.T) {
	server := start(t)
	prepareTasks(t, server)
	program, err := harness.Kubectl()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(program, dir+"/kubectl"); err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	table.WriteString("| | console: keys | clicks | seconds | `kubectl`: keys | seconds | lines to read |\n|---|---|---|---|---|---|---|\n")
	for _, task := range tasks(t, server) {
		b := &counted{tab: open(t, server)}
		b.signIn()
		b.sees("customresourcedefinitions")
		began := time.Now()
		task.console(b)
		t.Logf("%s %d keys, answered %s after the first one", task.question, b.pressed,
			time.Since(began).Round(time.Millisecond))
		typed, lines := 0, 0
		var printed string
		for i, command := range task.kubectl {
			if i == len(task.kubectl)-1 && task.meanwhile != nil {
				task.meanwhile()
			}
			printed = runShell(t, dir, server, command, strings.Contains(command, "diff"))
			typed += utf8.RuneCountInString(command) + 1
			lines += strings.Count(printed, "\n")
		}
		if !strings.Contains(printed, task.answer) {
			t.Errorf("%s %q does not print %q:\n%s", task.question, task.kubectl, task.answer, printed)
		}
		fmt.Fprintf(&table, "| %s | %d | %d | %.1f | %d | %.1f | %d |\n", task.question, b.pressed, b.clicked,
			0.2*float64(b.pressed)+1.1*float64(b.clicked), typed, 0.2*float64(typed), lines)
	}
	compareTasks(t, table.String())
}

// prepareTasks makes the objects of the tasks.
func prepareTasks(t *testing.T, server *harness.Server) {
	t.Helper()
	writeBig(t, server)
	apply(t, server, deployments+"/web", "helm", deployment)
	for i := range 20 {
		create(t, server, configMaps, configMap(fmt.Sprintf("other-%02d", i)))
	}
	create(t, server, "/api/v1/namespaces", `{"metadata":{"name":"stays"}}`)
	create(t, server, "/api/v1/namespaces/stays/configmaps?fieldManager=operator",
		`{"metadata":{"name":"held","finalizers":["example.com/held"]}}`)
	api(t, server, http.MethodDelete, "/api/v1/namespaces/stays", "application/json", "")
}

// runShell runs a command, and returns what it prints. diff says by its status that it has found something.
func runShell(t *testing.T, dir string, server *harness.Server, command string, differs bool) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), tooLong)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "KUBECONFIG="+server.Kubeconfig)
	out, err := cmd.CombinedOutput()
	if err != nil && !(differs && cmd.ProcessState.ExitCode() == 1) {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return string(out)
}

// compareTasks compares the table with that of the page, or writes it there.
func compareTasks(t *testing.T, table string) {
	t.Helper()
	text, err := os.ReadFile(tasksPage)
	if err != nil {
		t.Fatal(err)
	}
	begin := strings.Index(string(text), "\n| | console: ") + 1
	size := strings.Index(string(text[begin:]), "\n\n") + 1
	if begin == 0 || size == 0 {
		t.Fatal("the page has no table")
	}
	shown := string(text[begin : begin+size])
	switch {
	case *rewriteTasks:
		changed := string(text[:begin]) + table + string(text[begin+size:])
		if err := os.WriteFile(tasksPage, []byte(changed), 0o644); err != nil {
			t.Fatal(err)
		}
	case shown != table:
		t.Errorf("docs/console-tasks.md has other figures; go test ./console -run TestTasks -args -rewrite-tasks writes\n%s", table)
	}
}
