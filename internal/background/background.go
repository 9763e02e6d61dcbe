// Package background runs servers in the background, by name. A server has a directory of its own:
//
//	lock   is locked by the running server, and has its process ID
//	state  what is known of the server since it was ready last: [State], as JSON
//	log    what it has printed
//	data/  its data directory
//
// The lock is what says that a server runs. It is taken by the process that starts the server, which hands the open
// file on, and the system releases it with the last process that has it, however that ends:
//
//	lock is locked  ⇔  a server runs, or is being started
//	lock is locked and has a process ID  ⇒  that process is the server
//
// A process ID in a file says nothing by itself: the process may have ended and its number be that of another program.
// So it is used only while the lock is held, and the process is looked up before that is checked: it may end after the
// check, but on Linux the look-up is of that very process and not of its number.
package background

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The names of the files.
const (
	lockFile   = "lock"
	stateFile  = "state"
	logFile    = "log"
	dataFolder = "data"
)

// Root is the directory of all servers of a user: $XDG_STATE_HOME/plinth, by default ~/.local/state/plinth.
func Root() (string, error) {
	if state := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(state) { // others are to be ignored, by the specification
		return filepath.Join(state, "plinth"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("there is no directory for the state of servers: %w; set XDG_STATE_HOME", err)
	}
	return filepath.Join(home, ".local", "state", "plinth"), nil
}

var validName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$`)

// Server is a server with a name, which may run or not.
type Server struct {
	Name string
	dir  string
}

// Named returns the server of a name.
func Named(root, name string) (*Server, error) {
	if !validName.MatchString(name) {
		return nil, fmt.Errorf("%q is no name of a server; it has to be of a-z, 0-9, . and -, such as dev", name)
	}
	return &Server{Name: name, dir: filepath.Join(root, name)}, nil
}

// List returns the servers that there are, ordered by name.
func List(root string) (all []*Server, err error) {
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if s, err := Named(root, e.Name()); err == nil && s.Exists() {
			all = append(all, s)
		}
	}
	return all, err
}

// Exists says whether the server was ever started.
func (s *Server) Exists() bool {
	_, err := os.Stat(s.path(lockFile))
	return err == nil
}

func (s *Server) path(name string) string { return filepath.Join(s.dir, name) }

// DataDir is its data directory.
func (s *Server) DataDir() string { return s.path(dataFolder) }

// LogFile is the file with what it has printed.
func (s *Server) LogFile() string { return s.path(logFile) }

// State is what is known of a server since it was ready last.
type State struct {
	URL        string    `json:"url"`
	Context    string    `json:"context"`    // of the kubeconfig
	Kubeconfig string    `json:"kubeconfig"` // that has it
	Started    time.Time `json:"started"`
}

// State returns what is known of the server. It is zero if it never was ready.
func (s *Server) State() (state State, err error) {
	text, err := os.ReadFile(s.path(stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return state, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &state)
	}
	if err != nil {
		return state, fmt.Errorf("what is known of the server %s is unreadable; remove %s: %w", s.Name, s.path(stateFile), err)
	}
	return state, nil
}

func (s *Server) keep(state State) error {
	text, err := json.Marshal(state)
	if err != nil {
		return err
	}
	next := s.path(stateFile + ".new")
	if err := os.WriteFile(next, append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(next, s.path(stateFile))
}

// ErrRuns means that a server runs already, and ErrStopped that it does not.
var (
	ErrRuns    = errors.New("it runs")
	ErrStopped = errors.New("it does not run")
)

// Running returns the process of the server, or ErrStopped.
func (s *Server) Running() (pid int, err error) {
	process, err := s.process()
	if err != nil {
		return 0, err
	}
	pid = process.Pid
	return pid, process.Release()
}

// process returns the process that holds the lock.
func (s *Server) process() (*os.Process, error) {
	text, err := os.ReadFile(s.path(lockFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrStopped
	}
	if err != nil {
		return nil, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	var process *os.Process
	if err == nil && pid > 0 {
		if process, err = os.FindProcess(pid); err != nil {
			return nil, err
		}
	}
	held, err := isLocked(s.path(lockFile))
	switch {
	case err != nil:
	case !held:
		err = ErrStopped
	case process == nil:
		err = fmt.Errorf("the server %s is being started; try again when that is over", s.Name)
	default:
		if now, err := os.ReadFile(s.path(lockFile)); err != nil || string(now) != string(text) {
			err = fmt.Errorf("the server %s was started anew meanwhile; try again", s.Name)
			return nil, errors.Join(err, process.Release())
		}
		return process, nil
	}
	if process != nil {
		err = errors.Join(err, process.Release())
	}
	return nil, err
}

// Launch is how a server is started.
type Launch struct {
	Program string
	Args    []string
	// State is what is kept when the server is ready, with its URL, which Find returns then.
	State State
	Find  func() (url string, err error)
}

// logLimit is the size from which on a start begins another log; one older one is kept.
const logLimit = 10 << 20

// Start starts the server and returns when it is ready. ErrRuns is returned if it runs already.
//
// It is ready when it says so by the protocol of systemd: a datagram to the socket of NOTIFY_SOCKET.
func (s *Server) Start(ctx context.Context, l *Launch) (State, error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return State{}, err
	}
	lock, err := takeLock(s.path(lockFile))
	if err != nil {
		return State{}, err
	}
	defer lock.Close() // the server has it, too
	if err := lock.Truncate(0); err != nil {
		return State{}, err
	}
	if info, err := os.Stat(s.LogFile()); err == nil && info.Size() > logLimit {
		if err := os.Rename(s.LogFile(), s.LogFile()+".1"); err != nil {
			return State{}, err
		}
	}
	log, err := os.OpenFile(s.LogFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return State{}, err
	}
	defer log.Close()
	info, err := log.Stat()
	if err != nil {
		return State{}, err
	}
	if err := s.run(ctx, l, lock, log); err != nil {
		if last := s.lastLine(info.Size()); last != "" {
			err = fmt.Errorf("%w: %s", err, last)
		}
		return State{}, fmt.Errorf("%w; its log is %s", err, s.LogFile())
	}
	state := l.State
	if state.URL, err = l.Find(); err != nil {
		return State{}, err
	}
	state.Started = time.Now().UTC().Truncate(time.Second)
	return state, s.keep(state)
}

// run runs the program and returns when it is ready.
func (s *Server) run(ctx context.Context, l *Launch, lock, log *os.File) error {
	dir, err := os.MkdirTemp("", "plinth-start-") // not in s.dir: the path of a socket has at most 107 bytes
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	if err != nil {
		return err
	}
	defer socket.Close()
	program := exec.Command(l.Program, l.Args...)
	program.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "WATCHDOG_") || strings.HasPrefix(v, "NOTIFY_SOCKET=") ||
			strings.HasPrefix(v, LogVariable+"=")
	})
	program.Env = append(program.Env, "NOTIFY_SOCKET="+socket.LocalAddr().String(), LogVariable+"="+s.LogFile())
	program.Stdout, program.Stderr = log, log
	program.ExtraFiles = []*os.File{lock}
	detach(program)
	if err := program.Start(); err != nil {
		return err
	}
	if _, err := lock.WriteAt([]byte(strconv.Itoa(program.Process.Pid)+"\n"), 0); err != nil {
		return errors.Join(err, program.Process.Kill(), program.Wait())
	}
	ended := make(chan error, 1)
	go func() { ended <- program.Wait() }()
	ready := make(chan error, 1)
	go func() { ready <- awaitReady(socket) }()
	select {
	case err := <-ended:
		if err == nil {
			err = errors.New("it ended at once")
		}
		return fmt.Errorf("the server %s did not start: %w", s.Name, err)
	case err := <-ready:
		return err
	case <-ctx.Done():
		err := program.Process.Kill()
		<-ended
		return errors.Join(fmt.Errorf("the server %s was not ready in time, and was ended", s.Name), err)
	}
}

// awaitReady waits for the datagram that says so.
func awaitReady(socket *net.UnixConn) error {
	b := make([]byte, 4<<10)
	for {
		n, err := socket.Read(b)
		if err != nil {
			return err
		}
		if slices.Contains(strings.Split(string(b[:n]), "\n"), "READY=1") {
			return nil
		}
	}
}

// lastLine is the last line of the log after an offset.
func (s *Server) lastLine(after int64) string {
	text, err := os.ReadFile(s.LogFile())
	if err != nil || int64(len(text)) <= after {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(text[after:])), "\n")
	return lines[len(lines)-1]
}

// pollPeriod is how often the end of a process is looked for.
const pollPeriod = 20 * time.Millisecond

// Stop ends the server in order, or kills it, and returns when it has ended. ErrStopped is returned if it does not run.
func (s *Server) Stop(ctx context.Context, kill bool) error {
	process, err := s.process()
	if err != nil {
		return err
	}
	defer process.Release() //nolint:errcheck // it is of no consequence
	end := terminate
	if kill {
		end = (*os.Process).Kill
	}
	if err := end(process); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	for {
		held, err := isLocked(s.path(lockFile))
		if err != nil || !held {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the server %s has not ended yet (process %d); --kill ends it at once", s.Name, process.Pid)
		case <-time.After(pollPeriod):
		}
	}
}

// Remove removes all that a server has, which does not run.
func (s *Server) Remove() error {
	lock, err := takeLock(s.path(lockFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(s.dir), lock.Close())
}
