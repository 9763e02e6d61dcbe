package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"plinth/internal/plane"
	"plinth/internal/server"
	"plinth/plinthtest"
)

const testProgram = "plinth test-server"

// testSettings are the settings of `plinth test-server`.
type testSettings struct {
	*settings
	readyJSON bool
	planes    bool
	manifests []string
}

// testDefaults are the default settings of a test server. As in envtest no controllers run.
func testDefaults() *testSettings {
	s := &testSettings{settings: defaults(testProgram)}
	s.Console = false
	s.DataDir, s.Storage, s.SecurePort, s.Controllers, s.logLevel = "", "memory", 0, nil, "warn"
	return s
}

// ofServe are the flags of `plinth serve` that a test server has, too: those that decide what clients see. None of them
// makes the server write to disk.
var ofServe = []string{
	"controllers", "log-level", "console", "context-name", setCurrentContext,
	"external-hostname", "feature-gates", "goaway-chance", "min-request-timeout", "request-timeout",
	"bind-address", "disable-http2-serving", "secure-port",
	"anonymous-auth", "authentication-config", "token-auth-file",
	authorizationConfig, "authorization-mode",
	"runtime-config",
	"admission-control-config-file", "disable-admission-plugins", "enable-admission-plugins",
	"logging-format", "v",
	"event-ttl", "service-cluster-ip-range", "service-node-port-range",
}

// testServerFlags lists the flags of `plinth test-server`: its own, and those of ofServe.
func testServerFlags(s *testSettings) table {
	all := table{ownTestFlags(s)}
	for _, section := range serveFlags(s.settings) {
		section.rows = slices.DeleteFunc(section.rows, func(r row) bool { return !slices.Contains(ofServe, r.name) })
		if len(section.rows) > 0 {
			all = append(all, section)
		}
	}
	return all
}

func ownTestFlags(s *testSettings) section {
	return section{"Test server", []row{
		{"ready-json", boolean(&s.readyJSON), plinthOnly,
			"print one line of JSON on standard output when the server is ready, and nothing else", ""},
		{planesFlag, boolean(&s.planes), plinthOnly,
			"make control planes that are asked for by HTTP, as docs/test-planes.md describes, until standard input ends", ""},
		{"manifests", array(&s.manifests), plinthOnly,
			"a file, or a directory of files, of objects in YAML or JSON that are applied before the server is ready, " +
				"definitions first; may be repeated", ""},
		{"write-kubeconfig", text(&s.WriteKubeconfig), plinthOnly,
			"the kubeconfig to add the administrator's access to, as the context of --context-name; what else is in the file " +
				"stays; by default none is written", ""},
	}}
}

// readyLine is what a test server prints when it is ready. The names are part of its interface
// (docs/testing-other-languages.md).
type readyLine struct {
	Host       string `json:"host"`                 // the URL
	CA         string `json:"ca"`                   // the authority of the server's certificate, as PEM
	Token      string `json:"token"`                // a bearer token of an administrator
	Kubeconfig string `json:"kubeconfig,omitempty"` // the file that was written, if one was requested
	PID        int    `json:"pid"`
	Planes     int    `json:"planes,omitempty"` // with --planes: the version of the interface at host
}

func testServerCommand() *cobra.Command {
	parent := os.Getppid() // first of all: a parent that is gone by now goes unnoticed until the ready line is written
	s := testDefaults()
	all := testServerFlags(s)
	c := &cobra.Command{
		Use:   "test-server",
		Short: "start a server in memory, for tests in any language",
		Long: "Starts a server whose objects are in memory, at a free port. It ends with the process that started it.\n" +
			"docs/testing-other-languages.md has helpers for Python, JavaScript and others.",
		Example: "  plinth test-server --ready-json\n  plinth test-server --manifests deploy/ --write-kubeconfig kubeconfig",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := s.read(all, c.Flags()); err != nil {
				return err
			}
			if s.planes {
				return s.servePlanes(parent, c.Flags(), c.InOrStdin(), c.OutOrStdout())
			}
			if err := testServer(parent, s, c.Flags(), c.OutOrStdout()); err != nil {
				return explainStart(testProgram, s.DataDir, all, c.Flags(), err)
			}
			return nil
		},
	}
	all.declare(c.Flags())
	return first(c, all, "ready-json", "manifests", "write-kubeconfig", "secure-port", "controllers",
		"authorization-mode", "token-auth-file", "enable-admission-plugins", "feature-gates", "log-level")
}

// planesFlag makes a test server one of many planes.
const planesFlag = "planes"

// servePlanes is `plinth test-server --planes`: control planes for the tests of one process, as plinthtest makes them.
// Each has settings of its own, so the flags of a server mean nothing here. It ends with standard input, too: a pipe
// that the process of the tests holds, which ends with it on every system, also if there is another process between.
func (s *testSettings) servePlanes(parent int, flags *pflag.FlagSet, in io.Reader, out io.Writer) error {
	var wrong error
	flags.Visit(func(f *pflag.Flag) {
		if f.Name != planesFlag && f.Name != "ready-json" {
			wrong = fmt.Errorf("--%s is for one server; with --%s each plane has settings of its own", f.Name, planesFlag)
		}
	})
	if wrong != nil {
		return wrong
	}
	began := time.Now()
	endWith(parent)
	go func() {
		_, _ = io.Copy(io.Discard, in) // whatever its end is
		os.Exit(0)
	}()
	service, err := plinthtest.NewService()
	if err != nil {
		return err
	}
	if err := s.announce(out, &readyLine{Host: service.URL(), CA: string(service.Authority()), Token: service.Token(),
		PID: os.Getpid(), Planes: plinthtest.ServiceVersion}, time.Since(began)); err != nil {
		return err
	}
	select {}
}

// endWith ends this process at a signal, and with its parent.
func endWith(parent int) {
	end := make(chan os.Signal, 1)
	signal.Notify(end, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-end
		os.Exit(0)
	}()
	go func() {
		awaitNewParent(parent)
		os.Exit(0)
	}()
}

// testServer is `plinth test-server`: a server in memory that ends when a signal tells it to, or with the process that
// started it, which is parent. It ends without closing anything: nothing that it has outlives the process, and a
// test suite that is over does not wait for requests.
func testServer(parent int, s *testSettings, flags *pflag.FlagSet, out io.Writer) error {
	began := time.Now()
	if !s.Controllers.Run("serviceaccount-controller") && !flags.Changed("enable-admission-plugins") &&
		!flags.Changed("disable-admission-plugins") {
		s.DisableAdmission = []string{"ServiceAccount"} // as envtest: no Pod could be created without the controller
	}
	manifests, err := readManifests(s.manifests)
	if err != nil {
		return err
	}
	endWith(parent)
	s.AdministratorToken = rand.Text()
	running, err := server.Start(context.Background(), s.Config)
	if err != nil {
		return err
	}
	ready := readyLine{Host: running.URL(), Token: s.AdministratorToken, PID: os.Getpid()}
	authority, _ := running.Administrator()
	ready.CA = string(authority)
	if s.WriteKubeconfig != "" {
		if ready.Kubeconfig, err = filepath.Abs(s.WriteKubeconfig); err != nil {
			return err
		}
	}
	if err := ready.client().apply(manifests); err != nil {
		return err
	}
	if err := s.announce(out, &ready, time.Since(began)); err != nil {
		return err
	}
	return running.Wait(context.Background())
}

// announce prints where the server is.
func (s *testSettings) announce(out io.Writer, ready *readyLine, took time.Duration) error {
	if s.readyJSON {
		line, err := json.Marshal(ready)
		if err != nil {
			return err
		}
		_, err = out.Write(append(line, '\n'))
		return err
	}
	how := "--ready-json prints a token for it, --write-kubeconfig FILE writes a kubeconfig"
	if ready.Kubeconfig != "" {
		how = "export KUBECONFIG=" + ready.Kubeconfig
	}
	_, err := fmt.Fprintf(out, "Plinth %s is ready at %s after %d ms, in memory.\n\n  %s\n", plane.Version, ready.Host,
		took.Milliseconds(), how)
	return err
}

// client returns a client of the administrator.
func (r *readyLine) client() *remote {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(r.CA))
	return &remote{url: r.Host, token: r.Token, namespace: "default", client: &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true},
	}}
}

// parentPeriod is how often a test server looks for its parent.
const parentPeriod = 250 * time.Millisecond

// awaitNewParent returns when this process has another parent than the given one, which has ended then, however it
// ended: the system makes another process the parent. This needs nothing of the parent, such as a pipe that it keeps
// open. The signal that Linux sends at the end of a parent (PR_SET_PDEATHSIG) would come too early: at the end of the
// thread that started this process. On Windows a process keeps its parent's ID, and this never returns.
func awaitNewParent(parent int) {
	for os.Getppid() == parent {
		time.Sleep(parentPeriod)
	}
}
