package object

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/util/yaml"
)

// Documents parses the objects of a text in YAML or JSON, as manifests are written: there may be several documents,
// those of comments alone are left out, and the items of a list stand for the list. It is an error if a document is
// no object, has a key twice, or lacks apiVersion or kind.
func Documents(text []byte) ([]Value, error) {
	var all []Value
	split := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for n := 1; ; n++ {
		document, err := split.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err == nil {
			all, err = appendDocument(all, document)
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
	}
}

func appendDocument(all []Value, document []byte) ([]Value, error) {
	parsed, err := parseDocument(document)
	switch {
	case err != nil:
		return nil, err
	case len(parsed.Duplicates) > 0:
		return nil, errors.New(parsed.Duplicates[0])
	case parsed.Value.IsNull(): // comments
		return all, nil
	}
	return appendObjects(all, parsed.Value)
}

// parseDocument parses a document as JSON, which is much faster and matters for long manifests, or else as YAML.
func parseDocument(document []byte) (Parsed, error) {
	if bytes.HasPrefix(bytes.TrimSpace(document), []byte("{")) { // so do flow mappings of YAML
		if parsed, err := ParseJSON(document); err == nil {
			return parsed, nil
		}
	}
	return ParseYAML(document)
}

// appendObjects adds an object, or the items of a list.
func appendObjects(all []Value, v Value) ([]Value, error) {
	kind := v.At("kind").Str()
	if v.At("apiVersion").Str() == "" || kind == "" {
		return nil, errors.New("no object: apiVersion or kind is missing")
	}
	items, list := v.Get("items")
	if !list || !strings.HasSuffix(kind, "List") {
		return append(all, v), nil
	}
	for _, item := range items.Items() {
		var err error
		if all, err = appendObjects(all, item); err != nil {
			return nil, err
		}
	}
	return all, nil
}
