package objectmeta_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/objectmeta"
	"plinth/object"
)

// cases are changes to valid metadata: a member and its value, as JSON.
func cases() map[string][]string {
	long := func(n int) string { return `"` + strings.Repeat("a", n) + `"` }
	owner := func(members string) string {
		return `{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u"` + members + `}`
	}
	return map[string][]string{
		"name":         {`"web"`, `""`, `"a/b"`, `"50%"`, `"."`, `".."`, `"Web"`, long(300)},
		"generateName": {`"web-"`, `"a/"`, `"%"`, `".."`},
		"namespace":    {`"default"`, `""`, `"a.b"`, `"Default"`, long(64)},
		"uid":          {`"u"`, `"other"`, `""`},
		"generation":   {`0`, `3`, `2`, `-1`},
		"labels": {`{}`, `{"a":"b","example.com/a":"B_.-c"}`, `{"a b":"c"}`, `{"a":"b c"}`, `{"":""}`, `{"/a":""}`,
			`{"a/b/c":""}`, `{"Example.com/a":""}`,
			`{` + long(64) + `:""}`, `{"a":` + long(64) + `}`, `{"a":"-"}`},
		"annotations": {`{"a":"anything goes"}`, `{"A/b":""}`, `{"a b":""}`, `{"":"x"}`, `{"a":` + long(256<<10) + `}`,
			`{"a":` + long(256<<10-1) + `}`},
		"ownerReferences": {`[` + owner("") + `]`,
			`[{}]`,
			`[` + owner(`,"controller":true`) + `,` + owner(`,"controller":true,"blockOwnerDeletion":false`) + `]`,
			`[` + owner(`,"controller":true`) + `,` + owner(`,"controller":false`) + `]`,
			`[{"apiVersion":"v1","kind":"Event","name":"e","uid":"u"}]`,
			`[{"apiVersion":"events.k8s.io/v1","kind":"Event","name":"e","uid":"u"}]`,
			`[{"apiVersion":"a/b/c","kind":"K","name":"e","uid":"u"}]`,
			`[{"apiVersion":"a/","kind":"K","name":"e","uid":"u"}]`,
			`[{"apiVersion":"/v1","kind":"Event","name":"e","uid":"u"}]`},
		"finalizers": {`["example.com/a"]`,
			`["a b"]`,
			`[""]`,
			`["orphan"]`,
			`["orphan","foregroundDeletion"]`,
			`["kept","new","new","also"]`,
			`["kept"]`},
		"managedFields": {`[{"manager":"m","operation":"Update","fieldsType":"FieldsV1"}]`,
			`[{"manager":"m"}]`,
			`[{"operation":"Merge"}]`,
			`[{"operation":"Apply","fieldsType":"FieldsV2"}]`,
			`[{"operation":"Apply","manager":` + long(129) + `}]`,
			`[{"operation":"Apply","manager":"a\u0007b"}]`,
			`[{"operation":"Apply","subresource":` + long(257) + `}]`},
		"creationTimestamp":          {`"2024-01-02T03:04:06Z"`, `null`},
		"deletionTimestamp":          {`"2024-01-02T03:04:05Z"`, `null`},
		"deletionGracePeriodSeconds": {`1`, `30`, `null`},
	}
}

const valid = `{"name":"web","namespace":"default","uid":"u","generation":3,"creationTimestamp":"2024-01-02T03:04:05Z","finalizers":["kept"]}`

// both returns valid metadata with some members set, as the Go type of the reference and as a value.
func both(t *testing.T, members ...string) (metav1.ObjectMeta, object.Value) {
	t.Helper()
	doc := map[string]json.RawMessage{}
	if err := json.Unmarshal([]byte(valid), &doc); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(members); i += 2 {
		doc[members[i]] = json.RawMessage(members[i+1])
	}
	text, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := object.ParseJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	var meta metav1.ObjectMeta
	if err := json.Unmarshal(text, &meta); err != nil {
		t.Fatal(err)
	}
	return meta, parsed.Value
}

func texts(errors field.ErrorList) []string {
	all := []string{}
	for _, e := range errors {
		all = append(all, fmt.Sprint(e.Type, " ", e.Error()))
	}
	return all
}

// The errors are, text by text, those of apimachinery: on create for each case, on update for each case that replaces
// each other value of the member, both in an object that is being deleted and in one that is not.
//
// SPEC: VAL-1
func TestMetadataAsUpstream(t *testing.T) {
	root := field.NewPath("metadata")
	created, updated := 0, 0
	for member, values := range cases() {
		for _, value := range values {
			for _, namespaced := range []bool{true, false} {
				theirs, ours := both(t, member, value)
				want := texts(apivalidation.ValidateObjectMeta(&theirs, namespaced, apivalidation.NameIsDNSSubdomain, root))
				if got := texts(objectmeta.ObjectMeta(ours, namespaced, apivalidation.NameIsDNSSubdomain, root)); !slices.Equal(got,
					want) {
					t.Errorf("create %s=%.80s namespaced=%v:\n got %.300q\nwant %.300q", member, value, namespaced, got, want)
				}
				created += len(want)
			}
			for _, was := range values {
				for _, deleted := range []string{"null", `"2024-01-02T03:04:05Z"`} {
					oldTheirs, oldOurs := both(t, "deletionTimestamp", deleted, member, was)
					theirs, ours := both(t, "deletionTimestamp", deleted, member, value)
					theirs.ResourceVersion = "1"
					// On update the server calls several functions, and an error that two of them find is reported
					// twice.
					want := texts(append(apivalidation.ValidateFinalizers(theirs.Finalizers, root.Child("finalizers")),
						apivalidation.ValidateObjectMetaUpdate(&theirs, &oldTheirs, root)...))
					if got := texts(objectmeta.ObjectMetaUpdate(ours, oldOurs, root)); !slices.Equal(got, want) &&
						member != "generateName" {
						t.Errorf("update %s=%.80s of %.80s:\n got %.300q\nwant %.300q", member, value, was, got, want)
					}
					updated += len(want)
				}
			}
		}
	}
	if created < 80 || updated < 300 {
		t.Errorf("upstream found only %d and %d errors", created, updated)
	}
}

// Names of a kind without rules for names must still be valid in a URL. On update this is the only check of
// generateName.
func TestNamesAsPathSegments(t *testing.T) {
	root := field.NewPath("metadata")
	for _, value := range append(cases()["name"], cases()["generateName"]...) {
		meta, ours := both(t, "name", value)
		want := []string{}
		for _, text := range path.IsValidPathSegmentName(meta.Name) {
			want = append(want, texts(field.ErrorList{field.Invalid(root.Child("name"), meta.Name, text)})...)
		}
		if got := texts(objectmeta.ObjectMeta(ours, true, nil, root)); meta.Name != "" && !slices.Equal(got, want) {
			t.Errorf("name %.80s:\n got %.300q\nwant %.300q", value, got, want)
		}
		meta, ours = both(t, "generateName", value)
		want = want[:0]
		for _, text := range path.IsValidPathSegmentPrefix(meta.GenerateName) {
			want = append(want, texts(field.ErrorList{field.Invalid(root.Child("generateName"), meta.GenerateName, text)})...)
		}
		if got := texts(objectmeta.ObjectMetaUpdate(ours, ours, root)); !slices.Equal(got, want) {
			t.Errorf("generateName %.80s:\n got %.300q\nwant %.300q", value, got, want)
		}
	}
}

// Errors of embedded metadata that are equal are returned once. Many errors about one list are compared in time that is
// linear in their number.
//
// SPEC: VAL-1
func TestEmbedded(t *testing.T) {
	text := object.StringOf
	labels := object.Fields("a", text("-"), "b", text("-"), "c", text("_"))
	errs := objectmeta.Embedded(object.Fields("labels", labels), field.NewPath("metadata"))
	if len(errs) != 2 || errs[0].BadValue != "-" || errs[1].BadValue != "_" {
		t.Errorf("three labels with two wrong values: have %v, want one error for each value", errs)
	}
	references := make([]object.Value, 6000)
	for i := range references {
		references[i] = object.Fields("apiVersion", text("v1"), "kind", text("Pod"), "name", text(fmt.Sprint("p", i)),
			"uid", text(fmt.Sprint(i)), "controller", object.BoolOf(true))
	}
	began := time.Now()
	errs = objectmeta.Embedded(object.Fields("ownerReferences", object.ListOf(references...)), field.NewPath("metadata"))
	if took := time.Since(began); len(errs) != len(references)-1 || took > 4*time.Second {
		t.Errorf("%d owner references that are all controllers: have %d errors after %v, want %d in less than 4 s",
			len(references), len(errs), took, len(references)-1)
	}
}
