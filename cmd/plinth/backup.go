package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"plinth/internal/backup"
	"plinth/internal/durable"
)

// backupCommand is `plinth backup`: one snapshot of a server that serves (STORE-6).
func backupCommand() *cobra.Command {
	var b backupFlags
	c := &cobra.Command{
		Use:   "backup FILE|URL",
		Short: "copy all objects of a server that serves into a file, or to an object storage",
		Long: `Asks the server of the current context for its store as it is at that moment, checks what arrives, and writes it to a
file, which plinth restore makes a data directory of. The file has its name when it is whole and on the disk; - is the
standard output. The server goes on serving meanwhile. The user needs the right to get the path /backup, as
administrators have it.

A URL is one of an object, as s3://bucket/plinth.tar, which is there as a whole or not at all: s3:// is Amazon S3 and what
is compatible, gs:// Google Cloud Storage, and azblob:// Azure Blob Storage. They need the program plinth-cloud, which is
beside this one or in PATH, and finds credentials as the tools of the cloud do.

What is encrypted at rest stays so. No key is in the file, unless --with-keys asks for them: the authorities, the keys of
tokens and of planes, and the files that flags of the server name, encrypted to a passphrase (age). That reads them from
the disk, on the machine of the server.`,
		Example: "  plinth backup plinth-$(date +%F).tar\n  plinth backup - | zstd > plinth.tar.zst\n" +
			"  plinth backup s3://bucket/plinth-$(date +%F).tar\n" +
			"  plinth backup plinth.tar --with-keys --passphrase-file passphrase",
		Args: arguments(1, "one file or URL"),
		RunE: func(c *cobra.Command, args []string) error { return b.run(c.Context(), args[0], c.OutOrStdout()) },
	}
	c.Flags().StringVar(&b.kubeconfig, "kubeconfig", "", "the kubeconfig to use (default: the files of KUBECONFIG, "+
		"as for kubectl; else ~/.kube/config, if it is there; else plinth-data/kubeconfig)")
	c.Flags().BoolVar(&b.withKeys, "with-keys", false, "add the keys of the server, encrypted to a passphrase")
	c.Flags().StringVar(&b.passphraseFile, passphraseFile, "",
		"a file with the passphrase in its first line (default: ask at the terminal)")
	return c
}

const passphraseFile = "passphrase-file"

type backupFlags struct {
	kubeconfig, passphraseFile string
	withKeys                   bool
}

func (b *backupFlags) files() []string { return kubeconfigsOf(b.kubeconfig) }

func (b *backupFlags) run(ctx context.Context, to string, out io.Writer) error {
	if b.passphraseFile != "" && !b.withKeys {
		return errors.New("--passphrase-file is the one of the keys, which --with-keys adds")
	}
	var passphrase string
	if b.withKeys { // asked before anything is read
		var err error
		if passphrase, err = readPassphrase(b.passphraseFile, true); err != nil {
			return err
		}
	}
	current, base, err := planeContext(b.files())
	if err != nil {
		return err
	}
	server, err := current.connect()
	if err != nil {
		return err
	}
	server.url = base
	// Without the time limit of short requests: the server ends an answer that does not go on.
	client := &http.Client{Transport: server.client.Transport}
	response, err := server.open(ctx, client, http.MethodGet, "/backup", nil, http.Header{})
	if err != nil {
		return err
	}
	defer response.Body.Close()
	var m meter
	defer m.clear()
	from := io.TeeReader(response.Body, m.show(response.ContentLength))
	var collect func(*backup.Document) ([]byte, error)
	if b.withKeys {
		collect = func(d *backup.Document) ([]byte, error) {
			keys, err := backup.CollectKeys(d)
			if err != nil {
				return nil, err
			}
			return keys.Encrypt(passphrase)
		}
	}
	if to == "-" {
		_, err := backup.Copy(from, out, collect)
		return err
	}
	var d *backup.Document
	var size counter
	write := func(w io.Writer) error {
		d, err = backup.Copy(from, io.MultiWriter(w, &size), collect)
		return err
	}
	if isURL(to) {
		err = backup.ToURL(ctx, to, sayOnTerminal, write)
	} else {
		err = writeWhole(to, write)
	}
	if err != nil {
		return err
	}
	m.clear()
	keys := "without keys"
	if b.withKeys {
		keys = "with keys"
	}
	_, err = fmt.Fprintf(out, "%s has all objects as of revision %d, %s (%.1f MB).\n\n  plinth restore %s -o NEW\n", to,
		d.Revision, keys, float64(size)/1e6, shellWord(to))
	return err
}

// shellWord is a name as a command in a shell has it: URLs of object storages have parameters.
func shellWord(name string) string {
	if strings.ContainsAny(name, "?&;* $") {
		return "'" + name + "'"
	}
	return name
}

func isURL(name string) bool { return strings.Contains(name, "://") }

// sayOnTerminal is for what another program says that this one has started.
func sayOnTerminal(line string) { fmt.Fprintln(os.Stderr, line) }

// counter counts the bytes that are written to it.
type counter int64

// Write implements io.Writer.
func (c *counter) Write(b []byte) (int, error) {
	*c += counter(len(b))
	return len(b), nil
}

// writeWhole writes a file that only its owner can read, and that has its name when it is whole and on the disk.
func writeWhole(path string, write func(io.Writer) error) error {
	unfinished := path + ".tmp"
	f, err := os.OpenFile(unfinished, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there: another backup is under way, or was interrupted; remove it then", unfinished)
	}
	if err != nil {
		return err
	}
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(unfinished, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(unfinished))
	}
	return durable.SyncDir(durable.FS, filepath.Dir(path))
}

// meter shows how much of a size was read, on a terminal alone. The zero meter shows nothing.
type meter struct{ bar *progressbar.ProgressBar }

// show begins with a size in bytes, -1 if it is not known. What is read is written to what it returns.
func (m *meter) show(size int64) io.Writer {
	if !isTerminal(os.Stderr) {
		return io.Discard
	}
	m.bar = progressbar.NewOptions64(size, progressbar.OptionSetWriter(os.Stderr), progressbar.OptionShowBytes(true),
		progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionFullWidth())
	return m.bar
}

func (m *meter) clear() {
	if m.bar != nil {
		m.bar.Clear() //nolint:errcheck // nothing depends on what a terminal shows
	}
}

// readPassphrase reads the passphrase of keys from a file, or asks for it at the terminal; a new one twice.
func readPassphrase(file string, isNew bool) (string, error) {
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("--%s: %w", passphraseFile, err)
		}
		line, _, _ := bytes.Cut(text, []byte("\n"))
		line = bytes.TrimSuffix(line, []byte("\r"))
		if len(line) == 0 {
			return "", fmt.Errorf("--%s: the first line of %s is empty", passphraseFile, file)
		}
		return string(line), nil
	}
	if !isTerminal(os.Stdin) {
		return "", fmt.Errorf("there is no terminal to ask for the passphrase of the keys; --%s names a file with it",
			passphraseFile)
	}
	ask := func(prompt string) (string, error) {
		fmt.Fprint(os.Stderr, prompt)
		line, err := term.ReadPassword(int(os.Stdin.Fd()))
		fmt.Fprintln(os.Stderr)
		return string(line), err
	}
	passphrase, err := ask("Passphrase of the keys: ")
	if err == nil && passphrase == "" {
		err = errors.New("the passphrase is empty")
	}
	if err != nil || !isNew {
		return passphrase, err
	}
	again, err := ask("Once more: ")
	if err == nil && again != passphrase {
		err = errors.New("the two passphrases differ")
	}
	return passphrase, err
}

// openBackup opens a file with a backup, - for the standard input, or what is at a URL. m shows how much was read.
func openBackup(ctx context.Context, name string, m *meter) (from backup.Source, end func(), err error) {
	if isURL(name) {
		from, err = backup.FromURL(ctx, name, sayOnTerminal, m.show)
		return from, func() {}, err
	}
	file, size := os.Stdin, int64(-1)
	if name != "-" {
		file, err = os.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil, fmt.Errorf("%w; name a file that plinth backup has written", err)
		}
		if err != nil {
			return nil, nil, err
		}
		info, err := file.Stat()
		if err == nil && info.IsDir() {
			err = fmt.Errorf("%s is a directory; name a file that plinth backup has written, or file://%s", name, name)
		}
		if err != nil {
			return nil, nil, errors.Join(err, file.Close())
		}
		size = info.Size()
	}
	return backup.FromArchive(io.TeeReader(file, m.show(size))), func() { file.Close() }, nil
}
