// Package controlplane runs the real kube-controller-manager and kube-scheduler against a server, reads their logs, and
// compares the errors there with those that occur with the reference. Both have the identities that they have in a real
// cluster: users of their own, and a service account for each controller, with the permissions of the bootstrap policy.
// KWOK, as the administrator, can simulate the nodes.
package controlplane

import (
	"cmp"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/reference"
)

// Options of a run.
type Options struct {
	Manager     []string // further flags of kube-controller-manager
	Scheduler   []string // further flags of kube-scheduler
	NoScheduler bool
	Kwok        bool   // KWOK is all nodes, with its stages node-fast and pod-fast and with node leases
	URL         string // where the programs connect to, as to a balancer; "": to the server itself
}

// Plane holds the running programs.
type Plane struct {
	logs  []string
	ended []chan struct{} // closed when a program has ended
	stops []func()
}

// Run starts the programs and ends them with the test. The logs are kept when it has failed.
func Run(t testing.TB, server *harness.Server, o Options) *Plane {
	t.Helper()
	p, err := Start(t.TempDir(), server, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Stop()
		for _, log := range p.logs {
			if t.Failed() {
				kept, err := harness.Keep(log, t.Name())
				t.Logf("the log of %s is kept as %s: %v", filepath.Base(log), kept, err)
			}
		}
	})
	return p
}

// Start starts the programs, which write into a folder. The first call builds them, which takes minutes.
func Start(dir string, server *harness.Server, o Options) (*Plane, error) {
	programs := []string{reference.ControllerManager, reference.Scheduler}
	if o.NoScheduler {
		programs = programs[:1]
	}
	if o.Kwok {
		programs = append(programs, reference.KwokProgram)
	}
	folder, err := reference.BuildPrograms(os.Stderr, programs...)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	p := &Plane{}
	if err := p.startAll(dir, folder, server, o); err != nil {
		p.Stop()
		return nil, err
	}
	return p, nil
}

func (p *Plane) startAll(dir, folder string, server *harness.Server, o Options) error {
	key, ca, err := material(dir, server)
	if err != nil {
		return err
	}
	flags := func(name, token string, more ...string) ([]string, error) {
		kubeconfig := filepath.Join(dir, name+".kubeconfig")
		return append([]string{"--kubeconfig=" + kubeconfig}, more...), writeKubeconfig(server, o.URL, kubeconfig, token)
	}
	manager, err := flags("manager", harness.ManagerToken, "--secure-port=0", "--kube-api-qps=500",
		"--kube-api-burst=1000", "--service-account-private-key-file="+key, "--root-ca-file="+ca,
		"--use-service-account-credentials=true")
	if err != nil {
		return err
	}
	if err := p.start(dir, filepath.Join(folder, reference.ControllerManager), append(manager, o.Manager...)); err != nil {
		return err
	}
	if !o.NoScheduler {
		scheduler, err := flags("scheduler", harness.SchedulerToken, "--secure-port=0", "--kube-api-qps=500",
			"--kube-api-burst=1000")
		if err != nil {
			return err
		}
		if err := p.start(dir, filepath.Join(folder, reference.Scheduler), append(scheduler, o.Scheduler...)); err != nil {
			return err
		}
	}
	if !o.Kwok {
		return nil
	}
	nodes, err := flags("nodes", harness.AdminToken, "--config="+filepath.Join(folder, reference.KwokStages),
		"--manage-all-nodes=true", "--node-lease-duration-seconds=40")
	if err != nil {
		return err
	}
	return p.start(dir, filepath.Join(folder, reference.KwokProgram), nodes)
}

// writeKubeconfig writes a kubeconfig for the user of a token, who connects to url; "": to the server.
func writeKubeconfig(server *harness.Server, url, file, token string) error {
	config, err := clientcmd.LoadFromFile(server.Kubeconfig)
	if err != nil {
		return err
	}
	for name := range config.AuthInfos {
		config.AuthInfos[name] = server.User(token)
	}
	for _, cluster := range config.Clusters {
		cluster.Server = cmp.Or(url, cluster.Server)
	}
	return clientcmd.WriteToFile(*config, file)
}

// material writes the keys and certificates that kube-controller-manager needs: the key that signs tokens of service
// accounts, and the certificate authority that is published to Pods.
func material(dir string, server *harness.Server) (key, ca string, err error) {
	key, ca = filepath.Join(dir, "sa.key"), filepath.Join(dir, "ca.crt")
	if err := reference.ServiceAccountKeys(dir); err != nil {
		return "", "", err
	}
	config, err := clientcmd.BuildConfigFromFlags("", server.Kubeconfig)
	if err != nil {
		return "", "", err
	}
	authority := config.CAData
	if len(authority) == 0 {
		// The reference's certificate is signed by an authority that it has made itself; the file has both.
		if authority, err = os.ReadFile(filepath.Join(server.Dir(), "certs", "apiserver.crt")); err != nil {
			return "", "", err
		}
	}
	var authorities []byte
	for block, rest := pem.Decode(authority); block != nil; block, rest = pem.Decode(rest) {
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return "", "", err
		}
		if certificate.IsCA {
			authorities = append(authorities, pem.EncodeToMemory(block)...)
		}
	}
	if len(authorities) == 0 {
		return "", "", errors.New("the server has no certificate of an authority")
	}
	return key, ca, os.WriteFile(ca, authorities, 0o600)
}

func (p *Plane) start(dir, program string, flags []string) error {
	name := filepath.Join(dir, filepath.Base(program)+".log")
	log, err := os.Create(name)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(program, flags...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.logs = append(p.logs, name)
	ended := make(chan struct{})
	go func() {
		cmd.Wait()
		close(ended)
	}()
	p.ended = append(p.ended, ended)
	p.stops = append(p.stops, func() {
		cmd.Process.Kill() // error: it may have ended
		<-ended
	})
	return nil
}

// Stop ends the programs.
func (p *Plane) Stop() {
	for _, stop := range p.stops {
		stop()
	}
	p.stops = nil
}

// Runs says whether all programs are still running.
func (p *Plane) Runs() bool {
	for _, ended := range p.ended {
		select {
		case <-ended:
			return false
		default:
		}
	}
	return true
}

// Logs are the files that the programs write to.
func (p *Plane) Logs() []string { return p.logs }

// header matches the header that klog writes at the beginning of an error's line; its groups are the place in the
// source and the message.
var header = regexp.MustCompile(`^E\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ ([^ \]]+)\] ?(.*)`)

// Error is an error that a program has logged.
type Error struct {
	Program string
	Place   string // in the source code: FILE:LINE
	Message string
}

// errorIn returns the error that a line of a log is about; nil: it is about none. KWOK writes JSON.
func errorIn(line string) *Error {
	if m := header.FindStringSubmatch(line); m != nil {
		return &Error{Place: m[1], Message: strings.TrimSpace(m[2])}
	}
	var entry struct {
		Level  string
		Source struct {
			File string
			Line int
		}
		Msg string
		Err string
	}
	if json.Unmarshal([]byte(line), &entry) != nil || entry.Level != "ERROR" {
		return nil
	}
	return &Error{Place: fmt.Sprintf("%s:%d", filepath.Base(entry.Source.File), entry.Source.Line),
		Message: fmt.Sprintf("%q err=%q", entry.Msg, entry.Err)}
}

// Errors returns the errors that the programs have logged until now.
func (p *Plane) Errors() ([]Error, error) {
	var found []Error
	for _, name := range p.logs {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			if e := errorIn(line); e != nil {
				e.Program = strings.TrimSuffix(filepath.Base(name), ".log")
				found = append(found, *e)
			}
		}
	}
	return found, nil
}
