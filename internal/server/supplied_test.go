package server

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// A backup names each file that a flag of the server names, so that whoever restores it knows what to put back.
//
// SPEC: STORE-6
func TestBackupNamesFiles(t *testing.T) {
	others := map[string]string{
		"Etcd.CAFile":   "a server on an etcd has no backup",
		"Etcd.CertFile": "a server on an etcd has no backup",
		"Etcd.KeyFile":  "a server on an etcd has no backup",
	}
	c := Defaults()
	c.DataDir = t.TempDir()
	var named []string
	var fill func(v reflect.Value, path string)
	fill = func(v reflect.Value, path string) {
		for i := range v.NumField() {
			field, at := v.Type().Field(i), v.Field(i)
			if !field.IsExported() {
				continue
			}
			name := strings.TrimPrefix(path+"."+field.Name, ".")
			if field.Anonymous {
				name = path
			}
			isFile := slices.ContainsFunc([]string{"File", "AuthenticationConfig", "AuthorizationConfig", "AdmissionConfig"},
				func(end string) bool { return strings.HasSuffix(field.Name, end) })
			switch {
			case at.Kind() == reflect.Struct:
				fill(at, name)
			case at.Kind() == reflect.String && isFile && others[name] == "":
				at.SetString("/files/" + name)
				named = append(named, at.String())
			}
		}
	}
	fill(reflect.ValueOf(&c).Elem(), "")
	c.ServiceAccounts.KeyFiles = []string{"/files/KeyFiles"}
	d := c.backupDocument()
	seen := map[string]bool{}
	for _, s := range d.Supplied {
		if !strings.HasPrefix(s.File, "/files/") || s.Flag == "" || seen[s.File] {
			t.Errorf("%+v", s)
		}
		seen[s.File] = true
	}
	for _, file := range append(named, c.ServiceAccounts.KeyFiles...) {
		if !seen[file] {
			t.Errorf("%s is a file that the backup does not name", file)
		}
	}
	if len(named) < 20 || len(seen) != len(named)+1 {
		t.Errorf("the settings name %d files, and the backup %d", len(named)+1, len(seen))
	}
}
