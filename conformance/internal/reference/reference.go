// Package reference builds and runs the reference: the real kube-apiserver with its own etcd, and the other programs of
// the control plane.
//
// All sources come from the Go module proxy. The programs are kept in a folder that is not removed after the test, as
// the first build takes minutes; the environment variable REFERENCE names another folder.
package reference

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Kubernetes and Etcd are the versions that Plinth is compared with. With EtcdRefused it does not work: answers about
// the progress of a watch overtake changes.
const (
	Kubernetes  = "1.37.1"
	Etcd        = "v3.7.3"
	EtcdRefused = "v3.5.7"
	Kwok        = "v0.8.0"
)

// folder returns the folder in which the programs are kept.
func folder() (string, error) {
	if dir := os.Getenv("REFERENCE"); dir != "" {
		return dir, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, ".cache", "reference"), nil
}

// The programs that BuildPrograms builds: those of Kubernetes, etcd, the etcd of version EtcdRefused, and KWOK, beside
// which KwokStages is written.
const (
	EtcdProgram        = "etcd"
	EtcdRefusedProgram = "etcd-" + EtcdRefused

	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"

	KwokProgram = "kwok"
	KwokStages  = "kwok-stages.yaml"
)

// Build builds etcd and kube-apiserver, unless that has been done before, and returns their folder.
func Build(log io.Writer) (string, error) { return BuildPrograms(log, EtcdProgram, APIServer) }

// BuildPrograms builds those of the programs that do not exist yet, and returns their folder. Test packages run at the
// same time; a lock makes them wait for each other.
func BuildPrograms(log io.Writer, programs ...string) (string, error) {
	dir, err := folder()
	if err != nil {
		return "", err
	}
	if !slices.ContainsFunc(programs, func(program string) bool { return missing(dir, program) }) {
		return dir, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	lock, err := os.Create(filepath.Join(dir, ".lock"))
	if err != nil {
		return "", err
	}
	defer lock.Close() // which releases the lock, too
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	for _, program := range programs {
		switch {
		case !missing(dir, program):
		case program == EtcdProgram:
			err = buildEtcd(dir, program, Etcd, log)
		case program == EtcdRefusedProgram:
			err = buildEtcd(dir, program, EtcdRefused, log)
		case program == KwokProgram:
			err = buildKwok(dir, log)
		default:
			err = buildKubernetes(dir, log, program)
		}
		if err != nil {
			return "", fmt.Errorf("building %s: %w", program, err)
		}
	}
	return dir, nil
}

func missing(dir, program string) bool {
	_, err := os.Stat(filepath.Join(dir, program))
	return err != nil
}

// in runs the go command in the folder dir.
func in(dir string, log io.Writer, args ...string) error {
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	return cmd.Run()
}

func buildEtcd(dir, program, version string, log io.Writer) error {
	src := filepath.Join(dir, "src", program)
	if err := os.MkdirAll(src, 0o755); err != nil {
		return err
	}
	files := map[string]string{
		"go.mod":  "module reference-etcd\n\ngo 1.26.0\n",
		"main.go": "package main\n\nimport (\n\t\"os\"\n\n\t\"go.etcd.io/etcd/server/v3/etcdmain\"\n)\n\nfunc main() { etcdmain.Main(os.Args) }\n",
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(src, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	for _, step := range [][]string{
		{"get", "go.etcd.io/etcd/server/v3@" + version},
		{"mod", "tidy"},
		{"build", "-ldflags", "-s -w", "-o", filepath.Join(dir, program), "."},
	} {
		if err := in(src, log, step...); err != nil {
			return err
		}
	}
	return nil
}

// stages are those that kwokctl uses by default, and node leases instead of heartbeats.
var stages = []string{"node/fast/node-initialize.yaml", "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
	"pod/fast/pod-ready.yaml", "pod/fast/pod-complete.yaml", "pod/fast/pod-delete.yaml"}

// buildKwok builds KWOK and writes its stages for nodes and Pods, which are files of its module.
func buildKwok(dir string, log io.Writer) error {
	src := filepath.Join(dir, "src", KwokProgram)
	if err := os.MkdirAll(src, 0o755); err != nil {
		return err
	}
	text := []byte("module reference-kwok\n\ngo 1.26.0\n")
	if err := os.WriteFile(filepath.Join(src, "go.mod"), text, 0o644); err != nil {
		return err
	}
	const module = "sigs.k8s.io/kwok"
	if err := in(src, log, "get", module+"/cmd/kwok@"+Kwok); err != nil {
		return err
	}
	list := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module)
	list.Dir = src
	out, err := list.Output()
	if err != nil {
		return err
	}
	var all strings.Builder
	for _, name := range stages {
		text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), "kustomize", "stage", name))
		if err != nil {
			return err
		}
		all.WriteString("---\n" + string(text))
	}
	if err := os.WriteFile(filepath.Join(dir, KwokStages), []byte(all.String()), 0o644); err != nil {
		return err
	}
	return in(src, log, "build", "-ldflags", "-s -w", "-o", filepath.Join(dir, KwokProgram), module+"/cmd/kwok")
}

// The published k8s.io/kubernetes names its staging modules v0.0.0 and replaces them by folders that the module does
// not contain; on the proxy they have the versions v0.MINOR.PATCH.
var (
	requirement = regexp.MustCompile(`^\t[^ ]+ v[^ ]+( // indirect)?$`)
	unpublished = regexp.MustCompile(`^(\tk8s\.io/[^ ]+) v0\.0\.0( |$)`)
	staging     = regexp.MustCompile(`^\t(k8s\.io/[^ ]+) => \./staging`)
)

func buildKubernetes(dir string, log io.Writer, program string) error {
	out, err := exec.Command("go", "mod", "download", "-json", "k8s.io/kubernetes@v"+Kubernetes).Output()
	if err != nil {
		return err
	}
	var module struct{ GoMod string }
	if err := json.Unmarshal(out, &module); err != nil {
		return err
	}
	published, err := os.Open(module.GoMod)
	if err != nil {
		return err
	}
	defer published.Close()
	v := "v0." + strings.TrimPrefix(Kubernetes, "1.")
	var requires, replaces strings.Builder
	lines := bufio.NewScanner(published)
	for lines.Scan() {
		line := lines.Text()
		if requirement.MatchString(line) {
			requires.WriteString(unpublished.ReplaceAllString(line, "${1} "+v+"${2}") + "\n")
		}
		if m := staging.FindStringSubmatch(line); m != nil {
			fmt.Fprintf(&replaces, "\t%s => %s %s\n", m[1], m[1], v)
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	src := filepath.Join(dir, "src", "kube")
	if err := os.MkdirAll(src, 0o755); err != nil {
		return err
	}
	files := map[string]string{
		"go.mod": fmt.Sprintf(
			"module reference-kube\n\ngo 1.26.0\n\nrequire k8s.io/kubernetes v%s\n\nrequire (\n%s)\n\nreplace (\n%s)\n",
			Kubernetes, requires.String(), replaces.String()),
		"tools.go": "//go:build tools\n\npackage tools\n",
	}
	for _, name := range []string{APIServer, ControllerManager, Scheduler} {
		files["tools.go"] += fmt.Sprintf("\nimport _ \"k8s.io/kubernetes/cmd/%s\"\n", name)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(src, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	if err := in(src, log, "mod", "tidy"); err != nil {
		return err
	}
	const version = "k8s.io/component-base/version"
	flags := fmt.Sprintf("-s -w -X %s.gitVersion=v%s -X %s.gitMajor=1 -X %s.gitMinor=%s",
		version, Kubernetes, version, version, strings.Split(Kubernetes, ".")[1])
	return in(src, log, "build", "-ldflags", flags, "-o", filepath.Join(dir, program), "k8s.io/kubernetes/cmd/"+program)
}

// Options of a run.
type Options struct {
	Dir       string   // data, certificates and logs
	TokenFile string   // static tokens, as kube-apiserver reads them
	Fsync     bool     // if false, etcd is faster, and a power cut may lose writes
	Flags     []string // further flags of kube-apiserver
	Etcd      string   // the URL of an etcd that runs already; "": one is started
	Port      int      // where it listens; 0: at a free port
	// Hostname is the name that it takes the machine to have, which needs Linux and root. Its identity is a hash of that,
	// so two on one etcd need two names. "": it is that of the machine.
	Hostname string
}

// Process is a running reference. Commands are [kube-apiserver, etcd], or [kube-apiserver] on an etcd that ran already.
type Process struct {
	Port     int
	Etcd     string // the address of its etcd, for clients
	Commands []*exec.Cmd
}

// Start runs etcd and kube-apiserver; the caller waits for /readyz and kills the commands.
func Start(ctx context.Context, o Options) (*Process, error) {
	dir, err := Build(os.Stderr)
	if err != nil {
		return nil, err
	}
	port := o.Port
	if port == 0 {
		ports, err := freePorts(1)
		if err != nil {
			return nil, err
		}
		port = ports[0]
	}
	if err := ServiceAccountKeys(o.Dir); err != nil {
		return nil, err
	}
	client, commands := o.Etcd, []*exec.Cmd{nil}
	if client == "" {
		etcd, err := StartEtcd(ctx, EtcdOptions{Dir: o.Dir, Fsync: o.Fsync})
		if err != nil {
			return nil, err
		}
		client, commands = etcd.URL, append(commands, etcd.Command)
	}
	flags := append([]string{"--etcd-servers=" + client, "--cert-dir=" + filepath.Join(o.Dir, "certs"),
		fmt.Sprintf("--secure-port=%d", port), "--bind-address=127.0.0.1",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-cluster-ip-range=10.0.0.0/16",
		"--token-auth-file=" + o.TokenFile, "--allow-privileged=true",
		"--disable-admission-plugins=ServiceAccount"}, o.Flags...)
	if !slices.ContainsFunc(o.Flags, func(f string) bool { return strings.HasPrefix(f, "--authorization-") }) {
		flags = append(flags, "--authorization-mode=RBAC")
	}
	if !slices.ContainsFunc(o.Flags, func(f string) bool { return strings.HasPrefix(f, "--service-account-signing-") }) {
		flags = append(flags, "--service-account-key-file=sa.pub", "--service-account-signing-key-file=sa.key")
	}
	program := filepath.Join(dir, APIServer)
	if o.Hostname != "" { // the process stays the same one
		flags = append([]string{"--uts", "sh", "-c", `hostname "$0" && exec "$@"`, o.Hostname, program}, flags...)
		if program, err = exec.LookPath("unshare"); err != nil {
			return nil, err
		}
	}
	apiserver, err := spawn(ctx, o.Dir, APIServer, program, flags...)
	if err != nil {
		for _, etcd := range commands[1:] {
			etcd.Process.Kill()
		}
		return nil, err
	}
	commands[0] = apiserver
	return &Process{Port: port, Etcd: client, Commands: commands}, nil
}

// EtcdOptions are those of one etcd.
type EtcdOptions struct {
	Dir   string   // data and log
	Fsync bool     // if false, it is faster, and a power cut may lose writes
	URL   string   // where it listens; "": at a free port
	Flags []string // further flags
	// Refused runs the version EtcdRefused.
	Refused bool
}

// EtcdProcess is a running etcd.
type EtcdProcess struct {
	URL     string // for clients
	Command *exec.Cmd
}

// StartEtcd runs an etcd of one member. It may not answer yet when StartEtcd returns.
func StartEtcd(ctx context.Context, o EtcdOptions) (*EtcdProcess, error) {
	program := EtcdProgram
	if o.Refused {
		program = EtcdRefusedProgram
	}
	dir, err := BuildPrograms(os.Stderr, program)
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	client, peer := o.URL, fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	if client == "" {
		client = fmt.Sprintf("http://127.0.0.1:%d", ports[0])
	}
	flags := append([]string{"--data-dir", filepath.Join(o.Dir, "etcd"), "--log-level", "error",
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default=" + peer},
		o.Flags...)
	if !o.Fsync {
		flags = append(flags, "--unsafe-no-fsync")
	}
	etcd, err := spawn(ctx, o.Dir, program, filepath.Join(dir, program), flags...)
	if err != nil {
		return nil, err
	}
	return &EtcdProcess{URL: client, Command: etcd}, nil
}

// spawn starts a program, whose log is NAME.log.
func spawn(ctx context.Context, dir, name, program string, flags ...string) (*exec.Cmd, error) {
	log, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, program, flags...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // so that a killed test leaves no processes behind
	return cmd, cmd.Start()
}

// freePorts finds ports that are free at this moment.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// StopGrace is how long the processes have to end after SIGTERM, beside other tests on the machine.
const StopGrace = 30 * time.Second
