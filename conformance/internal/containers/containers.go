// Package containers serves the API of a kubelet to which API servers forward: logs, exec, attach and port forwarding.
// It uses the kubelet's own library for streams (k8s.io/cri-streaming). Every Pod and every container is this machine:
// exec runs a program here. All other paths answer with the request, as Pods do that are reached by proxy.
package containers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// idle and creation are the time-outs of streams.
const idle, creation = time.Hour, 30 * time.Second

// noPort is the port of a container at which nothing listens.
const noPort = 9

// Node is a kubelet, and a Pod that serves HTTP.
type Node struct {
	Kubelet *httptest.Server // with TLS
	Pod     *httptest.Server
	dir     string // where programs run
}

// New starts a node that listens at all addresses.
func New(dir string) (*Node, error) {
	n := &Node{dir: dir, Kubelet: httptest.NewUnstartedServer(nil),
		Pod: httptest.NewUnstartedServer(http.HandlerFunc(echo))}
	mux := http.NewServeMux()
	mux.HandleFunc("/containerLogs/{namespace}/{pod}/{container}", logs)
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", n.serveExec)
	mux.HandleFunc("/attach/{namespace}/{pod}/{container}", n.serveAttach)
	mux.HandleFunc("/portForward/{namespace}/{pod}", n.servePortForward)
	mux.HandleFunc("/", echo)
	n.Kubelet.Config.Handler = mux
	for _, server := range []*httptest.Server{n.Kubelet, n.Pod} {
		listener, err := net.Listen("tcp", ":0")
		if err != nil {
			return nil, err
		}
		server.Listener.Close()
		server.Listener = listener
	}
	n.Kubelet.StartTLS()
	n.Pod.Start()
	return n, nil
}

// Close ends the node.
func (n *Node) Close() {
	for _, server := range []*httptest.Server{n.Kubelet, n.Pod} {
		server.CloseClientConnections()
		server.Close()
	}
}

// Address returns an address of this machine that a Node or a Pod may have: API servers forward to no loopback address.
func Address() (string, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return "", err
	}
	for _, a := range all {
		if ip, _, err := net.ParseCIDR(a.String()); err == nil && ip.IsGlobalUnicast() && ip.To4() != nil {
			return ip.String(), nil
		}
	}
	return "", errors.New("this machine has no address but loopback ones")
}

// logs answers a log: its query, and lines. A container "broken" has none.
func logs(w http.ResponseWriter, r *http.Request) {
	switch r.PathValue("container") {
	case "broken":
		http.Error(w, "the log cannot be read", http.StatusInternalServerError)
		return
	case "refused":
		http.Error(w, "not this log", http.StatusForbidden)
		return
	case "moved":
		http.Redirect(w, r, "http://169.254.169.254/latest/meta-data", http.StatusFound)
		return
	}
	fmt.Fprintf(w, "%s of %s ?%s\n", r.PathValue("container"), r.PathValue("pod"), r.URL.RawQuery)
	for i := range 3 {
		fmt.Fprintln(w, "line", i)
		w.(http.Flusher).Flush()
	}
}

func (n *Node) serveExec(w http.ResponseWriter, r *http.Request) {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	remotecommand.ServeExec(w, r, n, r.PathValue("pod"), "", r.PathValue("container"), r.URL.Query()["command"], options,
		idle, creation, remotecommand.SupportedStreamingProtocols)
}

func (n *Node) serveAttach(w http.ResponseWriter, r *http.Request) {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	remotecommand.ServeAttach(w, r, n, r.PathValue("pod"), "", r.PathValue("container"), options, idle, creation,
		remotecommand.SupportedStreamingProtocols)
}

func (n *Node) servePortForward(w http.ResponseWriter, r *http.Request) {
	options, err := portforward.NewV4Options(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	portforward.ServePortForward(w, r, n, r.PathValue("pod"), "", options, idle, creation, portforward.SupportedProtocols)
}

// ExecInContainer runs a program.
func (n *Node) ExecInContainer(ctx context.Context, _, _, _ string, command []string, in io.Reader,
	out, errs io.WriteCloser, tty bool, _ <-chan remotecommand.TerminalSize, _ time.Duration) error {
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	c.Dir, c.Stdout, c.Stderr = n.dir, out, errs
	if tty {
		c.Stderr = out
	}
	if in != nil { // Command would wait for the client to close its side
		stdin, err := c.StdinPipe()
		if err != nil {
			return err
		}
		go func() {
			defer stdin.Close()
			_, _ = io.Copy(stdin, in)
		}()
	}
	err := c.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return utilexec.CodeExitError{Err: err, Code: exit.ExitCode()}
	}
	return err
}

// AttachContainer says hello, and repeats what it is sent.
func (n *Node) AttachContainer(_ context.Context, pod, _, container string, in io.Reader, out, _ io.WriteCloser,
	_ bool, _ <-chan remotecommand.TerminalSize) error {
	fmt.Fprintf(out, "attached to %s of %s\n", container, pod)
	if in != nil {
		_, _ = io.Copy(out, in)
	}
	return nil
}

// PortForward connects to the Pod, whatever the port is.
func (n *Node) PortForward(ctx context.Context, pod, _ string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	if port == noPort {
		return fmt.Errorf("nothing listens at port %d of %s", port, pod)
	}
	var dialer net.Dialer
	connection, err := dialer.DialContext(ctx, "tcp", n.Pod.Listener.Addr().String())
	if err != nil {
		return err
	}
	defer connection.Close()
	ended := make(chan struct{}, 2)
	for to, from := range map[io.Writer]io.Reader{stream: connection, connection: stream} {
		go func() {
			_, _ = io.Copy(to, from)
			ended <- struct{}{}
		}()
	}
	<-ended
	return nil
}

// different are headers that differ between clients and servers of different builds.
var different = []string{"User-Agent", "Accept-Encoding", "X-Forwarded-For", "Audit-Id", "Kubectl-Session"}

// echo answers with the request. A path that ends with /redirect, /elsewhere or /page is answered with URLs.
func echo(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasSuffix(r.URL.Path, "/redirect"):
		http.Redirect(w, r, "/a/b?c=d", http.StatusFound)
		return
	case strings.HasSuffix(r.URL.Path, "/elsewhere"):
		http.Redirect(w, r, "http://169.254.169.254/latest/meta-data", http.StatusFound)
		return
	case strings.HasSuffix(r.URL.Path, "/page"):
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<html><a href="/abs">a</a><a href="rel">b</a><img src="http://elsewhere.example/x"></html>`)
		return
	}
	w.Header().Set("Access-Control-Allow-Origin", "*")
	w.Header().Set("X-Pod", "yes")
	fmt.Fprintf(w, "%s %s\n", r.Method, r.RequestURI)
	var names []string
	for name := range r.Header {
		if !slices.Contains(different, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(w, "%s: %s\n", name, strings.Join(r.Header[name], ", "))
	}
	body, _ := io.ReadAll(r.Body) // a body that breaks off is shown as far as it came
	fmt.Fprintf(w, "%s\n", body)
}
