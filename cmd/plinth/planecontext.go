package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	kubeconfigs "plinth/internal/kubeconfig"
	"plinth/object"
)

// The contexts of planes in a kubeconfig. One is the current context in a copy, with the URL of the plane: the cluster
// has the certificate authority and all else of the current one, and the user is the same. Its name is PLANE@CLUSTER,
// with the name of the server's cluster, so that planes of two servers do not meet; a name that is there already and
// means something else is an error. If kubectl reads the user from another file, the context refers to the user, else
// the user is copied under the name of the context.

// mergeFlags are the flags with which a context is added.
func mergeFlags(c *cobra.Command, merge *bool, name *string) {
	c.Flags().BoolVar(merge, "merge", false, "add a context for it to the first file of KUBECONFIG, else to ~/.kube/config")
	c.Flags().StringVar(name, "context", "", "the name of the context (default: NAME@CLUSTER, with the cluster of the current "+
		"context)")
}

func planeKubeconfigCommand() *cobra.Command {
	var f planeFlags
	var merge bool
	var name string
	c := planeSubcommand(&cobra.Command{
		Use: "kubeconfig NAME", Short: "print a kubeconfig for a plane, or add its context to yours",
		Long: "Prints a kubeconfig for a plane: that of the current context, with the URL of the plane. With --merge, its\n" +
			"context is added to the kubeconfig that kubectl uses, and all else there stays as it is.",
		Example: "  plinth plane kubeconfig pr-1 > pr-1.kubeconfig\n  plinth plane kubeconfig pr-1 --merge\n" +
			"  kubectl --context pr-1@plinth get namespaces",
		Args: arguments(1, "NAME"),
	}, &f, 1)
	c.RunE = func(c *cobra.Command, args []string) error {
		return planeKubeconfig(c, f.files(), args[0], name, merge)
	}
	mergeFlags(c, &merge, &name)
	return c
}

func planeKubeconfig(c *cobra.Command, files []string, plane, name string, merge bool) error {
	current, base, err := planeContext(files)
	if err != nil {
		return err
	}
	// The plane has to be there, as far as this program can ask.
	if current.plugin() == "" {
		s, err := planesAt(files)
		if err != nil {
			return err
		}
		if _, err = s.call(http.MethodGet, plane, nil, nil); err != nil && !isRefused(err) {
			return err
		}
	}
	p, err := current.copyFor(plane, base, name)
	if err != nil {
		return err
	}
	if !merge {
		p.Credentials, p.User = p.credentials, cmp.Or(current.user.name, p.Name)
		text, err := p.Text()
		if err == nil {
			_, err = c.OutOrStdout().Write(text)
		}
		return err
	}
	if err = p.free(); err == nil {
		err = p.add(c.Context())
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "The context %s is in %s.\n\n  %s\n", p.Name, p.file,
		kubectlLine(p.file, p.Name))
	return err
}

// isRefused says whether the user may not ask: who may access a plane need not be able to read it.
func isRefused(err error) bool {
	var status *statusError
	return errors.As(err, &status) && status.value.At("code").Int() == http.StatusForbidden
}

// planeCopy is the context of a plane, for a file.
type planeCopy struct {
	kubeconfigs.Copy
	file        string // to which --merge adds it
	credentials object.Value
}

func (s *planeServer) copyOf(plane, name string) (*planeCopy, error) {
	return s.current.copyFor(plane, s.url, name)
}

// copyFor is the current context in a copy for a plane of a server, whose URL is base; name is that of the context, or
// "".
func (current *currentContext) copyFor(plane, base, name string) (*planeCopy, error) {
	cluster := absolute(current.cluster, "certificate-authority").With("server", object.StringOf(urlOfPlane(base, plane)))
	if name == "" {
		of := current.cluster.name
		if was, found := strings.CutPrefix(current.cluster.value.At("server").Str(), base+"/clusters/"); found {
			of = strings.TrimPrefix(of, strings.TrimSuffix(was, "/")+"@") // the current one is that of a plane, too
		}
		name = plane + "@" + of
	}
	file, err := filepath.Abs(userKubeconfig())
	if err != nil {
		return nil, err
	}
	p := &planeCopy{Copy: kubeconfigs.Copy{Name: name, Cluster: cluster, User: current.user.name}, file: file,
		credentials: absolute(current.user, "client-certificate", "client-key", "tokenFile")}
	if command := current.user.value.At("exec", "command").Str(); strings.ContainsRune(command, filepath.Separator) {
		p.credentials = p.credentials.WithAt(object.StringOf(beside(current.user.file, command)), "exec", "command")
	}
	if !slices.ContainsFunc(kubectlFiles(), func(f string) bool { return sameFile(f, current.user.file) }) {
		p.User, p.Credentials = name, p.credentials
	}
	return p, nil
}

// absolute is an item with absolute names of files: those in a kubeconfig are relative to its folder.
func absolute(i item, members ...string) object.Value {
	v := i.value
	if v.IsNull() {
		v = object.MapOf()
	}
	for _, m := range members {
		if file := v.At(m).Str(); file != "" {
			v = v.With(m, object.StringOf(beside(i.file, file)))
		}
	}
	return v
}

// beside is a name that is relative to the folder of a file.
func beside(file, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	all, err := filepath.Abs(filepath.Join(filepath.Dir(file), name))
	if err != nil {
		return name
	}
	return all
}

// kubectlFiles are the files that kubectl reads.
func kubectlFiles() []string {
	if list := os.Getenv("KUBECONFIG"); list != "" {
		return slices.DeleteFunc(filepath.SplitList(list), func(file string) bool { return file == "" })
	}
	return []string{userKubeconfig()}
}

func sameFile(a, b string) bool {
	x, err1 := os.Stat(a)
	y, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(x, y)
}

// free returns an error if kubectl would find something else by the name of the context or the cluster, in any file.
func (p *planeCopy) free() error {
	all, err := existing(kubectlFiles())
	if err != nil {
		return err
	}
	server := func(cluster string) string {
		return named(all, "clusters", "cluster", cluster).value.At("server").Str()
	}
	context, cluster := named(all, "contexts", "context", p.Name), named(all, "clusters", "cluster", p.Name)
	taken := func(where, what string) error {
		return fmt.Errorf("%s has another %s of the name %s; --context gives this one another name", where, what, p.Name)
	}
	if context.file != "" {
		if of := context.value.At("cluster").Str(); of != p.Name || server(of) != p.Cluster.At("server").Str() ||
			context.value.At("user").Str() != p.User {
			return taken(context.file, "context")
		}
	}
	if cluster.file != "" && cluster.value.At("server").Str() != p.Cluster.At("server").Str() {
		return taken(cluster.file, "cluster")
	}
	return nil
}

// existing reads those files that there are.
func existing(files []string) ([]kubeconfig, error) {
	if !slices.ContainsFunc(files, exists) {
		return nil, nil
	}
	return readKubeconfigs(files)
}

// add adds the context to the file.
func (p *planeCopy) add(ctx context.Context) error {
	err := kubeconfigs.Add(ctx, p.file, &p.Copy)
	if errors.Is(err, kubeconfigs.ErrTaken) {
		err = fmt.Errorf("%w; --context gives the context another name", err)
	}
	return err
}

// dropContexts removes the contexts that --merge has added for a plane that was deleted: with all, or if the user says
// so. Those that were changed since stay. That one cannot be removed is no failure of the delete: the kubeconfig is the
// user's.
func (s *planeServer) dropContexts(c *cobra.Command, plane string, all bool) error {
	files, err := existing(kubectlFiles())
	if err != nil {
		return nil //nolint:nilerr // what cannot be read has nothing to remove
	}
	for _, k := range files {
		for _, name := range s.contextsOf(k, plane) {
			p, err := s.copyOf(plane, name)
			if err != nil {
				return err
			}
			said := fmt.Sprintf("Its context %s is in %s still; kubectl config delete-context %s removes it.", name, k.file, name)
			if all || asks(c, fmt.Sprintf("Remove its context %s from %s, too?", name, k.file)) {
				said = s.dropContext(c.Context(), k, p)
			}
			if _, err := fmt.Fprintln(c.OutOrStdout(), said); err != nil {
				return err
			}
		}
	}
	return nil
}

// contextsOf are the contexts of a kubeconfig that lead to a plane, and have their cluster's name.
func (s *planeServer) contextsOf(k kubeconfig, plane string) []string {
	return contextsAt(k, func(server string) bool { return server == urlOfPlane(s.url, plane) })
}

// contextsBelow are those that lead to any plane of the server.
func (s *planeServer) contextsBelow(k kubeconfig) []string {
	return contextsAt(k, func(server string) bool {
		name, found := strings.CutPrefix(server, urlOfPlane(s.url, ""))
		return found && name != "" && !strings.Contains(name, "/")
	})
}

// contextsAt are the contexts of a kubeconfig whose servers are those that is says, and have their cluster's name.
func contextsAt(k kubeconfig, is func(server string) bool) (names []string) {
	for _, entry := range k.value.At("contexts").Items() {
		name := entry.At("name").Str()
		cluster := named([]kubeconfig{k}, "clusters", "cluster", name).value
		if entry.At("context", "cluster").Str() == name && is(cluster.At("server").Str()) {
			names = append(names, name)
		}
	}
	return names
}

// dropContext removes a context, and returns what there is to say about it.
func (s *planeServer) dropContext(ctx context.Context, k kubeconfig, p *planeCopy) string {
	// A context that has its own copy of the user has it in its name, wherever the user is read from now.
	if user := named([]kubeconfig{k}, "contexts", "context", p.Name).value.At("user").Str(); user == p.Name {
		p.User, p.Credentials = user, p.credentials
		if own := named([]kubeconfig{k}, "users", "user", user).value; s.current.user.name == user {
			p.Credentials = own // it is the current context
		}
	} else {
		p.User, p.Credentials = user, object.Nil
	}
	err := kubeconfigs.Drop(ctx, k.file, &p.Copy)
	switch {
	case errors.Is(err, kubeconfigs.ErrChanged):
		return fmt.Sprintf("Its context %s stays in %s, as it was changed; kubectl config delete-context %s removes it.", p.Name,
			k.file, p.Name)
	case err != nil:
		return fmt.Sprintf("Its context %s stays (%v); kubectl config delete-context %s removes it.", p.Name, err, p.Name)
	}
	return fmt.Sprintf("Its context %s in %s is removed.", p.Name, k.file)
}

// unconfirmed is the error after asks has returned false. Its text says what was not done and, behind a colon, what
// does it where nobody can be asked.
func unconfirmed(c *cobra.Command, text string) error {
	if _, ok := person(c); ok {
		text, _, _ = strings.Cut(text, ":")
	}
	return errors.New(text)
}

// person returns the terminal at which a person can be asked; false: there is none.
func person(c *cobra.Command) (in *os.File, ok bool) {
	in, ok = c.InOrStdin().(*os.File)
	return in, ok && isTerminal(in) && isTerminal(c.OutOrStdout())
}

// asks asks a person at a terminal; elsewhere the answer is no.
func asks(c *cobra.Command, question string) bool {
	in, ok := person(c)
	if !ok {
		return false
	}
	fmt.Fprintf(c.OutOrStdout(), "%s [y/N] ", question)
	answer, err := bufio.NewReader(in).ReadString('\n')
	return err == nil && slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer)))
}
