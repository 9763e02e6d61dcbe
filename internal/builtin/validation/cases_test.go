package validation_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"plinth/internal/builtin/validation"
	"plinth/internal/builtin/validation/validationtest"
	"plinth/object"
)

// refusals are the errors of a case.
func refusals(served validationtest.Served, c *validationtest.Case, documents map[string]map[string]any) ([]string,
	error) {
	request, err := served.Request(c, documents)
	if err != nil {
		return nil, err
	}
	errs, err := request.Refuse()
	return validationtest.Lines(errs), err
}

// SPEC: VAL-1, VAL-4
func TestTables(t *testing.T) {
	documents, err := validationtest.Documents("testdata")
	if err != nil {
		t.Fatal(err)
	}
	tables, err := validationtest.Read("testdata")
	if err != nil {
		t.Fatal(err)
	}
	served := validationtest.NewServed()
	for _, table := range tables {
		t.Run(table.Name, func(t *testing.T) {
			for _, c := range table.Cases {
				got, err := refusals(served, c, documents)
				if err != nil {
					t.Fatalf("line %d: %v", c.Line, err)
				}
				if !slices.Equal(got, c.Want) {
					t.Errorf("line %d: %s\nhave %s\nwant %s", c.Line, c, strings.Join(got, "\n     "),
						strings.Join(c.Want, "\n     "))
				}
			}
		})
	}
}

// Every document that the tables start from is valid; otherwise an error in a case could not be attributed to its
// changes.
func TestDocumentsAreValid(t *testing.T) {
	documents, err := validationtest.Documents("testdata")
	if err != nil {
		t.Fatal(err)
	}
	served := validationtest.NewServed()
	for name, doc := range documents {
		for _, verb := range []string{"create", "update", "status"} {
			if verb == "status" && doc["status"] == nil {
				continue
			}
			c := &validationtest.Case{Verb: verb, Object: name}
			if errs, err := refusals(served, c, documents); err != nil || len(errs) > 0 {
				t.Errorf("%s %s: %q, %v", verb, name, errs, err)
			}
		}
	}
}

// Rules without a clock accept certificates that were not issued now.
func TestCertificateWithoutClock(t *testing.T) {
	documents, err := validationtest.Documents("testdata")
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(documents["PodCertificateRequest/issued"])
	if err != nil {
		t.Fatal(err)
	}
	issued, err := object.ParseJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(now func() time.Time) []string {
		rules := validation.PodCertificateRequest.Rules(validation.Options{Now: now})
		return validationtest.Errors(rules.Status(issued.Value, issued.Value.Without("status")), false)
	}
	if errs := refused(nil); len(errs) > 0 {
		t.Error(errs)
	}
	if errs := refused(time.Now); !slices.Equal(errs, []string{"FieldValueInvalid status.notBefore"}) {
		t.Error(errs)
	}
}

// The tables are in the form in which they are written: two cases that were merged into one another are not.
func TestTablesAreFormatted(t *testing.T) {
	tables, err := validationtest.Read("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		file := filepath.Join("testdata", table.Name+".txt")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if formatted := table.Format(); !bytes.Equal(text, formatted) {
			have, want := strings.Split(string(text), "\n"), strings.Split(string(formatted), "\n")
			i := 0
			for i < min(len(have), len(want)) && have[i] == want[i] {
				i++
			}
			t.Errorf("%s:%d: %q should be %q", file, i+1, have[i], want[i])
		}
	}
}
