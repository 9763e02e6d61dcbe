package collection

import (
	"fmt"
	"slices"
	"strings"

	"plinth/conformance/internal/records"
)

// kind is a type whose objects cases create.
type kind struct {
	// path is the part of the URL before the resource, and resource the one after the namespace
	apiVersion, kind, path string
	resource               string
	cluster                bool
	body                   string // the members of an object besides its metadata
}

// kinds are built-in and custom, in namespaces and not, and with each of the defaults of propagation.
var kinds = map[string]kind{
	"configmap": {apiVersion: "v1", kind: "ConfigMap", path: "/api/v1", resource: "configmaps"},
	"secret":    {apiVersion: "v1", kind: "Secret", path: "/api/v1", resource: "secrets"},
	"pod": {apiVersion: "v1", kind: "Pod", path: "/api/v1", resource: "pods",
		body: `"spec":{"containers":[{"name":"c","image":"i"}]}`},
	"controller": {apiVersion: "v1", kind: "ReplicationController", path: "/api/v1", resource: "replicationcontrollers",
		body: `"spec":{"replicas":0,"selector":{"a":"b"},` + template},
	"replicaset": {apiVersion: "apps/v1", kind: "ReplicaSet", path: "/apis/apps/v1", resource: "replicasets",
		body: `"spec":{"replicas":0,"selector":{"matchLabels":{"a":"b"}},` + template},
	"job": {apiVersion: "batch/v1", kind: "Job", path: "/apis/batch/v1", resource: "jobs",
		body: `"spec":{"suspend":true,"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}`},
	"clusterrole": {apiVersion: "rbac.authorization.k8s.io/v1", kind: "ClusterRole",
		path: "/apis/rbac.authorization.k8s.io/v1", resource: "clusterroles", cluster: true},
	"link": {apiVersion: group + "/v1", kind: "Link", path: "/apis/" + group + "/v1", resource: "links"},
	"hub": {apiVersion: group + "/v1", kind: "Hub", path: "/apis/" + group + "/v1", resource: "hubs",
		cluster: true},
}

const (
	group    = "collection.example.com"
	template = `"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}`
)

// reference is an entry of ownerReferences.
type reference struct {
	to    string // the name of an object
	block bool
	wrong string // the wrong part: name, uid, kind or group; "" for none
}

func (r reference) String() string {
	text := r.to
	if r.block {
		text += "!"
	}
	if r.wrong != "" {
		text += "/" + r.wrong
	}
	return text
}

func parseReference(text string) (r reference, err error) {
	r.to, r.wrong, _ = strings.Cut(text, "/")
	r.to, r.block = strings.CutSuffix(r.to, "!")
	if r.to == "" || !slices.Contains([]string{"", "name", "uid", "kind", "group"}, r.wrong) {
		return r, fmt.Errorf("%q is no reference", text)
	}
	return r, nil
}

// step is one line of a case.
type step struct {
	verb       string // create, own, delete, empty (delete namespace), release, wait
	name       string
	kind       string
	namespace  string // "" for cluster-scoped objects
	owners     []reference
	finalizers []string
	policy     string // background, foreground or orphan; "" for the default
	silent     bool   // for a wait: results are not recorded
}

func (s step) String() string {
	switch s.verb {
	case "create":
		text := "create " + s.name + " " + s.kind
		if s.namespace != "" {
			text += " in " + s.namespace
		}
		if len(s.owners) > 0 {
			text += " owned by " + join(s.owners)
		}
		if len(s.finalizers) > 0 {
			text += " held by " + strings.Join(s.finalizers, " ")
		}
		return text
	case "own":
		return "own " + s.name + " by " + join(s.owners)
	case "delete":
		return strings.TrimSpace("delete " + s.name + " " + s.policy)
	case "empty":
		return "delete namespace " + s.namespace
	}
	return strings.TrimSpace(s.verb + " " + s.name)
}

func join(references []reference) string {
	var texts []string
	for _, r := range references {
		texts = append(texts, r.String())
	}
	return strings.Join(texts, " ")
}

func parseStep(line string) (s step, err error) {
	words := strings.Fields(line)
	bad := fmt.Errorf("%q is no step", line)
	argument := func(i int) string {
		if i < len(words) {
			return words[i]
		}
		return ""
	}
	s = step{verb: argument(0), name: argument(1)}
	switch {
	case s.verb == "create" && len(words) >= 3:
		s.kind = words[2]
		k, known := kinds[s.kind]
		if !known {
			return s, fmt.Errorf("%s: there is no kind %q", line, s.kind)
		}
		in := ""
		for _, word := range words[3:] {
			switch {
			case word == "in" || word == "by":
			case word == "owned" || word == "held":
				in = word
			case in == "held":
				s.finalizers = append(s.finalizers, word)
			case in == "owned":
				r, err := parseReference(word)
				if err != nil {
					return s, err
				}
				s.owners = append(s.owners, r)
			default:
				s.namespace = word
			}
		}
		if k.cluster != (s.namespace == "") {
			return s, fmt.Errorf("%s: whether it is in a namespace does not go with the kind", line)
		}
	case s.verb == "own" && len(words) >= 4 && words[2] == "by":
		for _, word := range words[3:] {
			r, err := parseReference(word)
			if err != nil {
				return s, err
			}
			s.owners = append(s.owners, r)
		}
	case s.verb == "delete" && s.name == "namespace" && len(words) == 3:
		s = step{verb: "empty", namespace: words[2]}
	case s.verb == "delete" && len(words) == 2,
		s.verb == "delete" && len(words) == 3 && slices.Contains([]string{"background", "foreground", "orphan"}, words[2]):
		s.policy = argument(2)
	case s.verb == "release" && len(words) == 2, s.verb == "wait" && len(words) == 1:
	default:
		return s, bad
	}
	return s, nil
}

// graph is a case.
type graph struct {
	title   string
	comment string // lines that begin with #
	differs string // why Plinth's result is known to differ
	either  string // why two results are possible, on both servers
	line    int
	steps   []step
	want    string // the reference's results, at each wait

	differently string // Plinth's results, if differs is set; the second ones, if either is
}

// file holds the cases of one file of testdata.
type file struct {
	name, head string
	graphs     []*graph
}

func parseFile(name, text string) (*file, error) {
	head, graphs, err := records.Parse(name, text, func(s records.Section) (*graph, error) {
		g := &graph{title: s.Title, line: s.Line, want: s.Answer, differently: s.Differently}
		for line := range strings.Lines(s.Step) {
			if strings.HasPrefix(line, "#") {
				g.comment += line
				continue
			}
			if reason, ok := strings.CutPrefix(line, "@differs "); ok {
				g.differs = strings.TrimSpace(reason)
				continue
			}
			if reason, ok := strings.CutPrefix(line, "@either "); ok {
				g.either = strings.TrimSpace(reason)
				continue
			}
			step, err := parseStep(strings.TrimSpace(line))
			if err != nil {
				return nil, err
			}
			g.steps = append(g.steps, step)
		}
		return g, nil
	})
	return &file{name, head, graphs}, err
}

func (f *file) print() []byte {
	return records.Print(f.head, f.graphs, func(g *graph) records.Section {
		section := records.Section{Title: g.title, Step: g.comment, Answer: g.want}
		if g.differs != "" {
			section.Step, section.Differently = g.comment+"@differs "+g.differs+"\n", g.differently
		}
		if g.either != "" {
			section.Step, section.Differently = g.comment+"@either "+g.either+"\n", g.differently
		}
		section.Step += g.text()
		return section
	})
}

func (g *graph) text() string {
	var lines []string
	for _, s := range g.steps {
		lines = append(lines, s.String())
	}
	return strings.Join(lines, "\n")
}

// phase holds the steps up to a wait.
type phase struct {
	steps  []step
	silent bool
}

// phases returns the steps between waits. The last wait may be left out.
func (g *graph) phases() (phases []phase) {
	var steps []step
	for _, s := range g.steps {
		if s.verb == "wait" {
			phases, steps = append(phases, phase{steps, s.silent}), nil
			continue
		}
		steps = append(steps, s)
	}
	if len(steps) > 0 {
		phases = append(phases, phase{steps: steps})
	}
	return phases
}

// slowly returns the same case with a wait after each step, for a server with slow controllers.
func (g *graph) slowly() *graph {
	slow := *g
	slow.steps = nil
	for i, s := range g.steps {
		slow.steps = append(slow.steps, s)
		if s.verb != "wait" && i+1 < len(g.steps) && g.steps[i+1].verb != "wait" {
			slow.steps = append(slow.steps, step{verb: "wait", silent: true})
		}
	}
	return &slow
}
