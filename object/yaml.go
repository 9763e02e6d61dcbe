package object

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	syntax "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

// MaxExpansion bounds the text of a YAML document whose aliases are expanded (WRITE-6); a longer document may be as
// long as it is. It is the limit of a request's body.
const MaxExpansion = 3 << 20

// ErrExpansion says that the aliases of a YAML document expand to more than MaxExpansion.
var ErrExpansion = fmt.Errorf("yaml: aliases expand to more than %d bytes", MaxExpansion)

// errAliasing is what the library says where aliases stand for many nodes.
var errAliasing = errors.New("yaml: document contains excessive aliasing")

// ParseYAML parses one YAML document as Kubernetes does: as YAML 1.1, converted to JSON first. In YAML 1.1, yes and on
// are booleans, and 017 is 15. The text that aliases expand to is bounded by MaxExpansion, the number of nodes by the
// YAML library.
//
// A document with duplicate keys, and no other, is parsed twice. The library has no mode that reports duplicates and
// converts the document: its strict one returns an error in place of the JSON, and would have kept the first of two
// keys, where the last is to be stored. The reference parses every document twice whose fields are to be validated.
// Finding duplicates in the syntax tree of go.yaml.in/yaml/v3 instead would compare keys by the rules of another
// version of YAML, under which `yes` and `true` are different keys.
func ParseYAML(data []byte) (Parsed, error) {
	if err := checkExpansion(data); err != nil {
		return Parsed{}, err
	}
	var duplicates []string
	text, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		duplicates = yamlDuplicates(err)
		if text, err = yaml.YAMLToJSON(data); err != nil {
			return Parsed{}, err
		}
	}
	parsed, err := ParseJSON(text)
	if err != nil {
		return Parsed{}, err
	}
	parsed.Duplicates, parsed.text = duplicates, ""
	return parsed, nil
}

// checkExpansion refuses a document whose aliases expand to more than MaxExpansion.
//
// The library that turns YAML into JSON bounds how many nodes the aliases stand for, but not how long those are:
// 25,000 aliases of one scalar of 100 kB pass there, and take gigabytes. It is too late to count in its result,
// because binary scalars and those with underscores are decoded anew for each alias. So the aliases are followed in
// the syntax tree, which only the library's next version shows, before any is expanded.
func checkExpansion(data []byte) error {
	if bytes.IndexByte(data, '&') < 0 || bytes.IndexByte(data, '*') < 0 {
		return nil // there is no anchor or no alias
	}
	var document syntax.Node
	if err := syntax.Unmarshal(data, &document); err != nil {
		return nil // which the library that reads it says in its own words
	}
	e := expansion{limit: max(MaxExpansion, int64(len(data))), anchored: map[*syntax.Node]extent{}}
	_, err := e.of(&document)
	return err
}

// extent is how long a node is with its aliases expanded, in bytes, and of how many nodes it consists then.
type extent struct{ size, nodes int64 }

// shortNodes is how long nodes are on average, at the most, in a document that is refused for their number.
const shortNodes = 4

// expansion computes the sizes of nodes with their aliases expanded:
//
//	size(scalar) = len(text)    size(alias) = size(its anchor)    size(container) = 1 + Σ size(children)
//
// An anchor is measured once, however many aliases it has: the work is linear in the document, not in the expansion. Of
//
//	a: &a [x, x]        3 bytes
//	b: &b [*a, *a]      7
//	c: [*b, *b]         15, and so on: each line doubles it
//
// the sizes are added up, and nothing is made twice as long. They stay in 64 bits, as the walk ends at the limit.
type expansion struct {
	limit    int64
	aliased  bool                    // an alias was seen: without one a document is as long as it is
	anchored map[*syntax.Node]extent // those of complete nodes with an anchor
}

// of is the extent of a node. The error is that of a document which is too long, or of an anchor within itself.
func (e *expansion) of(n *syntax.Node) (extent, error) {
	if n.Kind == syntax.AliasNode {
		e.aliased = true
		x, complete := e.anchored[n.Alias]
		if !complete { // an anchor stands before its aliases, so this one is inside of it
			return extent{}, fmt.Errorf("yaml: anchor '%s' value contains itself", n.Value)
		}
		return x, nil
	}
	x := extent{size: int64(len(n.Value)), nodes: 1}
	if n.Kind != syntax.ScalarNode {
		x.size++
	}
	for _, child := range n.Content {
		inside, err := e.of(child)
		if err != nil {
			return extent{}, err
		}
		x.size, x.nodes = x.size+inside.size, x.nodes+inside.nodes
		switch {
		case x.size <= e.limit || !e.aliased:
		case x.size <= shortNodes*x.nodes:
			return extent{}, errAliasing
		default:
			return extent{}, ErrExpansion
		}
	}
	if n.Anchor != "" {
		e.anchored[n] = x
	}
	return x, nil
}

// yamlDuplicates takes the lines about keys that are already set out of the YAML library's error.
func yamlDuplicates(err error) []string {
	var found []string
	for line := range strings.Lines(err.Error()) {
		if line = strings.TrimSpace(line); IsYAMLDuplicate(line) && len(found) < maxDuplicates {
			found = append(found, line)
		}
	}
	return found
}

// IsYAMLDuplicate says whether an entry of Parsed.Duplicates is a line of the YAML parser, and not a path.
func IsYAMLDuplicate(entry string) bool { return strings.HasSuffix(entry, "already set in map") }

// YAML turns JSON text, which this package has printed, into YAML with sorted keys.
func YAML(json []byte) ([]byte, error) { return yaml.JSONToYAML(json) }
