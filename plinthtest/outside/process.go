package outside

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"time"
)

// interfaceVersion is the version of the interface of `plinth test-server --planes` that this package speaks.
const interfaceVersion = 1

// service is a process with planes, and a client of it.
type service struct {
	host, token string
	web         *http.Transport // for what it is asked for, and for all planes: they are at one port
	errors      *tail
	ended       chan struct{} // closed at the end of the process
}

// theService starts the process, once. It is never stopped: it ends when its standard input does, a pipe whose other
// end this process has, and the system closes that, also at a kill.
var theService = sync.OnceValues(start)

// readyLine is what the program prints when it is ready.
type readyLine struct {
	Host   string `json:"host"`
	CA     string `json:"ca"`
	Token  string `json:"token"`
	Planes int    `json:"planes"`
}

func start() (*service, error) {
	command, err := program()
	if err != nil {
		return nil, err
	}
	command.Args = append(command.Args, "test-server", "--planes", "--ready-json")
	s := &service{errors: &tail{}, ended: make(chan struct{})}
	command.Stderr = s.errors
	if _, err := command.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", command, err)
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		err = command.Wait()
		return nil, fmt.Errorf("%s has not started: %v: %s", command, err, s.errors)
	}
	var ready readyLine
	if err := json.Unmarshal(line, &ready); err != nil {
		return nil, fmt.Errorf("%s has printed %q: %w", command, line, err)
	}
	if ready.Planes != interfaceVersion {
		return nil, fmt.Errorf("%s has version %d of the interface, and this package needs %d: take both from one release",
			command, ready.Planes, interfaceVersion)
	}
	s.host, s.token = ready.Host, ready.Token
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(ready.CA))
	s.web = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true,
		DisableCompression: true}
	go func() {
		_ = command.Wait() // its end is what matters
		close(s.ended)
	}()
	return s, nil
}

// program is the command that runs Plinth.
func program() (*exec.Cmd, error) {
	if named := os.Getenv("PLINTH_BINARY"); named != "" {
		found, err := exec.LookPath(named)
		if err != nil {
			return nil, fmt.Errorf("PLINTH_BINARY: %w", err)
		}
		return exec.Command(found), nil
	}
	if found, err := exec.LookPath("plinth"); err == nil {
		return exec.Command(found), nil
	}
	command, err := built()
	if err != nil {
		return nil, fmt.Errorf("there is no program plinth: set PLINTH_BINARY to one, or put it on the PATH: %w", err)
	}
	return command, nil
}

// built is the command that builds and runs the program that belongs to this module, in a module graph of its own.
func built() (*exec.Cmd, error) {
	self := reflect.TypeOf(service{}).PkgPath()
	root := strings.TrimSuffix(self, "/plinthtest/outside")
	out, err := exec.Command("go", "list", "-m", "-json", self).Output()
	if err != nil {
		return nil, fmt.Errorf("it cannot be built, as the go command does not know the version of %s: %w", self, err)
	}
	var module struct {
		Version, Dir string
		Main         bool
		Replace      *struct{ Path, Version, Dir string }
	}
	if err := json.Unmarshal(out, &module); err != nil {
		return nil, err
	}
	replaced := module.Replace != nil && module.Replace.Version == ""
	if sources := filepath.Join(module.Dir, "..", ".."); module.Main || replaced {
		if _, err := os.Stat(filepath.Join(sources, "cmd", "plinth")); err != nil {
			return nil, fmt.Errorf("it cannot be built from the folder of %s: %w", self, err)
		}
		command := exec.Command("go", "run", "./cmd/plinth")
		command.Dir, command.Env = sources, append(os.Environ(), "GOWORK=off", "GOFLAGS=")
		return command, nil
	}
	if first, _, _ := strings.Cut(root, "/"); !strings.Contains(first, ".") {
		return nil, fmt.Errorf("it cannot be built, as the module %s cannot be fetched: its path names no host", root)
	}
	command := exec.Command("go", "run", root+"/cmd/plinth@"+module.Version)
	command.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	return command, nil
}

// call sends a request to the process.
func (s *service) call(ctx context.Context, method, path string, body, answer any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, s.host+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+s.token)
	response, err := (&http.Client{Transport: s.web}).Do(request)
	if err != nil {
		select {
		case <-s.ended:
			return fmt.Errorf("the process with the control planes has ended: %s", s.errors)
		default:
			return err
		}
	}
	defer response.Body.Close()
	text, err = io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= http.StatusBadRequest {
		var failed struct{ Error string }
		if json.Unmarshal(text, &failed) == nil && failed.Error != "" {
			return errors.New(failed.Error)
		}
		return fmt.Errorf("%s %s: %s", method, path, response.Status)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, answer)
}

// tail keeps the last of what a process prints, and passes it on.
type tail struct {
	mu   sync.Mutex
	last []byte
}

// maxTail is how much of it is kept.
const maxTail = 4 << 10

// Write implements io.Writer.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	t.last = append(t.last, b...)
	if over := len(t.last) - maxTail; over > 0 {
		t.last = t.last[over:]
	}
	t.mu.Unlock()
	return os.Stderr.Write(b)
}

// String is what was printed last.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.last))
}

// inBubble says whether the caller is in a bubble of testing/synctest, whose clock begins in 2000.
func inBubble() bool { return time.Now().Year() < 2015 }
