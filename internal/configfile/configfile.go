// Package configfile reads the configuration files that kube-apiserver takes, such as an AuthorizationConfiguration, as
// it reads them: [Decode] takes YAML or JSON, tells versions apart and names what is unknown; [Watch] notices that a
// file has changed.
package configfile

import (
	"bytes"
	"context"
	stdjson "encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Decode reads a configuration of one kind in one of some versions ("audit.k8s.io/v1") into a struct with JSON tags.
// What a lenient reader would pass over, unknown members and duplicate ones, is returned as lenient: it is for the
// caller to refuse it (see [Strict]) or to warn of it. Errors have the words of the reference.
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
		//lint:ignore ST1005 the reference's words
		return nil, fmt.Errorf("Object 'Kind' is missing in '%s'", text)
	case head.APIVersion == "":
		//lint:ignore ST1005 the reference's words
		return nil, fmt.Errorf("Object 'apiVersion' is missing in '%s'", text)
	case head.Kind != kind || !slices.Contains(versions, head.APIVersion):
		return nil, fmt.Errorf("no kind %q is registered for version %q", head.Kind, head.APIVersion)
	}
	unknown, err := json.UnmarshalStrict(converted, into)
	if err != nil {
		return nil, err
	}
	return append(lenient, unknown...), nil
}

// Head says what a configuration, or another object of an API, is.
type Head struct{ APIVersion, Kind string }

// HeadOf reads the head of an object in JSON. Unlike elsewhere, the case of its members does not count.
func HeadOf(text []byte) (Head, error) {
	var head struct { // as errors show it
		APIVersion string `json:"apiVersion,omitempty"`
		Kind       string `json:"kind,omitempty"`
	}
	if err := stdjson.Unmarshal(text, &head); err != nil {
		return Head{}, fmt.Errorf("couldn't get version/kind; json parse error: %w", err)
	}
	return Head(head), nil
}

// Strict is the error of what Decode found that a lenient reader would pass over; nil where it found nothing.
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

// Interval is how often [Watch] looks at a file.
const Interval = time.Second

// Watch looks at a file at an interval until ctx ends, and calls changed whenever its content is another than the last
// one, or when it cannot be read for another reason than before. It reads the whole file each time: files that are
// mounted from a ConfigMap are symbolic links whose target is exchanged, which a watch of the file itself does not see.
func Watch(ctx context.Context, file string, last []byte, interval time.Duration,
	changed func(text []byte, err error)) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	var failure string
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		text, err := os.ReadFile(file)
		if err != nil {
			if err.Error() != failure {
				failure = err.Error()
				changed(nil, err)
			}
			continue
		}
		failure = ""
		if !bytes.Equal(text, last) {
			last = text
			changed(text, nil)
		}
	}
}
