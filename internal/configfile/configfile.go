// Package configfile reads the configuration files of kube-apiserver, such as an AuthorizationConfiguration, as the
// reference does: [Decode] decodes YAML or JSON and reports unknown fields; [Watch] reports that a file has changed,
// and [Files] are those of which parts of a server are made, and made anew when they change.
package configfile

import (
	"bytes"
	stdjson "encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Decode decodes a configuration of a kind and one of the versions ("audit.k8s.io/v1") into a struct with JSON tags. It
// returns unknown and duplicate fields as lenient: the caller refuses them (see [Strict]) or warns of them. Errors have
// the messages of the reference.
func Decode(text []byte, kind string, versions []string, into any) (lenient []error, err error) {
	converted := text
	if trimmed := bytes.TrimSpace(text); len(trimmed) == 0 || trimmed[0] != '{' { // else it is JSON, and read as such
		if _, err := yaml.YAMLToJSONStrict(text); err != nil {
			lenient = append(lenient, err)
		}
		if converted, err = yaml.YAMLToJSON(text); err != nil {
			return nil, err
		}
	}
	head, err := HeadOf(converted)
	if err != nil {
		return nil, err
	}
	if _, err := schema.ParseGroupVersion(head.APIVersion); err != nil {
		return nil, err
	}
	switch {
	case head.Kind == "":
		return nil, &KindError{fmt.Sprintf("Object 'Kind' is missing in '%s'", text)}
	case head.APIVersion == "":
		return nil, &KindError{fmt.Sprintf("Object 'apiVersion' is missing in '%s'", text)}
	case head.Kind != kind || !slices.Contains(versions, head.APIVersion):
		return nil, &KindError{fmt.Sprintf("no kind %q is registered for version %q", head.Kind, head.APIVersion)}
	}
	unknown, err := json.UnmarshalStrict(converted, into)
	if err != nil {
		return nil, err
	}
	return append(lenient, unknown...), nil
}

// KindError is the error of Decode for a text that does not say its kind and version, or says others.
type KindError struct{ message string }

func (e *KindError) Error() string { return e.message }

// Head has the apiVersion and kind of an object, as metav1.TypeMeta.
type Head struct{ APIVersion, Kind string }

// HeadOf reads the apiVersion and kind of an object in JSON. As in the reference, the case of these two names is
// ignored.
func HeadOf(text []byte) (Head, error) {
	var head struct { // with the names that errors of encoding/json show
		APIVersion string `json:"apiVersion,omitempty"`
		Kind       string `json:"kind,omitempty"`
	}
	if err := stdjson.Unmarshal(text, &head); err != nil {
		return Head{}, fmt.Errorf("couldn't get version/kind; json parse error: %w", err)
	}
	return Head(head), nil
}

// Strict returns the strict decoding error of the reference for the errors that Decode returned as lenient; nil if
// there are none.
func Strict(lenient []error) error {
	if len(lenient) == 0 {
		return nil
	}
	texts := make([]string, len(lenient))
	for i, err := range lenient {
		texts[i] = err.Error()
	}
	return fmt.Errorf("strict decoding error: %s", strings.Join(texts, ", "))
}
