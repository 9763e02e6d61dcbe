package main

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"plinth/internal/background"
	"plinth/internal/datadir"
	"plinth/internal/expiry"
	"plinth/internal/occupant"
	"plinth/internal/storage"
)

// How a check of `plinth doctor` ends.
const (
	sound    = "ok"
	doubtful = "warning" // it works, and may not for long
	broken   = "problem" // a server does not start, or loses something
)

// checkup collects what `plinth doctor` finds.
type checkup struct {
	dir  string // the data directory
	port int
	now  time.Time
	all  []diagnosis
}

// diagnosis is the result of one check: what is so, and what to do unless it is sound.
type diagnosis struct{ level, about, says, advice string }

func (c *checkup) add(level, about, says, advice string) {
	c.all = append(c.all, diagnosis{level, about, says, advice})
}

func doctorCommand() *cobra.Command {
	c := &checkup{}
	command := &cobra.Command{
		Use: "doctor", Short: "look for what keeps a server from starting or running well",
		Long: `Looks at the machine and at a data directory: room on the disk, the clock, limits, certificates, keys, the port, and
which servers there are. It changes nothing. plinth check reads the objects.

Exit code: 0, there is no problem; 1, there is.`,
		Example: "  plinth doctor\n  plinth doctor --data-dir /var/lib/plinth --secure-port 7443",
		Args:    arguments(0, "only flags"),
		RunE: func(command *cobra.Command, _ []string) error {
			c.now = time.Now()
			c.disk(storage.FreeBytes)
			c.directory()
			c.clock()
			c.limits(openFiles())
			c.certificates()
			c.keys()
			c.portFree()
			c.others()
			return c.print(command.OutOrStdout())
		},
	}
	flags := command.Flags()
	flags.StringVar(&c.dir, "data-dir", "plinth-data", "the data directory of the server")
	flags.IntVar(&c.port, "secure-port", 6443, "the port of the server")
	must(command.MarkFlagDirname("data-dir"))
	return command
}

func (c *checkup) print(out io.Writer) error {
	s := styleOf(out)
	var text strings.Builder
	problems := 0
	for _, d := range c.all {
		level := fmt.Sprintf("%-8s", d.level)
		if d.level == broken {
			problems++
			level = s.red(level)
		}
		fmt.Fprintf(&text, "%s %-13s %s", level, d.about, d.says)
		if d.advice != "" {
			fmt.Fprintf(&text, "; %s", d.advice)
		}
		text.WriteString("\n")
	}
	if _, err := io.WriteString(out, text.String()); err != nil || problems == 0 {
		return err
	}
	return &exitError{code: exitFound}
}

// disk looks at the room on the disk of the data directory, or of where it would be made.
func (c *checkup) disk(free func(string) (uint64, bool)) {
	at := c.dir
	for !exists(at) && at != filepath.Dir(at) {
		at = filepath.Dir(at)
	}
	left, known := free(at)
	says := fmt.Sprintf("%.1f GB are free for %s", float64(left)/1e9, c.dir)
	const tight = 1 << 30
	switch {
	case !known:
		c.add(doubtful, "disk", "how much room there is is not known here", "see that there is some")
	case left < storage.LeastFree:
		c.add(broken, "disk", says, "make room: a server refuses writes until there is")
	case left < tight:
		c.add(doubtful, "disk", says, "a server refuses writes when there is no more room")
	default:
		c.add(sound, "disk", says, "")
	}
}

// directory looks whether the data directory has all that a server has made there, and who has it.
func (c *checkup) directory() {
	kind, gone, err := datadir.Recorded(c.dir)
	switch {
	case !exists(c.dir):
		c.add(sound, "data", c.dir+" is not there yet; plinth serve makes it", "")
		return
	case err != nil:
		c.add(broken, "data", err.Error(), "put back the file, or see docs/formats.md")
	case len(gone) > 0:
		c.add(broken, "data", fmt.Sprintf("missing in %s: %s", c.dir, strings.Join(gone, ", ")),
			"is a disk not mounted? put back what is missing")
	case kind == "":
		c.add(sound, "data", "no server has started in "+c.dir+" yet", "")
	default:
		c.add(sound, "data", fmt.Sprintf("%s has all that a server made there; storage: %s", c.dir, kind), "")
	}
	if p, ok := occupant.OfLock(filepath.Join(c.dir, "store")); ok {
		c.add(sound, "data", fmt.Sprintf("%s has it open", p), "")
	}
}

// clockSlack is how far ahead of the clock the time of a file may be: those of network file systems are another
// machine's.
const clockSlack = time.Minute

// clock looks for files that were written in the future: then the clock is behind, or was ahead.
func (c *checkup) clock() {
	said := c.now.UTC().Format(time.RFC3339)
	latest, of := time.Time{}, ""
	err := filepath.WalkDir(c.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if info, err := entry.Info(); err == nil && info.ModTime().After(latest) {
			latest, of = info.ModTime(), path
		}
		return nil
	})
	const released = 2026
	switch {
	case c.now.Year() < released:
		c.add(broken, "clock", "it says "+said, "set it: certificates are not valid yet by it")
	case err == nil && latest.After(c.now.Add(clockSlack)):
		written := latest.UTC().Format(time.RFC3339)
		c.add(broken, "clock", fmt.Sprintf("it says %s, and %s was written at %s", said, of, written),
			"set it, or wait: leases, tokens and events expire by it")
	default:
		c.add(sound, "clock", "it says "+said, "")
	}
}

// limits judges how many files a process may open: each client takes one.
func (c *checkup) limits(files uint64, known bool) {
	says := fmt.Sprintf("a process may open %d files", files)
	switch {
	case !known:
	case files < 256:
		c.add(broken, "limits", says, "raise it, by ulimit -n 65536 or LimitNOFILE= of the unit")
	case files < 4096:
		c.add(doubtful, "limits", says, "that is as many clients at most; ulimit -n 65536 raises it")
	default:
		c.add(sound, "limits", says, "")
	}
}

// certificates looks when those in the data directory expire.
func (c *checkup) certificates() {
	var files []string
	for _, pattern := range []string{"*.crt", filepath.Join("front-proxy", "*.crt")} {
		found, err := filepath.Glob(filepath.Join(c.dir, "pki", pattern))
		if err == nil {
			files = append(files, found...)
		}
	}
	count, first := 0, time.Time{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			c.add(broken, "certificates", err.Error(), "run this as the user of the server")
			continue
		}
		all, err := expiry.Parse(text)
		if err != nil {
			c.add(broken, "certificates", fmt.Sprintf("%s: %v", file, err), "put back a copy, or remove it with its key")
			continue
		}
		certificate := all[0]
		count++
		if first.IsZero() || certificate.NotAfter.Before(first) {
			first = certificate.NotAfter
		}
		c.expiry(file, certificate)
	}
	if count > 0 && first.After(c.now) {
		c.add(sound, "certificates", fmt.Sprintf("%d, of which the first one expires on %s", count,
			first.Format(time.DateOnly)), "")
	}
}

func (c *checkup) expiry(file string, is *x509.Certificate) {
	advice := "a server that runs renews it, and so does a start"
	if is.IsCA {
		advice = "clients trust it: all of them need the new one after it is replaced"
	}
	state, says := expiry.Judge(is, c.now)
	switch says = file + " " + says; state {
	case expiry.Expired:
		c.add(broken, "certificates", says, advice)
	case expiry.NotYet:
		c.add(broken, "certificates", says, "set the clock")
	case expiry.Expiring:
		c.add(doubtful, "certificates", says, advice)
	}
}

// keys looks for private keys that others can read.
func (c *checkup) keys() {
	var open []string
	for _, pattern := range []string{"kubeconfig", "pki/*.key", "pki/front-proxy/*.key"} {
		found, err := filepath.Glob(filepath.Join(c.dir, pattern))
		if err != nil {
			continue
		}
		for _, file := range found {
			const others = 0o007
			if info, err := os.Stat(file); err == nil && info.Mode().Perm()&others != 0 {
				open = append(open, file)
			}
		}
	}
	if len(open) > 0 {
		c.add(doubtful, "keys", "every user of this machine can read "+strings.Join(open, ", "),
			"chmod 600 takes that from them")
	}
}

// portFree looks whether a server can listen.
func (c *checkup) portFree() {
	if c.port == 0 {
		c.add(sound, "port", "with 0 the system chooses a free one", "")
		return
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port)))
	if err == nil {
		l.Close()
		c.add(sound, "port", fmt.Sprintf("%d is free", c.port), "")
		return
	}
	by, known := occupant.OfPort(c.port)
	has, same := occupant.OfLock(filepath.Join(c.dir, "store"))
	switch {
	case known && same && by.PID == has.PID:
		c.add(sound, "port", fmt.Sprintf("at %d is the server of %s", c.port, c.dir), "")
	case known:
		c.add(broken, "port", fmt.Sprintf("%s listens at %d", by, c.port), "end it, or give --secure-port another port")
	default:
		c.add(broken, "port", fmt.Sprintf("%d cannot be used: %v", c.port, err), "give --secure-port another port")
	}
}

// others looks for other servers, and for kubectl.
func (c *checkup) others() {
	root, err := background.Root()
	var running []string
	if err == nil {
		servers, err := background.List(root)
		if err != nil {
			c.add(doubtful, "servers", err.Error(), "see whose directory it is")
		}
		for _, s := range servers {
			if _, err := s.Running(); err == nil {
				running = append(running, s.Name)
			}
		}
	}
	says := "none is in the background"
	if len(running) > 0 {
		says = "in the background: " + strings.Join(running, ", ") + " (plinth list)"
	}
	c.add(sound, "servers", says, "")
	known := []int{6443, 8443, 2379, 10250} // of kube-apiserver, minikube, etcd and a kubelet
	for _, port := range slices.DeleteFunc(known, func(p int) bool { return p == c.port }) {
		if p, ok := occupant.OfPort(port); ok {
			c.add(sound, "servers", fmt.Sprintf("%s listens at %d", p, port), "")
		}
	}
	kubectl, err := exec.LookPath("kubectl")
	if errors.Is(err, exec.ErrNotFound) {
		c.add(doubtful, "kubectl", "there is none on the PATH", "in a checkout, make kubectl builds it")
	} else if err == nil {
		c.add(sound, "kubectl", kubectl, "")
	}
}
