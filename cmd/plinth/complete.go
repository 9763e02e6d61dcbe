package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"plinth/object"
)

// Completion of arguments in a shell. What does not answer in completeTimeout completes nothing: who waits for it types
// on, and an error would be printed into the command line.
const completeTimeout = 2 * time.Second

// completionCommand is `plinth completion SHELL`.
func completionCommand(root *cobra.Command) *cobra.Command {
	shells := map[string]func(io.Writer) error{
		"bash":       func(out io.Writer) error { return root.GenBashCompletionV2(out, true) },
		"zsh":        root.GenZshCompletion,
		"fish":       func(out io.Writer) error { return root.GenFishCompletion(out, true) },
		"powershell": root.GenPowerShellCompletionWithDesc,
	}
	known := slices.Sorted(maps.Keys(shells))
	return &cobra.Command{
		Use: "completion SHELL", Short: "print the completion for bash, zsh, fish or powershell",
		Example: "  source <(plinth completion bash)                     # now; with the package bash-completion\n" +
			"  plinth completion zsh > \"${fpath[1]}/_plinth\"       # for good\n" +
			"  plinth completion fish > ~/.config/fish/completions/plinth.fish\n" +
			"  plinth completion powershell | Out-String | Invoke-Expression",
		Args:      arguments(1, "the shell: "+strings.Join(known, ", ")),
		ValidArgs: known,
		RunE: func(c *cobra.Command, args []string) error {
			generate, ok := shells[args[0]]
			if !ok {
				return fmt.Errorf("there is no completion for %q%sthe shells are %s", args[0], didYouMean(args[0], known, ""),
					strings.Join(known, ", "))
			}
			return generate(c.OutOrStdout())
		},
	}
}

// completeObjects completes TYPE/NAME: the types of the server, then the names of one type.
func completeObjects(kubeconfigs []string, namespace, word string) ([]string, cobra.ShellCompDirective) {
	kind, _, ok := strings.Cut(word, "/")
	if !ok {
		c, err := connect(kubeconfigs)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		c.client.Timeout = completeTimeout
		var types []string
		for _, t := range c.types() {
			types = append(types, t+"/")
		}
		return types, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	var all []string
	for _, name := range completeNames(kubeconfigs, namespace, kind) {
		all = append(all, kind+"/"+name)
	}
	return all, cobra.ShellCompDirectiveNoFileComp
}

// names are the names of the objects of a type with this path, at most 500; none if they cannot be had.
func (c *remote) names(path string) (all []string) {
	text, err := c.get(path+"?limit=500", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
	if err != nil {
		return nil
	}
	parsed, err := object.ParseJSON(text)
	if err != nil {
		return nil
	}
	for _, item := range parsed.Value.At("items").Items() {
		all = append(all, item.At("metadata", "name").Str())
	}
	return all
}

// completeNames are the names of the objects of a type, at most 500: nobody looks for one among more.
func completeNames(kubeconfigs []string, namespace, kind string) []string {
	c, err := connect(kubeconfigs)
	if err != nil {
		return nil
	}
	c.client.Timeout = completeTimeout
	path, err := c.find(kind, "", namespace)
	if err != nil {
		return nil
	}
	return c.names(strings.TrimSuffix(path, "/"))
}

// types are the names of the types that can be listed, with their group where a name is that of several.
func (c *remote) types() (all []string) {
	for _, root := range []string{"/api", "/apis"} {
		text, err := c.get(root, discovery)
		if err != nil {
			continue
		}
		parsed, err := object.ParseJSON(text)
		if err != nil {
			continue
		}
		for _, g := range parsed.Value.At("items").Items() {
			for _, version := range g.At("versions").Items() {
				for _, r := range version.At("resources").Items() {
					name := r.At("resource").Str()
					if slices.Contains(all, name) {
						name += "." + g.At("metadata", "name").Str()
					}
					if !slices.Contains(all, name) && slices.ContainsFunc(r.At("verbs").Items(),
						func(v object.Value) bool { return v.Str() == "list" }) {
						all = append(all, name)
					}
				}
				break // the first version is the preferred one
			}
		}
	}
	return all
}

// manifestFlags says that these flags of a command are files of YAML or JSON.
func manifestFlags(c *cobra.Command, names ...string) {
	for _, name := range names {
		must(c.MarkFlagFilename(name, "yaml", "yml", "json"))
	}
}
