// Package harness starts the servers of the conformance tests: Plinth, built once per test run from the parent module,
// or the reference.
//
// A Server has a URL, a kubeconfig, tokens that are the same on both, and processes that can be killed and started
// again on the same data. Environment:
//
//	CONFORMANCE_REFERENCE=1       allows building and starting the reference, for the tests that compare with it live
//	                              (kube-controller-manager and kube-scheduler are built without it, too)
//	CONFORMANCE_TARGET=reference  the tests of Plinth run against the reference instead, to prove the tests
//	CONFORMANCE_TARGET=plane      the tests of Plinth run in a plane of it, at /clusters/tested
//	CONFORMANCE_PLINTH=PROGRAM    a plinth to use instead of building one
//	CONFORMANCE_STORE=etcd        Plinth stores its objects in an etcd of its own, not in its embedded store
package harness

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"plinth/conformance/internal/reference"
)

// AdminToken belongs to a user with all permissions, UserToken to one with none; ManagerToken and SchedulerToken belong
// to kube-controller-manager and kube-scheduler, which have the permissions of the bootstrap policy. Nodes have tokens,
// too: see NodeToken.
const (
	AdminToken     = "admintoken"
	UserToken      = "usertoken"
	ManagerToken   = "managertoken"
	SchedulerToken = "schedulertoken"

	tokens = AdminToken + `,admin,admin,"system:masters"` + "\n" + UserToken + ",somebody,somebody\n" +
		ManagerToken + ",system:kube-controller-manager,manager\n" + SchedulerToken + ",system:kube-scheduler,scheduler\n"
)

// User returns the credentials of the user with a token. In a plane, whose system users have no tokens of the process,
// they are those of an administrator who impersonates the user.
func (s *Server) User(token string) *clientcmdapi.AuthInfo {
	if s.options.Plane == "" {
		return &clientcmdapi.AuthInfo{Token: token}
	}
	impersonating := &clientcmdapi.AuthInfo{Token: AdminToken}
	switch token {
	case ManagerToken:
		impersonating.Impersonate = "system:kube-controller-manager"
	case SchedulerToken:
		impersonating.Impersonate = "system:kube-scheduler"
	default:
		for _, name := range Nodes {
			if token == NodeToken(name) {
				impersonating.Impersonate, impersonating.ImpersonateGroups = "system:node:"+name, []string{"system:nodes"}
				return impersonating
			}
		}
		impersonating.Token = token
	}
	return impersonating
}

// Nodes are the names of the nodes that have tokens.
var Nodes = []string{"node-0", "node-1", "node-2"}

// NodeToken belongs to a node: system:node:NAME in the group system:nodes.
func NodeToken(name string) string { return name + "-token" }

// tokenFile returns the static token file, in kube-apiserver's format.
func tokenFile() []byte {
	text := tokens
	for _, name := range Nodes {
		text += fmt.Sprintf("%s,system:node:%s,%[2]s,system:nodes\n", NodeToken(name), name)
	}
	return []byte(text)
}

// Kind says which server it is.
type Kind string

// The two servers.
const (
	Plinth    Kind = "plinth"
	Reference Kind = "reference"
)

// WantReference says whether tests that need the reference beside Plinth are to run.
func WantReference() bool { return os.Getenv("CONFORMANCE_REFERENCE") != "" }

// Target is the kind of server that is tested.
func Target() Kind {
	if os.Getenv("CONFORMANCE_TARGET") == string(Reference) {
		return Reference
	}
	return Plinth
}

// Options of a server.
type Options struct {
	Kind    Kind
	Program string   // the plinth to run; "" for Program's
	Dir     string   // for data and logs, which are kept when the server ends
	Flags   []string // further flags of the server
	Fsync   bool     // whether etcd syncs; Plinth's embedded store always does
	Etcd    string   // the URL of an etcd that runs already, and is shared; "": the server has its own store
	// Hostname is that of the reference (reference.Options).
	Hostname string
	Plane    string // of Plinth: URL and kubeconfig are those of this plane, which is made; "": the first one
	// Environment has further variables for Plinth. PLINTH_CLOCK_OFFSET names a file with the offset of its clock.
	Environment []string
}

// Server is a running server.
type Server struct {
	Kind       Kind
	URL        string
	Kubeconfig string // a file; cluster admin, by client certificate on Plinth and by token on the reference
	Ready      time.Duration
	Etcd       string // the address of the server's etcd, for clients; "": it has none

	options   Options
	written   string // the kubeconfig that the server writes
	port      int
	processes []*process
}

// process is a started command and a goroutine that waits for it.
type process struct {
	*os.Process
	ended chan struct{}
	how   error // when it has ended
}

// follow starts to wait for commands that have been started.
func follow(commands ...*exec.Cmd) []*process {
	var processes []*process
	for _, cmd := range commands {
		p := &process{Process: cmd.Process, ended: make(chan struct{})}
		go func() {
			p.how = cmd.Wait()
			close(p.ended)
		}()
		processes = append(processes, p)
	}
	return processes
}

// readyTimeout is generous: the reference takes 3 s alone on the machine, and many times that beside other tests.
const readyTimeout = 2 * time.Minute

// Start runs a server and waits until it is ready.
func Start(o Options) (*Server, error) {
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, err
	}
	o.Dir = dir
	s := &Server{Kind: o.Kind, options: o, written: filepath.Join(dir, "admin.kubeconfig")}
	if s.Kubeconfig = s.written; o.Plane != "" {
		s.Kubeconfig = filepath.Join(dir, o.Plane+".kubeconfig")
	}
	if err := os.WriteFile(filepath.Join(dir, "tokens.csv"), tokenFile(), 0o600); err != nil {
		return nil, err
	}
	return s, s.start()
}

func (s *Server) start() error {
	var err error
	if s.Kind == Plinth && s.options.Program == "" {
		// The build may take longer than readyTimeout.
		if _, err = Program(); err != nil {
			return err
		}
	}
	began := time.Now()
	if s.Kind == Reference {
		err = s.startReference()
	} else {
		err = s.startPlinth()
	}
	if err != nil {
		return err
	}
	if err := s.waitReady(began.Add(readyTimeout)); err != nil {
		s.Kill()
		return err
	}
	s.Ready = time.Since(began)
	if s.options.Plane != "" {
		return s.enterPlane()
	}
	return nil
}

// enterPlane makes the plane of the options, if it is not there, and gives the server its address and the kubeconfig
// that plinth plane prints for it.
func (s *Server) enterPlane() error {
	program, err := s.options.Program, error(nil)
	if program == "" {
		program, err = Program()
	}
	if err != nil {
		return err
	}
	name := s.options.Plane
	run := func(words ...string) ([]byte, error) {
		words = append([]string{"plane"}, append(words, "--kubeconfig", s.written)...)
		return exec.Command(program, words...).CombinedOutput()
	}
	text, err := run("kubeconfig", name)
	if err != nil {
		if text, err := run("create", name); err != nil {
			return fmt.Errorf("plinth plane create: %w\n%s", err, text)
		}
		if text, err = run("kubeconfig", name); err != nil {
			return fmt.Errorf("plinth plane kubeconfig: %w\n%s", err, text)
		}
	}
	s.URL += "/clusters/" + name
	return os.WriteFile(s.Kubeconfig, text, 0o600)
}

func (s *Server) startReference() error {
	p, err := reference.Start(context.Background(), reference.Options{
		Dir: s.options.Dir, TokenFile: filepath.Join(s.options.Dir, "tokens.csv"), Fsync: s.options.Fsync,
		Flags: s.options.Flags, Etcd: s.options.Etcd, Port: s.port, Hostname: s.options.Hostname})
	if err != nil {
		return err
	}
	s.processes = follow(p.Commands...)
	s.port, s.URL, s.Etcd = p.Port, fmt.Sprintf("https://127.0.0.1:%d", p.Port), p.Etcd
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: s.URL, InsecureSkipTLSVerify: true}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: AdminToken}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	return clientcmd.WriteToFile(*config, s.Kubeconfig)
}

func (s *Server) startPlinth() error {
	program, err := s.options.Program, error(nil)
	if program == "" {
		program, err = Program()
	}
	if err != nil {
		return err
	}
	os.Remove(s.written) // a stale one would name the last run's port
	log, err := os.OpenFile(s.LogFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	// A server that is started again has the same address, for the sake of its clients.
	args := []string{"serve", "--data-dir", filepath.Join(s.options.Dir, "data"), "--bind-address", "127.0.0.1",
		"--secure-port", fmt.Sprint(s.port), "--write-kubeconfig", s.written,
		"--token-auth-file", filepath.Join(s.options.Dir, "tokens.csv")}
	if !slices.ContainsFunc(s.options.Flags, func(f string) bool { return strings.HasPrefix(f, "--controllers") }) {
		// The reference runs without kube-controller-manager: its new namespaces are empty, and it has no
		// ClusterTrustBundle.
		args = append(args, "--controllers=*,-serviceaccount-controller,-root-ca-certificate-publisher-controller,"+
			"-kube-apiserver-serving-clustertrustbundle-publisher-controller")
	}
	if !slices.ContainsFunc(s.options.Flags, func(f string) bool { return strings.Contains(f, "admission") }) {
		// So is the reference started: there are no ServiceAccounts for its Pods.
		args = append(args, "--disable-admission-plugins=ServiceAccount")
	}
	var commands []*exec.Cmd
	if s.Etcd = s.options.Etcd; s.Etcd == "" && s.wantsEtcd() {
		etcd, err := reference.StartEtcd(context.Background(), reference.EtcdOptions{Dir: s.options.Dir,
			Fsync: s.options.Fsync})
		if err != nil {
			return err
		}
		s.Etcd, commands = etcd.URL, append(commands, etcd.Command)
	}
	if s.Etcd != "" {
		args = append(args, "--etcd-servers="+s.Etcd)
	}
	if slices.ContainsFunc(slices.Concat(args, s.options.Flags), func(f string) bool {
		return strings.HasPrefix(f, "--etcd-servers=")
	}) {
		keys, err := sharedKeys()
		if err != nil {
			return err
		}
		args = append(args, keys...)
	}
	if s.options.Plane != "" {
		args = append(args, "--planes", "--planes-egress=127.0.0.0/8") // the webhooks of tests are there
	}
	cmd := exec.Command(program, append(args, s.options.Flags...)...)
	cmd.Stdout, cmd.Stderr, cmd.Env = log, log, append(os.Environ(), s.options.Environment...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.processes = follow(append([]*exec.Cmd{cmd}, commands...)...)
	return nil
}

// wantsEtcd says whether a Plinth is to have an etcd of its own.
func (s *Server) wantsEtcd() bool {
	return os.Getenv("CONFORMANCE_STORE") == "etcd" && !slices.ContainsFunc(s.options.Flags, func(f string) bool {
		return strings.HasPrefix(f, "--storage") || strings.HasPrefix(f, "--etcd-servers")
	})
}

// Dir is where the server keeps its data and logs.
func (s *Server) Dir() string { return s.options.Dir }

// LogFile is where the server writes its log.
func (s *Server) LogFile() string {
	if s.Kind == Reference {
		return filepath.Join(s.options.Dir, "kube-apiserver.log")
	}
	return filepath.Join(s.options.Dir, "plinth.log")
}

func (s *Server) waitReady(until time.Time) error {
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
		Timeout: 5 * time.Second}
	defer client.CloseIdleConnections()
	first := s.processes[0]
	last := errors.New("it was never asked")
	for time.Now().Before(until) {
		select {
		case <-first.ended:
			return fmt.Errorf("%s ended before it was ready (%v):\n%s", s.Kind, first.how, s.LogTail(20))
		case <-time.After(2 * time.Millisecond):
		}
		if s.Kind == Plinth {
			if last = s.readKubeconfig(); last != nil {
				continue
			}
		}
		if last = probe(client, s.URL+"/readyz"); last == nil {
			return nil
		}
	}
	return fmt.Errorf("%s is not ready: %w\n%s", s.Kind, last, s.LogTail(20))
}

// readKubeconfig reads the address that Plinth has chosen.
func (s *Server) readKubeconfig() error {
	config, err := clientcmd.BuildConfigFromFlags("", s.written)
	if err != nil {
		return err
	}
	s.URL = strings.TrimSuffix(config.Host, "/")
	_, port, err := net.SplitHostPort(strings.TrimPrefix(s.URL, "https://"))
	if err != nil {
		return err
	}
	_, err = fmt.Sscan(port, &s.port)
	return err
}

func probe(client *http.Client, url string) error {
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+AdminToken)
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, response.Status)
	}
	return nil
}

// Kill ends the server as kill -9 does: nothing is flushed, and clients get no response.
func (s *Server) Kill() {
	for _, p := range s.processes {
		p.Kill() // error: it may have ended already
	}
	for _, p := range s.processes {
		<-p.ended
	}
	s.processes = nil
}

// Stop ends the server with SIGTERM and returns how it ended: nil for exit status 0.
func (s *Server) Stop() error {
	if len(s.processes) == 0 {
		return nil
	}
	first := s.processes[0]
	if err := first.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	var how error
	select {
	case <-first.ended:
		how = first.how
	case <-time.After(reference.StopGrace):
		how = fmt.Errorf("%s did not end within %s", s.Kind, reference.StopGrace)
	}
	s.Kill()
	return how
}

// Restart kills the server, if it still runs, and starts it again on the same data and on the same port.
func (s *Server) Restart() error {
	s.Kill()
	return s.start()
}

// Pids are the server's processes.
func (s *Server) Pids() []int {
	var pids []int
	for _, p := range s.processes {
		pids = append(pids, p.Pid)
	}
	return pids
}

// WithoutEtcd makes Measured leave out etcd. Set before servers are measured.
var WithoutEtcd bool

// Measured are the processes whose cost is that of the server.
func (s *Server) Measured() []int {
	if WithoutEtcd {
		return s.Pids()[:1]
	}
	return s.Pids()
}

// Config is the client-go configuration of the cluster admin, without client-side throttling: it would hide a slow
// server and slow down a quick one.
func (s *Server) Config() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	return config, nil
}

// Client speaks HTTP/2 to the server and adds no credentials to requests.
func (s *Server) Client() *http.Client { return s.client(true) }

// OldClient is Client over HTTP/1.1.
func (s *Server) OldClient() *http.Client { return s.client(false) }

func (s *Server) client(http2 bool) *http.Client {
	transport := &http.Transport{
		TLSClientConfig:    &tls.Config{InsecureSkipVerify: true},
		Protocols:          new(http.Protocols),
		DisableCompression: true,
		ReadBufferSize:     64 << 10,
		// Large frames: a client that shares the machine with the server is to cost little.
		HTTP2: &http.HTTP2Config{MaxReadFrameSize: 256 << 10},
	}
	transport.Protocols.SetHTTP2(http2)
	transport.Protocols.SetHTTP1(!http2)
	return &http.Client{Transport: transport}
}

// LogTail returns the last lines of the server's log.
func (s *Server) LogTail(lines int) string {
	text, err := os.ReadFile(s.LogFile())
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// Run starts a server for a test and ends it with the test. The log is kept and shown when the test has failed.
func Run(t testing.TB, o Options) *Server {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	if o.Kind == Plinth && o.Plane == "" && InPlanes() {
		o.Plane = "tested"
	}
	s, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			if kept, err := Keep(s.LogFile(), t.Name()); err == nil {
				t.Logf("the log of %s is kept as %s; its end:\n%s", s.Kind, kept, s.LogTail(10))
			}
		}
		s.Kill()
	})
	return s
}

// ConfigOf returns the configuration of a client of the user with a token.
func (s *Server) ConfigOf(token string) (*rest.Config, error) {
	config, err := s.Config()
	if err != nil {
		return nil, err
	}
	own, user := rest.AnonymousClientConfig(config), s.User(token)
	own.BearerToken = user.Token
	own.Impersonate = rest.ImpersonationConfig{UserName: user.Impersonate, Groups: user.ImpersonateGroups}
	return own, nil
}

// InPlanes says whether the tests of Plinth run in planes of it.
func InPlanes() bool { return os.Getenv("CONFORMANCE_TARGET") == "plane" }

// RunTarget starts a server of the kind Target. The flags are Plinth's: the reference is started without them.
func RunTarget(t testing.TB, flags ...string) *Server {
	t.Helper()
	o := Options{Kind: Target()}
	if o.Kind == Plinth {
		o.Flags = flags
	}
	return Run(t, o)
}

// Keep copies a log out of the folder of a test, which is removed, and returns the name of the copy.
func Keep(file, name string) (string, error) {
	from, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer from.Close()
	to, err := os.CreateTemp("", strings.ReplaceAll(name, "/", "_")+"-*.log")
	if err != nil {
		return "", err
	}
	defer to.Close()
	_, err = io.Copy(to, from)
	return to.Name(), err
}

// built holds what this process has built.
var built struct {
	sync.Mutex
	dir      string
	programs map[string]string
}

// Release makes Program build plinth as for a release. By default, it is built with assertions, and with a clock that
// can be set (cmd/plinth/clock_offset.go).
var Release bool

// Program returns a plinth built from the parent module.
func Program() (string, error) {
	tags := "invariants clockoffset"
	if Release {
		tags = releaseTags
	}
	return build("plinth", "..", "-tags", tags, "./cmd/plinth")
}

// releaseTags are the build tags of a release, as in the Makefile.
const releaseTags = "grpcnotrace"

// LastRelease returns the revision of the last release: the last tag, or without one a commit of ten days ago, or of
// five.
func LastRelease(ctx context.Context) (revision string, err error) {
	before := func(time string) []string {
		return []string{"rev-list", "-1", "--abbrev-commit", "--before=" + time, "HEAD"}
	}
	for _, words := range [][]string{{"describe", "--tags", "--abbrev=0"}, before("10 days ago"), before("5 days ago")} {
		out, err := exec.CommandContext(ctx, "git", words...).Output()
		if revision := strings.TrimSpace(string(out)); err == nil && revision != "" {
			return revision, nil
		}
	}
	return "", errors.New("there is neither a tag nor a commit of five days ago")
}

// ProgramAt returns a release of plinth built from a revision of the repository, in a work tree that is removed again.
func ProgramAt(ctx context.Context, dir, revision string) (string, error) {
	tree, program := filepath.Join(dir, "tree-"+revision), filepath.Join(dir, "plinth-"+revision)
	run := func(in string, words ...string) error {
		cmd := exec.CommandContext(ctx, words[0], words[1:]...)
		cmd.Dir, cmd.Env = in, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(words, " "), err, out)
		}
		return nil
	}
	if err := run("", "git", "worktree", "add", "--detach", tree, revision); err != nil {
		return "", err
	}
	built := run(tree, "go", "build", "-tags", releaseTags, "-ldflags", "-s -w", "-o", program, "./cmd/plinth")
	return program, errors.Join(built, run("", "git", "worktree", "remove", "--force", tree))
}

// Kubectl returns the linked kubectl, built from the module tools.
func Kubectl() (string, error) {
	const version = "k8s.io/component-base/version"
	return build("kubectl", "../tools", "-ldflags",
		fmt.Sprintf("-s -w -X %s.gitVersion=v%s -X %s.gitMajor=1 -X %s.gitMinor=37", version, reference.Kubernetes, version,
			version), "./kubectl")
}

// Helm returns Helm 4, built from the module tools/helm, which has no other dependency.
func Helm() (string, error) {
	return build("helm", "../tools/helm", "-ldflags", "-s -w", "helm.sh/helm/v4/cmd/helm")
}

// build runs go build in another module of this repository, once per process. CONFORMANCE_PLINTH, CONFORMANCE_KUBECTL
// and CONFORMANCE_HELM name programs that are there already.
func build(name, module string, args ...string) (string, error) {
	if program := os.Getenv("CONFORMANCE_" + strings.ToUpper(name)); program != "" {
		return program, nil
	}
	built.Lock()
	defer built.Unlock()
	if program, ok := built.programs[name]; ok {
		return program, nil
	}
	if built.dir == "" {
		dir, err := os.MkdirTemp("", "conformance-")
		if err != nil {
			return "", err
		}
		built.dir, built.programs = dir, map[string]string{}
	}
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("finding the module conformance: %w", err)
	}
	program := filepath.Join(built.dir, name)
	cmd := exec.Command("go", append([]string{"build", "-o", program}, args...)...)
	cmd.Dir = filepath.Join(strings.TrimSpace(string(root)), module)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as the Makefile builds it
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", name, err, out)
	}
	built.programs[name] = program
	return program, nil
}

// Cleanup removes the programs that were built.
func Cleanup() {
	built.Lock()
	defer built.Unlock()
	if built.dir != "" {
		os.RemoveAll(built.dir)
		built.dir, built.programs = "", nil
	}
}

// Main is a TestMain: it runs the tests and cleans up after them.
func Main(m *testing.M) {
	code := m.Run()
	Cleanup()
	os.Exit(code)
}
