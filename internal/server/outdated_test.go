package server

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// certifying makes certificates of one authority for servers on this machine.
type certifying struct {
	t         *testing.T
	key       *ecdsa.PrivateKey
	authority *x509.Certificate
}

func newCertifying(t *testing.T) *certifying {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &certifying{t: t, key: key}
	c.authority = c.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign})
	return c
}

// sign signs a certificate; the first one is the authority's.
func (c *certifying) sign(template *x509.Certificate) *x509.Certificate {
	c.t.Helper()
	template.SerialNumber, template.NotAfter = big.NewInt(1), time.Now().Add(time.Hour)
	by := c.authority
	if by == nil {
		by = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by, c.key.Public(), c.key)
	if err != nil {
		c.t.Fatal(err)
	}
	made, err := x509.ParseCertificate(der)
	if err != nil {
		c.t.Fatal(err)
	}
	return made
}

// bundle is the authority's certificate as members of objects have it.
func (c *certifying) bundle() string {
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.authority.Raw}))
}

// serve starts a server with such a certificate, and returns the URL with the host localhost.
func (c *certifying) serve(template *x509.Certificate, handler http.Handler) string {
	c.t.Helper()
	template.Subject = pkix.Name{CommonName: "localhost"}
	leaf := c.sign(template)
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{leaf.Raw}, PrivateKey: c.key}}}
	server.StartTLS()
	c.t.Cleanup(server.Close)
	return strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
}

// Webhooks of the API and of files, and aggregated API servers, whose certificates have an outdated form are counted
// under the reference's names, and the audit events of the requests that they were called for say so.
//
// SPEC: RUN-3, AUTH-4, EXT-2
func TestOutdatedCertificatesAreReported(t *testing.T) {
	const noSAN, sha1 = "missing-san.invalid-cert.kubernetes.io/", "insecure-sha1.invalid-cert.kubernetes.io/"
	by, dir := newCertifying(t), t.TempDir()
	unnamed := by.serve(&x509.Certificate{}, http.NotFoundHandler())
	signed := by.serve(&x509.Certificate{DNSNames: []string{"localhost"}, SignatureAlgorithm: x509.ECDSAWithSHA1},
		http.NotFoundHandler())
	outdated := by.serve(&x509.Certificate{}, http.HandlerFunc((&backend{}).good))
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	config := quiet(filepath.Join(dir, "data"))
	config.Audit.PolicyFile = file("policy.yaml", "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n")
	config.Audit.Log.Path = filepath.Join(dir, "audit.log")
	config.TokenWebhook.ConfigFile = file("tokens.yaml", fmt.Sprintf(`{"current-context": "c",
		"contexts": [{"name": "c", "context": {"cluster": "c"}}],
		"clusters": [{"name": "c", "cluster": {"server": %q, "certificate-authority-data": %q}}]}`, unnamed, by.bundle()))
	c, s := serveFrom(t, config)

	count := func(of string) (n int) {
		t.Helper()
		lines := metricsOf(t, c.apiClient, "apiserver_"+of+"_total")
		if len(lines) != 1 {
			t.Fatalf("apiserver_%s_total is served as %q", of, lines)
		}
		if _, err := fmt.Sscanf(lines[0], "apiserver_"+of+"_total %d", &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	// grows does something, after which a count is higher, and an audit event for the path has an annotation.
	grows := func(of, path, annotation string, do func()) {
		t.Helper()
		before := count(of)
		do()
		if after := count(of); after <= before {
			t.Errorf("%s: %s was %d and is %d", path, of, before, after)
		}
		within(t, path+" is recorded with "+annotation, func() bool {
			return recorded(t, config.Audit.Log.Path, path, annotation)
		})
	}
	hook := func(kind, name, at string) {
		c.must(201, "POST", "/apis/admissionregistration.k8s.io/v1/"+kind, jsonObject{
			"metadata": map[string]any{"name": name}, "webhooks": []any{map[string]any{
				"name": name + ".example.com", "clientConfig": map[string]any{
					"url": at, "caBundle": by.bundle()}, "failurePolicy": "Ignore", "sideEffects": "None",
				"admissionReviewVersions": []any{"v1"}, "objectSelector": map[string]any{
					"matchLabels": map[string]any{"for": name}},
				"rules": []any{map[string]any{"apiGroups": []any{""}, "apiVersions": []any{"v1"},
					"operations": []any{"CREATE"}, "resources": []any{"configmaps"}}}}}})
	}
	create := func(name string) func() {
		return func() {
			c.must(201, "POST", "/api/v1/namespaces/default/configmaps?fieldManager="+name, jsonObject{
				"metadata": map[string]any{"name": name, "labels": map[string]any{"for": name}}})
		}
	}
	hook("validatingwebhookconfigurations", "unnamed", unnamed)
	grows("webhooks_x509_missing_san", "fieldManager=unnamed", noSAN+"localhost", create("unnamed"))
	hook("mutatingwebhookconfigurations", "signed", signed)
	grows("webhooks_x509_insecure_sha1", "fieldManager=signed", sha1+"localhost", create("signed"))

	anonymous := &http.Client{Transport: &http.Transport{DialContext: dialer(s), DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	grows("webhooks_x509_missing_san", "/selfsubjectreviews", noSAN+"localhost", func() {
		if name := user(t, anonymous, s, http.Header{"Authorization": {"Bearer unknown"}}); name != "" {
			t.Errorf("the user is %s", name)
		}
	})

	address, err := url.Parse(outdated)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(address.Port())
	if err != nil {
		t.Fatal(err)
	}
	service := (&backend{port: port}).service()
	spec := service["spec"].(map[string]any)
	delete(spec, "caBundle")
	spec["insecureSkipTLSVerify"] = true
	c.must(201, "POST", "/api/v1/namespaces/default/services", jsonObject{"metadata": map[string]any{"name": "back"},
		"spec": map[string]any{"type": "ExternalName", "externalName": "127.0.0.1"}})
	c.must(201, "POST", apiServices, service)
	c.available("True Passed")
	grows("kube_aggregator_x509_missing_san", things, noSAN+"127.0.0.1", func() {
		if code, text := c.plain(things); code != 200 {
			t.Errorf("%d %s", code, text)
		}
	})
}

// recorded says whether an audit log has an event whose URI contains a text, with an annotation.
func recorded(t *testing.T, file, uri, annotation string) bool {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var event struct {
			RequestURI  string
			Annotations map[string]string
		}
		if json.Unmarshal(line, &event) == nil && strings.Contains(event.RequestURI, uri) &&
			event.Annotations[annotation] != "" {
			return true
		}
	}
	return false
}
