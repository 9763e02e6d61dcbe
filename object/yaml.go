package object

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	syntax "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

// MaxExpansion bounds the text of a YAML document after the expansion of its aliases (WRITE-6). It is the limit of a
// request's body. A document whose own text is longer is bounded by its own length.
const MaxExpansion = 3 << 20

// ErrExpansion says that the aliases of a YAML document expand to more than MaxExpansion.
var ErrExpansion = fmt.Errorf("yaml: aliases expand to more than %d bytes", MaxExpansion)

// errAliasing is the library's error for aliases that stand for too many nodes.
var errAliasing = errors.New("yaml: document contains excessive aliasing")

// ParseYAML parses one YAML document as Kubernetes does: as YAML 1.1, converted to JSON first. In YAML 1.1, yes and on
// are booleans, and 017 is 15. The text that aliases expand to is bounded by MaxExpansion, the number of nodes by the
// YAML library.
//
// Only a document with duplicate keys is parsed twice. The library has no mode that reports duplicates and also
// converts the document: its strict mode returns an error instead of JSON, and would have kept the first of two equal
// keys, where the last one must be stored. The reference parses every document twice whose fields are to be validated.
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
// The library that converts YAML to JSON bounds how many nodes the aliases stand for, but not their length: it accepts
// 25,000 aliases of one scalar of 100 kB, which take gigabytes. Counting in its result would be too late, because it
// decodes binary scalars and those with underscores again for each alias. So checkExpansion follows the aliases in the
// syntax tree, before any is expanded. Only the library's next version exposes the tree.
func checkExpansion(data []byte) error {
	if bytes.IndexByte(data, '&') < 0 || bytes.IndexByte(data, '*') < 0 {
		return nil // there is no anchor or no alias
	}
	var document syntax.Node
	if err := syntax.Unmarshal(data, &document); err != nil {
		return nil // the library that converts the document reports the error, with the text that clients expect
	}
	e := expansion{limit: max(MaxExpansion, int64(len(data))), anchored: map[*syntax.Node]extent{}}
	_, err := e.of(&document)
	return err
}

// extent is the length in bytes and the number of nodes of a node whose aliases are expanded.
type extent struct{ size, nodes int64 }

// shortNodes is the largest average length of nodes for which a document is refused because of their number.
const shortNodes = 4

// expansion computes the sizes of nodes with their aliases expanded:
//
//	size(scalar) = len(text)    size(alias) = size(its anchor)    size(container) = 1 + Σ size(children)
//
// An anchor is measured once, however many aliases it has: the work is linear in the document, not in the expansion. In
//
//	a: &a [x, x]        3 bytes
//	b: &b [*a, *a]      7
//	c: [*b, *b]         15, and so on: each line doubles it
//
// only the sizes are doubled, and no copy is made. They fit 64 bits, because the walk ends at the limit.
type expansion struct {
	limit    int64
	aliased  bool                    // an alias was seen; without one, the size is that of the document and is not limited
	anchored map[*syntax.Node]extent // those of complete nodes with an anchor
}

// of computes the extent of a node. It fails if the document is too long, or if an anchor contains an alias of itself.
func (e *expansion) of(n *syntax.Node) (extent, error) {
	if n.Kind == syntax.AliasNode {
		e.aliased = true
		x, complete := e.anchored[n.Alias]
		if !complete { // an anchor precedes its aliases, so this alias is inside of it
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

// yamlDuplicates returns the lines about keys that are already set in an error of the YAML library.
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

// YAML converts JSON text, which this package has printed, to YAML with sorted keys.
func YAML(json []byte) ([]byte, error) { return yaml.JSONToYAML(json) }
