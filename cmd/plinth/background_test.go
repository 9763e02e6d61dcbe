//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// ran runs the program as a process: a server in the background is another one of it.
func ran(t *testing.T, env []string, args ...string) (stdout string, code int, stderr string) {
	t.Helper()
	cmd := process(args...)
	cmd.Env = append(cmd.Env, env...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), cmd.ProcessState.ExitCode(), errs.String()
}

// Servers with names have data, ports and contexts of their own, and a kubeconfig keeps what others wrote.
//
// SPEC: RUN-12, RUN-7
func TestServersInTheBackground(t *testing.T) {
	home := t.TempDir()
	kubeconfig := filepath.Join(home, "config")
	const others = "# mine\napiVersion: v1\nkind: Config\nclusters:\n- name: prod\n  cluster: {server: 'https://prod'}\n" +
		"current-context: prod\n"
	if err := os.WriteFile(kubeconfig, []byte(others), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"XDG_STATE_HOME=" + home, "KUBECONFIG=" + kubeconfig, "HOME=" + home}
	names := []string{"default", "dev"}
	t.Cleanup(func() {
		for _, name := range names {
			ran(t, env, "stop", name, "--kill")
		}
	})
	urls := map[string]string{}
	for round := range 2 {
		for _, name := range names {
			out, code, errs := ran(t, env, "start", name)
			context := map[string]string{"default": "plinth", "dev": "plinth-dev"}[name]
			if code != 0 || !strings.Contains(out, "kubectl --context "+context+" get namespaces") {
				t.Fatalf("start %s: %d\n%s%s", name, code, out, errs)
			}
			url, err := urlOf(kubeconfig, context)
			if err != nil || !strings.Contains(out, url) {
				t.Errorf("%s: %v\n%s", url, err, out)
			}
			if round == 1 && url != urls[name] {
				t.Errorf("%s moved from %s to %s", name, urls[name], url)
			}
			urls[name] = url
			if out, code, _ := ran(t, env, "status", name); code != 0 || !strings.Contains(out, url) ||
				!strings.Contains(out, "ready") {
				t.Errorf("status %s: %d\n%s", name, code, out)
			}
			if _, code, errs := ran(t, env, "start", name); code != 1 || !strings.Contains(errs, "runs already at "+url) {
				t.Errorf("a second start: %d, %s", code, errs)
			}
		}
		if out, _, _ := ran(t, env, "list"); strings.Count(out, "running") != 2 || strings.Count(out, "\n") != 3 {
			t.Errorf("list:\n%s", out)
		}
		if out, code, _ := ran(t, env, "logs", "dev", "--tail", "3"); code != 0 || !strings.Contains(out, "is ready") &&
			strings.Count(out, "\n") != 3 {
			t.Errorf("logs: %d\n%s", code, out)
		}
		for _, name := range names {
			if out, code, errs := ran(t, env, "stop", name); code != 0 {
				t.Errorf("stop %s: %s%s", name, out, errs)
			}
			if _, code, _ := ran(t, env, "status", name); code != exitStopped {
				t.Errorf("status of %s, which is stopped: %d", name, code)
			}
		}
	}
	text, err := os.ReadFile(kubeconfig)
	if err != nil || !strings.HasPrefix(string(text), "# mine\n") ||
		!strings.Contains(string(text), "current-context: prod") ||
		!strings.Contains(string(text), "cluster: {server: 'https://prod'}") {
		t.Errorf("the kubeconfig: %v\n%s", err, text)
	}
	if out, code, _ := ran(t, env, "check", filepath.Join(home, "plinth", "dev", "data")); code != 0 {
		t.Errorf("the data: %d\n%s", code, out)
	}
	if got := completeIn(t, env, "status", ""); got != "default\ndev" {
		t.Errorf("completion: %s", got)
	}
	if out, code, errs := ran(t, env, "stop", "dev", "--delete"); code != 0 ||
		!strings.Contains(out, "context plinth-dev in") {
		t.Errorf("%d\n%s%s", code, out, errs)
	}
	if after, err := os.ReadFile(kubeconfig); err != nil || strings.Contains(string(after), "plinth-dev") ||
		!strings.Contains(string(after), "  name: plinth\n") ||
		!strings.Contains(string(after), "- name: prod\n  cluster: {server: 'https://prod'}\n") {
		t.Errorf("the context of a server that is gone: %v\n%s", err, after)
	}
	for _, c := range []struct{ args, want string }{
		{"status dev", `there is no server "dev"`}, {"stop defalut", "did you mean default?"},
		{"start Bad_Name", "is no name of a server"}, {"start x -- --colour", "unknown flag: --colour"},
		{"start x -- serve", `"serve" is none`},
		{"start x -- --storage=memory --authorization-mode=None", "its log is"},
	} {
		_, code, errs := ran(t, env, strings.Fields(c.args)...)
		if code != 1 || !strings.Contains(errs, c.want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: %d, %s, want %s", c.args, code, errs, c.want)
		}
	}
}

func completeIn(t *testing.T, env []string, words ...string) string {
	t.Helper()
	out, _, _ := ran(t, env, append([]string{"__completeNoDesc"}, words...)...)
	names, _, _ := strings.Cut(out, "\n:")
	return names
}
