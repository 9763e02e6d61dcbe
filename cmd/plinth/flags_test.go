package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

var rewrite = flag.Bool("rewrite", false, "write docs/flags.md")

const flagsPage = "../../docs/flags.md"

const flagsIntro = `# Flags

This page is generated from the tables in ` + "`cmd/plinth`" + ` (` + "`make generate`" + `).

` + "`plinth serve`" + ` accepts every flag of kube-apiserver 1.37, so that a command line for one also starts the other. A flag has one of these statuses:

| | |
|---|---|
| works | it has the documented effect |
| no effect | it is accepted; the log says once that it has no effect, and why |
| error | it asks for a feature that Plinth does not have yet and that protects something; the server does not start |
| Plinth only | kube-apiserver does not have it |

A flag that is not listed is an error. A default is the reference's unless the table says otherwise.
`

// docs/flags.md equals the page that the tables generate.
//
// SPEC: RUN-1
func TestFlagsPage(t *testing.T) {
	var page bytes.Buffer
	page.WriteString(flagsIntro + "\n## plinth serve, kube-apiserver\n")
	serveFlags(defaults("plinth serve")).page(&page)
	testServerPage(&page)
	page.WriteString("\n## etcd\n\nThe stub of etcd ([envtest.md](envtest.md)) takes the flags of etcd 3.7.\n")
	stubFlags(stubDefaults()).page(&page)
	if *rewrite {
		if err := os.WriteFile(flagsPage, page.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(flagsPage)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, page.Bytes()) {
		t.Error("docs/flags.md is not what the tables say; make generate writes it")
	}
}

// testServerPage writes the flags of a test server: its own, the names of the others, and the defaults that it changes.
func testServerPage(page *bytes.Buffer) {
	page.WriteString("\n## plinth test-server\n\nThe server for tests in other languages " +
		"([testing-other-languages.md](testing-other-languages.md)) has flags of its own:\n")
	table{ownTestFlags(testDefaults())}.page(page)
	var names, changed []string
	others := set("", serveFlags(defaults("plinth serve"))...)
	set("", testServerFlags(testDefaults())...).VisitAll(func(f *pflag.Flag) {
		if slices.Contains(ofServe, f.Name) {
			names = append(names, "`--"+f.Name+"`")
			if now, of := f.DefValue, others.Lookup(f.Name).DefValue; now != of {
				changed = append(changed, fmt.Sprintf("| `--%s` | `%s` | `%s` |", f.Name, now, of))
			}
		}
	})
	fmt.Fprintf(page, "\nIt has these flags of `plinth serve`, too: %s. Some have another default:\n\n"+
		"| flag | default here | default of `plinth serve` |\n|---|---|---|\n%s\n", strings.Join(names, ", "),
		strings.Join(changed, "\n"))
}

// samples are values that are not the default, for flags that do not accept the sample of their type.
var samples = map[string]string{
	"storage-backend": "etcd3", "storage-media-type": "application/json", "audit-log-format": "legacy",
	"audit-log-mode":     "batch",
	"audit-webhook-mode": "blocking", "log-level": "error", "logging-format": "json", "endpoint-reconciler-type": "none",
	"storage":    "memory",
	"log-format": "console", "logger": "zap", "tls-min-version TLS1.2": "TLS1.3", "tls-max-version": "TLS1.2",
}

// sample is a value of a flag that is not its default.
func sample(f *pflag.Flag) string {
	for _, key := range []string{f.Name, f.Name + " " + f.DefValue} {
		if s := samples[key]; s != "" {
			return s
		}
	}
	switch f.Value.Type() {
	case "bool":
		return map[string]string{"true": "false", "false": "true"}[f.DefValue]
	case "int", "int32", "int64", "Level":
		return "7"
	case "float64":
		return "0.5"
	case "duration":
		return "7m"
	case "int32Slice":
		return "29"
	case "ip":
		return "192.0.2.1"
	case "portRange":
		return "1-2"
	case "mapStringString", "stringToString":
		return "a/b=true"
	case "version":
		return "raw"
	}
	return "some"
}

// A flag that works changes the settings. An ignored one does not, and is returned with its reason. A refused one is an
// error that names the flag and the feature, unless it has its default value.
//
// SPEC: RUN-1, RUN-2
func TestStatuses(t *testing.T) {
	for program, make := range map[string]func() (any, table){
		kubeAPIServer: func() (any, table) { s := defaults("plinth serve"); return s, serveFlags(s) },
		etcd:          func() (any, table) { s := stubDefaults(); return s, stubFlags(s) },
		testProgram:   func() (any, table) { s := testDefaults(); return s, testServerFlags(s) },
	} {
		count := map[status]int{}
		_, rows := make()
		for _, section := range rows {
			for _, r := range section.rows {
				if r.name == configFlag {
					count[r.status]++ // TestConfigFile
					continue
				}
				before, _ := make()
				after, all := make()
				value := sample(set("", section).Lookup(r.name))
				_, nothing, err := all.parse(program, []string{"--" + r.name + "=" + value})
				changed := !reflect.DeepEqual(before, after)
				count[r.status]++
				switch r.status {
				case works, plinthOnly:
					if err != nil || !changed || nothing != nil {
						t.Errorf("%s --%s=%s: changed %v, %v, %v", program, r.name, value, changed, nothing, err)
					}
				case ignored:
					if want := []any{"--" + r.name, r.says}; err != nil || changed || !slices.Equal(nothing, want) || r.says == "" {
						t.Errorf("%s --%s=%s: changed %v, %v, %v", program, r.name, value, changed, nothing, err)
					}
				case refused:
					if err == nil || !strings.Contains(err.Error(), "--"+r.name) || !strings.Contains(err.Error(), r.says) ||
						r.says == "" {
						t.Errorf("%s --%s=%s: %v", program, r.name, value, err)
					}
					_, all := make()
					f := set("", section).Lookup(r.name)
					if _, _, err := all.parse(program, []string{"--" + r.name + "=" + strings.Trim(f.DefValue, "[]")}); err != nil {
						t.Errorf("%s --%s with its default: %v", program, r.name, err)
					}
				}
			}
		}
		if program == kubeAPIServer && (count[works] < 140 || count[ignored] < 15 || count[refused] < 1 ||
			count[plinthOnly] != 23) ||
			program == etcd && count[works]+count[ignored]+count[refused] < 100 ||
			program == testProgram && count[works]+count[plinthOnly] != len(ofServe)+4 {
			t.Errorf("%s has %v", program, count)
		}
	}
}

// SPEC: RUN-1
func TestParse(t *testing.T) {
	for line, want := range map[string]string{
		"--colour=red":      "unknown flag: --colour",
		"--insecure-port=0": "unknown flag: --insecure-port",
		"here":              "takes no arguments",
		"--egress-selector-config-file=/x --cert_dir=": "--egress-selector-config-file asks for a proxy for outgoing connections, which is not there yet",
		"--watch-cache=maybe":                          `--watch-cache: "maybe" is neither true nor false`,
		"--service-node-port-range=x":                  "no range of ports",
		"--peer-advertise-ip=here":                     "no IP address",
	} {
		var out strings.Builder
		if _, err := configure(kubeAPIServer, strings.Fields(line), &out); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
	s, err := configure(kubeAPIServer, []string{"--tls_cert_file", "a", "--tls-private-key-file=b", "-v=5",
		"--feature-gates=A=true", "--feature-gates", "B=false"}, nil)
	if err != nil || s.TLSCertFile != "a" || s.TLSKeyFile != "b" || s.verbosity != "5" ||
		fmt.Sprint(s.FeatureGates) != "[A=true B=false]" {
		t.Errorf("got %+v, %v", s, err)
	}
	var log strings.Builder
	s.logger(&log).Debug("seen")
	s.verbosity, s.logFormat = "3", "json"
	s.logger(&log).Debug("unseen")
	s.logger(&log).Info("json")
	if text := log.String(); !strings.Contains(text, "msg=seen") || strings.Contains(text, "unseen") ||
		!strings.Contains(text, `"msg":"json"`) {
		t.Errorf("the log has\n%s", text)
	}
	if got := twoDashes([]string{"-data-dir", "x", "--name", "-v", "-"}); fmt.Sprint(got) != "[--data-dir x --name -v -]" {
		t.Errorf("two dashes: %v", got)
	}
}

// envtest searches the help for flags that newer releases no longer have, and must not find them.
//
// SPEC: RUN-2
func TestHelpAndVersion(t *testing.T) {
	for program, want := range map[string]string{kubeAPIServer: "\n      --etcd-servers ",
		etcd: "\n      --unsafe-no-fsync "} {
		var help, version strings.Builder
		if err := run(program, []string{"--help"}, &help); err != nil || !strings.Contains(help.String(), want) ||
			strings.Contains(help.String(), "--insecure-port") {
			t.Errorf("%s --help: %v\n%s", program, err, help.String())
		}
		if err := run(program, []string{"--version"}, &version); err != nil ||
			!strings.Contains(strings.ToLower(version.String()), "version") &&
				!strings.HasPrefix(version.String(), "Kubernetes v1.37.") {
			t.Errorf("%s --version: %v\n%s", program, err, version.String())
		}
	}
}
