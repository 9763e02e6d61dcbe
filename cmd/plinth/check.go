package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"plinth/internal/datadir"
	"plinth/internal/planes"
	"plinth/internal/planes/kind"
	"plinth/internal/storage"
	"plinth/internal/store"
	"plinth/internal/store/filelog"
	"plinth/internal/store/past"
	"plinth/object"
)

// The exit codes of a command that looks for damage.
const (
	exitFound  = 1 // it found some
	exitFailed = 2 // it could not look
)

// dataDir is a data directory that is read while no server has it.
type dataDir struct {
	path       string // as it was given
	store      string // the directory of the embedded store
	encryption storage.Encryption
}

// at finds the store in a data directory; the directory of the store itself is accepted, too.
func (d *dataDir) at(path string) error {
	d.path, d.store = path, filepath.Join(path, "store")
	switch info, err := os.Stat(path); {
	case err != nil:
		return fmt.Errorf("%w; name the --data-dir of a server", err)
	case !info.IsDir():
		return fmt.Errorf("%s is no directory; name the --data-dir of a server", path)
	}
	if exists(d.store) {
		return nil
	}
	if exists(filepath.Join(path, "FORMAT")) {
		d.store = path
		return nil
	}
	kind, _, err := datadir.Recorded(path)
	switch {
	case err != nil:
		return err
	case kind != "" && kind != "embedded":
		return fmt.Errorf("%s has no store: its server kept the objects in %s", path, kind)
	}
	return fmt.Errorf("%s has no store; name the --data-dir of a server, which has the directory store", path)
}

// inspect reads the store.
func (d *dataDir) inspect() (in *filelog.Inspection, end func(), o filelog.Options, err error) {
	in, end, o, err = storage.Inspect(d.store, d.encryption, slog.New(slog.DiscardHandler))
	switch {
	case errors.Is(err, filelog.ErrLocked):
		err = fmt.Errorf("%w; stop that server first, or look at a copy of the directory", err)
	case errors.Is(err, fs.ErrPermission):
		err = fmt.Errorf("%w; run this as the user of the server", err)
	}
	return in, end, o, err
}

// dataDirCommand makes a command on a data directory.
func dataDirCommand(c *cobra.Command, d *dataDir, run func(out io.Writer) error) *cobra.Command {
	c.Args = arguments(1, "one data directory")
	c.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	c.Flags().StringVar(&d.encryption.ConfigFile, "encryption-provider-config", "",
		"the file of the server's flag of this name, to decrypt what is encrypted")
	manifestFlags(c, "encryption-provider-config")
	c.RunE = func(c *cobra.Command, args []string) error {
		err := d.at(args[0])
		if err == nil {
			err = run(c.OutOrStdout())
		}
		if err != nil && !errors.As(err, new(*exitError)) {
			err = &exitError{exitFailed, err}
		}
		return err
	}
	return c
}

func checkCommand() *cobra.Command {
	var d dataDir
	return dataDirCommand(&cobra.Command{
		Use:   "check DIR",
		Short: "check the files of a data directory, whose server does not run",
		Long: `Reads every frame of every file in a data directory, and changes nothing: checksums, the order of the commits, and
whether each object parses; and every change of the past. It says what is damaged, which planes and objects that
concerns, and how far the past reaches back.

Exit code: 0, there is no damage; 1, there is; 2, the directory could not be checked.`,
		Example: "  plinth check plinth-data\n  plinth check /var/lib/plinth --encryption-provider-config keys.yaml",
	}, &d, d.check)
}

func (d *dataDir) check(out io.Writer) error {
	in, end, _, err := d.inspect()
	if err != nil {
		return err
	}
	defer end()
	var text strings.Builder
	_, gone, err := datadir.Recorded(d.path)
	if err != nil {
		gone = []string{err.Error()}
	}
	for _, part := range gone {
		fmt.Fprintf(&text, "damage: %s is missing, and a server had made it\n", filepath.Join(d.path, part))
	}
	names := planeNames(in)
	for i := range in.Findings {
		printFinding(&text, &in.Findings[i], names)
	}
	lost := printPlanes(&text, in, names)
	all := everyVersion(in)
	sealed := countSealed(all)
	fmt.Fprintf(&text, "%s: %d files, %d frames, %d commits, %.1f MB; newest revision %d; %d objects and claims\n", d.store,
		in.Files, in.Frames, in.Commits, float64(in.Bytes)/1e6, in.Revision, len(in.Versions))
	if n := countPlanes(in); n > 0 {
		fmt.Fprintf(&text, "planes besides the first one: %d, with %d objects and claims\n", n, len(all)-len(in.Versions))
	}
	switch {
	case sealed > 0 && d.encryption.ConfigFile == "":
		fmt.Fprintf(&text, "%d of them are encrypted, and only their checksums were checked: --encryption-provider-config "+
			"names the server's file with the keys\n", sealed)
	case sealed > 0:
		fmt.Fprintf(&text, "damage: %d of them do not decrypt by %s, the first one is %s\n", sealed, d.encryption.ConfigFile,
			firstSealed(all))
	}
	damaged := in.Damaged() || lost || len(gone) > 0 || sealed > 0 && d.encryption.ConfigFile != ""
	lostPast, err := d.checkPast(&text, in)
	if err != nil {
		return err
	}
	switch {
	case lostPast && !damaged:
		fmt.Fprintf(&text, "There is damage, in the past alone. Put back the file, or remove %s: then the past begins anew, and "+
			"no object is lost.\n", d.past())
	case damaged:
		fmt.Fprintf(&text, "There is damage. Put back a file that you have a copy of; or write what can still be read to a "+
			"new directory: plinth export %s --to NEW\n", d.path)
	default:
		text.WriteString("There is no damage.\n")
	}
	if _, err := io.WriteString(out, text.String()); err != nil {
		return err
	}
	if damaged || lostPast {
		return &exitError{code: exitFound}
	}
	return nil
}

// past is the directory of the past.
func (d *dataDir) past() string { return filepath.Join(d.path, "past") }

// checkPast says what there is of the past, and whether it is damaged.
func (d *dataDir) checkPast(text *strings.Builder, of *filelog.Inspection) (damaged bool, err error) {
	if d.store == d.path || !exists(d.past()) {
		return false, nil
	}
	in, err := past.Inspect(context.Background(), d.past(), nil)
	if err != nil {
		return false, err
	}
	for i := range in.Findings {
		word := "damage"
		if in.Findings[i].Minor {
			word = "note"
		}
		fmt.Fprintf(text, "%s: %s\n", word, &in.Findings[i])
	}
	fmt.Fprintf(text, "%s: %d packs, %d changes, %.1f MB", d.past(), in.Packs, in.Changes, float64(in.Bytes)/1e6)
	if in.Packs > 0 {
		fmt.Fprintf(text, "; what there was is known from revision %d on, from %s to revision %d, and further in the log",
			in.Since, in.From.UTC().Format(time.RFC3339), in.Until)
	} else {
		text.WriteString("; what there was is known as far as the log has it")
	}
	text.WriteString("\n")
	if in.Until > of.Revision {
		fmt.Fprintf(text, "note: the past has revisions up to %d, and the log up to %d: the next start begins the past anew\n",
			in.Until, of.Revision)
	}
	return in.Damaged(), nil
}

// countSealed counts the versions that did not decrypt.
func countSealed(versions []*store.Version) (n int) {
	for _, v := range versions {
		if v.Sidecar.Undecrypted {
			n++
		}
	}
	return n
}

func firstSealed(versions []*store.Version) string {
	for _, v := range versions {
		if v.Sidecar.Undecrypted {
			return fmt.Sprintf("%s: %v", v.Key, v.Sidecar.Unreadable)
		}
	}
	return ""
}

// mostKeys is how many objects a finding lists.
const mostKeys = 20

func printFinding(text *strings.Builder, f *filelog.Finding, names map[string]string) {
	sort := "damage"
	if f.Minor {
		sort = "note"
	}
	fmt.Fprintf(text, "%s: %s\n", sort, f)
	if f.Last > 0 {
		fmt.Fprintf(text, "  commits of the revisions %d to %d\n", f.First, f.Last)
	}
	if len(f.Planes) > 0 {
		text.WriteString("  planes:")
		for i, id := range f.Planes {
			if i == mostKeys {
				fmt.Fprintf(text, " and %d more", len(f.Planes)-i)
				break
			}
			fmt.Fprintf(text, " %s", planeText(id, names))
		}
		text.WriteString("\n")
	}
	if len(f.Keys) > 0 {
		text.WriteString("  objects:")
		for i, k := range f.Keys {
			if i == mostKeys {
				fmt.Fprintf(text, " and %d more", len(f.Keys)-i)
				break
			}
			fmt.Fprintf(text, " %s", strings.TrimPrefix(k.String(), "/"))
			if k.Plane != "" {
				fmt.Fprintf(text, " (plane %s)", planeText(k.Plane, names))
			}
		}
		text.WriteString("\n")
	}
}

// templateName is how the plane is called with which planes begin. No plane of a user can have this name.
const templateName = "(template)"

// countPlanes is how many planes of users there are.
func countPlanes(in *filelog.Inspection) (n int) {
	for _, p := range in.Planes {
		if p.ID != planes.Template {
			n++
		}
	}
	return n
}

// planeNames are the names of planes by their IDs, as their objects in the first plane say.
func planeNames(in *filelog.Inspection) map[string]string {
	names := map[string]string{}
	for _, v := range in.Versions {
		if v.Key.Resource == planes.Templates {
			names[planes.Template] = templateName
		}
		if v.Key.Resource != kind.Path || v.Sidecar.Undecrypted {
			continue
		}
		if parsed, err := object.ParseJSON(v.Data()); err == nil {
			names[parsed.Value.At("metadata").At("uid").Str()] = v.Key.Name
		}
	}
	return names
}

// planeText is how a plane is called: by its name, if its object is there.
func planeText(id string, names map[string]string) string {
	return cmp.Or(names[id], "with the ID "+id)
}

// printPlanes says which planes have no object in the first plane, and which objects have no plane, and whether
// there are some: a plane exists exactly as long as its object, so something of them is lost.
func printPlanes(text *strings.Builder, in *filelog.Inspection, names map[string]string) (lost bool) {
	there := map[string]bool{}
	for _, p := range in.Planes {
		if there[p.ID] = true; names[p.ID] == "" {
			lost = true
			fmt.Fprintf(text, "damage: the plane with the ID %s has no object, which is lost, or was deleted by a commit that is "+
				"lost\n", p.ID)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(names)) {
		if !there[id] {
			lost = true
			fmt.Fprintf(text, "damage: there is an object of the plane %s, and the plane is lost\n", names[id])
		}
	}
	return lost
}

// everyVersion are the versions of all planes; one that several have is there once.
func everyVersion(in *filelog.Inspection) []*store.Version {
	all := slices.Clone(in.Versions)
	seen := map[*store.Version]bool{}
	for _, p := range in.Planes {
		for _, v := range p.Versions() {
			if !seen[v] {
				seen[v] = true
				all = append(all, v)
			}
		}
	}
	return all
}

func exportCommand() *cobra.Command {
	var d dataDir
	var e export
	c := dataDirCommand(&cobra.Command{
		Use:   "export DIR",
		Short: "print the objects of a data directory as YAML, or write them to a new one",
		Long: `Reads what can be read of a data directory, damaged or not, whose server does not run, and changes nothing in it.
Without --to the objects are printed as YAML, definitions and namespaces first. With --to they are written to a new data
directory, with their UIDs and resourceVersions, and with the certificates and keys of the server; there is no history.

What is printed are the objects of the server itself, or with --plane those of another plane; --to writes all planes.`,
		Example: "  plinth export plinth-data > objects.yaml\n  plinth export plinth-data --to plinth-data.new\n" +
			"  plinth export plinth-data --for-apply | kubectl apply --server-side -f -",
	}, &d, func(out io.Writer) error { return e.run(&d, out) })
	c.Flags().StringVar(&e.to, "to", "", "the new data directory")
	c.Flags().BoolVar(&e.forApply, "for-apply", false,
		"leave out what a server sets itself and what names it (UIDs, owner references, managedFields, status), so that the "+
			"objects can be applied to another one")
	c.Flags().StringVar(&e.plane, "plane", "", "the name of the plane whose objects are printed, or its ID")
	must(c.MarkFlagDirname("to"))
	return c
}

// export is what an export is asked for.
type export struct {
	to       string
	plane    string // "": the first one
	forApply bool
}

func (e *export) run(d *dataDir, out io.Writer) error {
	if e.to != "" && e.forApply {
		return errors.New("--to keeps all of an object, and --for-apply does not: give one of them")
	}
	if e.to != "" && e.plane != "" {
		return errors.New("--to writes all planes, and --plane prints one: give one of them")
	}
	in, end, o, err := d.inspect()
	if err != nil {
		return err
	}
	defer end()
	versions, err := e.versions(d, in)
	if err != nil {
		return err
	}
	for i := range in.Findings {
		if f := &in.Findings[i]; !f.Minor {
			fmt.Fprintf(os.Stderr, "plinth: %s\n", f)
		}
	}
	if e.to != "" {
		return e.write(d, in, o, out)
	}
	skipped := countSealed(versions)
	for wave := range lastWave + 1 {
		for _, v := range versions {
			if v.Sidecar.Undecrypted {
				continue
			}
			parsed, err := object.ParseJSON(v.Data())
			if err != nil || parsed.Value.At("kind").Str() == "" { // a claim, or damage that is reported
				continue
			}
			if m := (manifest{value: parsed.Value}); m.wave() != wave {
				continue
			}
			value := parsed.Value
			if e.forApply {
				value = applicable(value)
			}
			if _, err := io.WriteString(out, "---\n"); err != nil {
				return err
			}
			if err := printYAML(out, value); err != nil {
				return err
			}
		}
	}
	if skipped > 0 {
		fmt.Fprintf(os.Stderr, "plinth: %d objects are left out, as they do not decrypt; --encryption-provider-config names "+
			"the keys, and --to keeps them as they are\n", skipped)
	}
	return nil
}

// versions are those of the plane that is exported.
func (e *export) versions(d *dataDir, in *filelog.Inspection) ([]*store.Version, error) {
	if e.plane == "" {
		return in.Versions, nil
	}
	names, wanted := planeNames(in), e.plane
	for id, name := range names { // a name goes before an ID
		if name == e.plane {
			wanted = id
		}
	}
	for _, p := range in.Planes {
		if p.ID != wanted {
			continue
		}
		if p.Partial {
			fmt.Fprintf(os.Stderr, "plinth: not all is known of the plane %s\n", e.plane)
		}
		return p.Versions(), nil
	}
	var known []string
	for _, p := range in.Planes {
		if p.ID != planes.Template {
			known = append(known, cmp.Or(names[p.ID], p.ID))
		}
	}
	slices.Sort(known)
	more := ""
	if len(known) > mostKeys {
		known, more = known[:mostKeys], fmt.Sprintf(" and %d more", len(known)-mostKeys)
	}
	if len(known) == 0 {
		return nil, fmt.Errorf("%s has no planes but that of the server itself", d.path)
	}
	return nil, fmt.Errorf("%s has no plane %s; it has %s%s", d.path, e.plane, strings.Join(known, ", "), more)
}

// applicable is an object without what its server has set, and without what names other objects by their UIDs.
func applicable(v object.Value) object.Value {
	metadata := v.At("metadata")
	for _, name := range []string{"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields",
		"ownerReferences", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"} {
		metadata = metadata.Without(name)
	}
	return v.With("metadata", metadata).Without("status")
}

// write writes a new data directory.
func (e *export) write(d *dataDir, in *filelog.Inspection, o filelog.Options, out io.Writer) error {
	if entries, err := os.ReadDir(e.to); err == nil && len(entries) > 0 {
		return fmt.Errorf("%s is not empty; name a directory that is new", e.to)
	}
	if d.store != d.path {
		if err := copyRest(d.path, e.to); err != nil {
			return err
		}
	}
	if err := in.Write(filepath.Join(e.to, "store"), o); err != nil {
		return err
	}
	others, flag := "", ""
	if n := countPlanes(in); n > 0 {
		others, flag = fmt.Sprintf("; planes besides the first one: %d", n), " --planes"
	}
	_, err := fmt.Fprintf(out, "%s has %d objects and claims as of revision %d%s.\n\n  plinth serve --data-dir %s%s\n", e.to,
		len(in.Versions), in.Revision, others, e.to, flag)
	return err
}

// copyRest copies what a data directory has besides the store: certificates, keys, the kubeconfig.
func copyRest(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, name)
		switch {
		case name == "store", name == "past": // there is no history
			return filepath.SkipDir
		case entry.IsDir():
			return os.MkdirAll(target, 0o700)
		case !entry.Type().IsRegular():
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if err := copyFile(path, target); err != nil {
			return err
		}
		return os.Chmod(target, info.Mode().Perm())
	})
}
