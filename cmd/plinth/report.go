package main

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"plinth/internal/product"
)

// reports print a verdict, by the name of the form.
var reports = map[string]func(out io.Writer, v *verdict) error{
	"text": reportText, "json": reportJSON, "junit": reportJUnit, "sarif": reportSARIF,
}

func reportText(out io.Writer, v *verdict) error {
	for _, r := range v.refusals {
		if _, err := fmt.Fprintf(out, "%s:%d: %s\n", r.File, r.Line, r.text()); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(out, "objects: %d, refused: %d, reasons: %d\n", len(v.sources), v.refused(), len(v.refusals))
	return err
}

func (r *refusal) text() string {
	if r.Object == "" {
		return r.Message
	}
	return r.Object + ": " + r.Message
}

// refused counts the objects that are.
func (v *verdict) refused() int {
	all := map[string]bool{}
	for _, r := range v.refusals {
		if r.Object != "" {
			all[r.File+"\x00"+r.Object] = true
		}
	}
	return len(all)
}

func reportJSON(out io.Writer, v *verdict) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(struct {
		Objects  int       `json:"objects"`
		Refused  int       `json:"refused"`
		Refusals []refusal `json:"refusals"`
	}{len(v.sources), v.refused(), append([]refusal{}, v.refusals...)})
}

// reportJUnit prints a test case for each object, and one for each document that is none.
func reportJUnit(out io.Writer, v *verdict) error {
	type failure struct {
		Type    string `xml:"type,attr"`
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
	type testCase struct {
		Name     string    `xml:"name,attr"`
		Class    string    `xml:"classname,attr"`
		Failures []failure `xml:"failure"`
	}
	type suite struct {
		XMLName  xml.Name   `xml:"testsuite"`
		Name     string     `xml:"name,attr"`
		Tests    int        `xml:"tests,attr"`
		Failures int        `xml:"failures,attr"`
		Cases    []testCase `xml:"testcase"`
	}
	s := suite{Name: "plinth validate"}
	index := map[string]int{}
	enter := func(file, name string) *testCase {
		key := file + "\x00" + name
		if _, known := index[key]; !known {
			index[key] = len(s.Cases)
			s.Cases = append(s.Cases, testCase{Name: name, Class: file})
		}
		return &s.Cases[index[key]]
	}
	for _, o := range v.sources {
		enter(o.file, o.title())
	}
	for _, r := range v.refusals {
		name := r.Object
		if name == "" {
			name = fmt.Sprint("line ", r.Line)
		}
		c := enter(r.File, name)
		if len(c.Failures) == 0 {
			s.Failures++
		}
		c.Failures = append(c.Failures, failure{r.Reason, r.Message, fmt.Sprintf("%s:%d: %s", r.File, r.Line, r.text())})
	}
	s.Tests = len(s.Cases)
	if _, err := io.WriteString(out, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(out)
	encoder.Indent("", "  ")
	if err := encoder.Encode(s); err != nil {
		return err
	}
	_, err := io.WriteString(out, "\n")
	return err
}

// reportSARIF prints the format of static analysis results, version 2.1.0, which code hosts show beside the lines.
func reportSARIF(out io.Writer, v *verdict) error {
	type m = map[string]any
	var rules []string
	results := []m{}
	for _, r := range v.refusals {
		if !slices.Contains(rules, r.Reason) {
			rules = append(rules, r.Reason)
		}
		results = append(results, m{"ruleId": r.Reason, "level": "error", "message": m{"text": r.text()},
			"locations": []m{{"physicalLocation": m{"artifactLocation": m{"uri": filepath.ToSlash(r.File)},
				"region": m{"startLine": r.Line}}}}})
	}
	described := []m{}
	for _, id := range rules {
		described = append(described, m{"id": id,
			"shortDescription": m{"text": "the API server refuses the object: " + id}})
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(m{"version": "2.1.0", "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
		"runs": []m{{"tool": m{"driver": m{"name": "plinth validate", "version": product.Built().Version,
			"rules": described}}, "results": results}}})
}
