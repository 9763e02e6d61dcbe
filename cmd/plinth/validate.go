package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"plinth/internal/server"
	"plinth/object"
)

// `plinth validate` creates the manifests in a new server in this process, and reports what it refuses. So what decides
// is what an apply meets: the schemas and the validation of the types, definitions and policies that are among the
// manifests, admission plugins, and other objects.
//
// Each object is created, and not applied: a create with strict field validation names all unknown fields, while an
// apply ends at the first one. What is refused may need an object that comes later, such as a parameter of a policy: it
// is tried again as long as that helps.

// source is an object of a file, with the place where it begins.
type source struct {
	manifest
	line int        // of the document
	node *yaml.Node // of the object; nil: it has no places
}

// refusal is one reason why an object is refused.
type refusal struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Object  string `json:"object,omitempty"` // kind and name
	Field   string `json:"field,omitempty"`
	Reason  string `json:"reason"` // as in a Status: Invalid, Forbidden, NotFound
	Message string `json:"message"`
}

// verdict is the result of a validation.
type verdict struct {
	sources  []*source
	refusals []refusal
}

func validateCommand() *cobra.Command {
	var output, version string
	c := &cobra.Command{
		Use:   "validate PATH...",
		Short: "check manifests against a new server: what would an apply be refused for?",
		Long: `Creates manifests in a new server in memory, and prints all that it refuses, with file and line. Definitions and
policies among the manifests count; webhooks are not called. Namespaces that are missing are made. A PATH is a file, a
directory of files, a directory with a kustomization (kubectl or kustomize renders it), or - for standard input.

Exit code: 0, all are accepted; 1, some are refused; 2, they could not be checked.`,
		Example: "  plinth validate deploy/\n  helm template chart | plinth validate -\n  plinth validate deploy/ -o sarif > result.sarif",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("validate needs manifests: plinth validate PATH...; - is standard input")
			}
			print, ok := reports[output]
			if !ok {
				return fmt.Errorf("--output: there is no form %q%sthe forms are json, junit, sarif, text", output,
					didYouMean(output, []string{"json", "junit", "sarif", "text"}, ""))
			}
			v, err := validate(args, version)
			if err != nil {
				return &exitError{exitFailed, err}
			}
			if err := print(c.OutOrStdout(), v); err != nil {
				return err
			}
			if len(v.refusals) > 0 {
				return &exitError{code: exitFound}
			}
			return nil
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "text", "the form of the report: text, json, junit or sarif")
	c.Flags().StringVar(&version, "emulated-version", "", "the release of Kubernetes to check against, such as 1.36")
	must(c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"text", "json", "junit", "sarif"},
		cobra.ShellCompDirectiveNoFileComp)))
	return c
}

// validate reads the manifests at paths and creates them in a server.
func validate(paths []string, version string) (*verdict, error) {
	v := &verdict{}
	for _, path := range paths {
		if err := v.read(path); err != nil {
			return nil, err
		}
	}
	if len(v.sources) == 0 && len(v.refusals) == 0 {
		return nil, fmt.Errorf("%s: there are no objects; name files or directories of YAML or JSON", strings.Join(paths, ", "))
	}
	client, end, err := newServer(version)
	if err != nil {
		return nil, err
	}
	defer end()
	if err := v.create(client); err != nil {
		return nil, err
	}
	slices.SortStableFunc(v.refusals, func(a, b refusal) int {
		if a.File != b.File {
			return strings.Compare(a.File, b.File)
		}
		return a.Line - b.Line
	})
	return v, nil
}

// newServer starts a server in memory.
func newServer(version string) (client *remote, end func(), err error) {
	s := testDefaults()
	s.logLevel, s.AdministratorToken, s.DisableAdmission = "error", rand.Text(), []string{"ServiceAccount"}
	if version != "" {
		s.EmulatedVersion = []string{version}
	}
	s.Logger = s.logger(os.Stderr)
	ctx, stop := context.WithCancel(context.Background())
	running, err := server.Start(ctx, s.Config)
	if err != nil {
		stop()
		return nil, nil, err
	}
	ready := readyLine{Host: running.URL(), Token: s.AdministratorToken}
	authority, _ := running.Administrator()
	ready.CA = string(authority)
	client = ready.client()
	return client, func() {
		client.client.CloseIdleConnections() // for which the end would wait
		stop()
		running.Close() //nolint:errcheck // nothing of it is kept
	}, nil
}

// read reads a PATH of the command line.
func (v *verdict) read(path string) error {
	if path == "-" {
		text, err := io.ReadAll(os.Stdin)
		v.parse("standard input", text)
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return fileError(path, err)
	}
	if !info.IsDir() {
		return v.readFile(path)
	}
	return filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return fileError(file, err)
		case entry.IsDir():
			for _, name := range []string{"kustomization.yaml", "kustomization.yml", "Kustomization"} {
				if exists(filepath.Join(file, name)) {
					if err := v.kustomize(file); err != nil {
						return err
					}
					return filepath.SkipDir
				}
			}
			return nil
		case !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(file)):
			return nil
		}
		return v.readFile(file)
	})
}

func (v *verdict) readFile(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fileError(file, err)
	}
	v.parse(file, text)
	return nil
}

// kustomize renders a directory. Lines are those of what is rendered.
func (v *verdict) kustomize(dir string) error {
	for _, args := range [][]string{{"kubectl", "kustomize", dir}, {"kustomize", "build", dir}} {
		program, err := exec.LookPath(args[0])
		if err != nil {
			continue
		}
		var said bytes.Buffer
		render := exec.Command(program, args[1:]...)
		render.Stderr = &said
		text, err := render.Output()
		if err != nil {
			return fmt.Errorf("%s does not render: %s", dir, strings.TrimSpace(said.String()))
		}
		v.parse(dir, text)
		return nil
	}
	return fmt.Errorf("%s has a kustomization, and neither kubectl nor kustomize is on the PATH; install one, or pipe what "+
		"it renders into plinth validate -", dir)
}

// parse adds the objects of a text. A document that does not parse is a refusal, and the others are read.
func (v *verdict) parse(file string, text []byte) {
	line := 1
	for _, document := range splitDocuments(text) {
		objects, err := object.Documents(document)
		if err != nil {
			at := line
			if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
				n, _ := strconv.Atoi(m[1])
				at += n - 1
			}
			v.refusals = append(v.refusals, refusal{File: file, Line: at, Reason: "Unreadable",
				Message: strings.TrimPrefix(err.Error(), "document 1: ")})
		}
		nodes := nodesOf(document, len(objects))
		for i, o := range objects {
			v.sources = append(v.sources, &source{manifest{file, o}, line, nodes[i]})
		}
		line += bytes.Count(document, []byte("\n"))
	}
}

var yamlLine = regexp.MustCompile(`line (\d+)`)

// splitDocuments splits a text where a line begins with ---. The parts have all lines, so that they can be counted.
func splitDocuments(text []byte) (all [][]byte) {
	begin := 0
	for at := 0; at < len(text); {
		end := at + 1 + bytes.IndexByte(text[at:], '\n')
		if end == at {
			end = len(text)
		}
		if at > begin && bytes.HasPrefix(text[at:end], []byte("---")) {
			all = append(all, text[begin:at])
			begin = at
		}
		at = end
	}
	return append(all, text[begin:])
}

// nodesOf returns the syntax trees of the n objects of a document: of the document, or of the items of a list. They are
// for places alone, so an error is none.
func nodesOf(document []byte, n int) []*yaml.Node {
	nodes := make([]*yaml.Node, n)
	var root yaml.Node
	if yaml.Unmarshal(document, &root) != nil || len(root.Content) == 0 {
		return nodes
	}
	if n == 1 {
		nodes[0] = root.Content[0]
	}
	if _, items := member(root.Content[0], "items"); items != nil && len(items.Content) == n {
		copy(nodes, items.Content)
	}
	return nodes
}

// member returns the key and the value of a map.
func member(m *yaml.Node, name string) (key, value *yaml.Node) {
	if m.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value == name {
			return m.Content[i], m.Content[i+1]
		}
	}
	return nil, nil
}

// lineOf is the line of a field, spec.containers[0].image, or of the nearest one around it that is there.
func (s *source) lineOf(field string) int {
	if s.node == nil {
		return s.line
	}
	at, line := s.node, s.node.Line
	for _, step := range fieldStep.FindAllString(field, -1) {
		name := strings.Trim(step, ".[]\"")
		if n, err := strconv.Atoi(name); err == nil && at.Kind == yaml.SequenceNode {
			if n >= len(at.Content) {
				break
			}
			at = at.Content[n]
			line = at.Line
			continue
		}
		key, value := member(at, name)
		if key == nil {
			break
		}
		at, line = value, key.Line
	}
	return s.line + line - 1
}

var fieldStep = regexp.MustCompile(`\[[^\]]*\]|[^.\[\]]+`)

// order is when an object is created: what decides on others comes first.
func (s *source) order() int {
	kind := s.value.At("kind").Str()
	switch {
	case kind == "CustomResourceDefinition":
		return 0
	case kind == "Namespace":
		return 1
	case strings.HasSuffix(kind, "AdmissionPolicy"):
		return 2
	case strings.HasSuffix(kind, "AdmissionPolicyBinding"):
		return 3
	}
	return 4
}

// strict are the parameters by which an object is created. Configurations of webhooks are not kept: nobody answers
// them.
func (s *source) strict() string {
	if strings.HasSuffix(s.value.At("kind").Str(), "WebhookConfiguration") {
		return "&fieldValidation=Strict&dryRun=All"
	}
	return "&fieldValidation=Strict"
}

// create creates all objects, and keeps why some are refused.
func (v *verdict) create(c *remote) error {
	if err := v.namespaces(c); err != nil {
		return err
	}
	waiting := slices.Clone(v.sources)
	slices.SortStableFunc(waiting, func(a, b *source) int { return a.order() - b.order() })
	for {
		served := map[string][]object.Value{} // anew: a definition adds some
		var refused []*source
		var why []error
		for i, s := range waiting {
			if i > 0 && waiting[i-1].order() == 0 && s.order() > 0 {
				clear(served)
			}
			err := c.create(s, served, s.strict())
			if errors.As(err, new(*url.Error)) { // the server did not answer
				return err
			}
			if err != nil {
				refused, why = append(refused, s), append(why, err)
			}
		}
		if len(refused) == 0 || len(refused) == len(waiting) {
			for i, s := range refused {
				v.refusals = append(v.refusals, s.refusals(why[i])...)
				if strings.Contains(why[i].Error(), strictError) { // what is wrong besides unknown fields
					if err := c.create(s, served, "&fieldValidation=Ignore&dryRun=All"); err != nil {
						v.refusals = append(v.refusals, s.refusals(err)...)
					}
				}
			}
			return nil
		}
		waiting = refused
	}
}

// namespaces makes those that are named and not among the manifests.
func (v *verdict) namespaces(c *remote) error {
	known := map[string]bool{"": true, "default": true, "kube-system": true, "kube-public": true, "kube-node-lease": true}
	for _, s := range v.sources {
		if s.value.At("kind").Str() == "Namespace" {
			known[s.value.At("metadata", "name").Str()] = true
		}
	}
	for _, s := range v.sources {
		name := s.value.At("metadata", "namespace").Str()
		if known[name] {
			continue
		}
		known[name] = true
		body := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, name)
		_, err := c.send(http.MethodPost, "/api/v1/namespaces", body, http.Header{"Content-Type": {"application/json"}})
		if err != nil && !errors.As(err, new(*statusError)) { // a name that is refused is reported with its object
			return err
		}
	}
	return nil
}

// strictError is in the message of an error about unknown fields.
const strictError = "strict decoding error"

// create creates an object, with these further parameters.
func (c *remote) create(s *source, served map[string][]object.Value, parameters string) error {
	path, err := c.pathOf(s.value, served)
	if err != nil {
		return err
	}
	_, err = c.send(http.MethodPost, path[:strings.LastIndexByte(path, '/')]+"?fieldManager=plinth"+parameters,
		object.AppendObject(nil, s.value), http.Header{"Content-Type": {"application/json"}})
	return err
}

var unknownField = regexp.MustCompile(`unknown field "([^"]+)"`)

// title is the kind and the name of the object.
func (s *source) title() string {
	return strings.TrimSpace(s.value.At("kind").Str() + " " + s.value.At("metadata", "name").Str())
}

// refusals are the reasons in an error, each with its place.
func (s *source) refusals(err error) (all []refusal) {
	name := s.title()
	add := func(field, reason, message string) {
		all = append(all, refusal{File: s.file, Line: s.lineOf(field), Object: name, Field: field, Reason: reason,
			Message: message})
	}
	var status *statusError
	if !errors.As(err, &status) {
		add("kind", "NotFound", err.Error())
		return all
	}
	reason := status.value.At("reason").Str()
	for _, cause := range status.value.At("details", "causes").Items() {
		if field := cause.At("field").Str(); field != "" && field != "<nil>" {
			add(field, reason, field+": "+cause.At("message").Str())
		}
	}
	for _, m := range unknownField.FindAllStringSubmatch(status.text, -1) {
		add(m[1], reason, "unknown field "+m[1])
	}
	if len(all) == 0 {
		add("", reason, status.text)
	}
	return all
}
