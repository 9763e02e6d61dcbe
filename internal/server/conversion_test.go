package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// converter is a conversion webhook behind the service "hook": spec.colour of v1 is spec.paint of v2.
type converter struct {
	*httptest.Server
	bundle string
	sizes  chan int // of the reviews
	lies   atomic.Bool
}

// selfSigned makes a certificate of a server behind a Service, which is its own authority; bundle is that for a
// caBundle.
func selfSigned(t *testing.T, name string) (made tls.Certificate, bundle string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{name}, IsCA: true,
		BasicConstraintsValid: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{cert}, PrivateKey: key},
		base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}))
}

func newConverter(t *testing.T) *converter {
	t.Helper()
	c := &converter{sizes: make(chan int, 100)}
	var serving tls.Certificate
	serving, c.bundle = selfSigned(t, "hook.default.svc")
	c.Server = httptest.NewUnstartedServer(c)
	c.TLS = &tls.Config{Certificates: []tls.Certificate{serving}}
	c.Config.SetKeepAlivesEnabled(false) // a service is looked up for each connection
	c.StartTLS()
	t.Cleanup(c.Close)
	return c
}

func (c *converter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review struct {
		Request struct {
			UID, DesiredAPIVersion string
			Objects                []jsonObject
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.sizes <- len(review.Request.Objects)
	for _, obj := range review.Request.Objects {
		obj["apiVersion"] = review.Request.DesiredAPIVersion
		if spec, ok := obj["spec"].(map[string]any); ok {
			for from, to := range map[string]string{"colour": "paint", "paint": "colour"} {
				if v, ok := spec[from]; ok {
					delete(spec, from)
					spec[to] = v
					break
				}
			}
		}
		if c.lies.Load() {
			obj["metadata"].(map[string]any)["name"] = "liar"
		}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
		"response": map[string]any{
			"uid": review.Request.UID, "convertedObjects": review.Request.Objects, "result": map[string]any{"status": "Success"},
		},
	})
}

// reviews are the sizes of the reviews since the last call.
func (c *converter) reviews() (sizes []int) {
	for {
		select {
		case n := <-c.sizes:
			sizes = append(sizes, n)
		default:
			return sizes
		}
	}
}

// definition is one of paints, in two versions that the webhook converts, with a Scale.
func (c *converter) definition(port int) jsonObject {
	version := func(name, field string, storage bool) map[string]any {
		text, number := map[string]any{"type": "string"}, map[string]any{"type": "integer"}
		return map[string]any{
			"name": name, "served": true, "storage": storage,
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{
				"spec": map[string]any{"type": "object", "properties": map[string]any{field: text, "size": number}},
			}}},
			"subresources": map[string]any{"scale": map[string]any{"specReplicasPath": ".spec.size",
				"statusReplicasPath": ".status.size"}},
		}
	}
	d := definitionOf("a.example.com", "paints", "Paint")
	spec := d["spec"].(map[string]any)
	spec["versions"] = []any{version("v1", "colour", true), version("v2", "paint", false)}
	spec["conversion"] = map[string]any{"strategy": "Webhook", "webhook": map[string]any{
		"conversionReviewVersions": []any{"v1"},
		"clientConfig": map[string]any{
			"caBundle": c.bundle, "service": map[string]any{"namespace": "default", "name": "hook", "path": "/convert",
				"port": port},
		},
	}}
	return d
}

// Objects are read and written in every version of their definition, by a webhook behind a service, which is called
// once for a list. If it returns wrong objects, the stored version can still be read.
//
// SPEC: EXT-1
func TestConversionByAService(t *testing.T) {
	hook := newConverter(t)
	c, _ := serveDefinitions(t)
	address, err := url.Parse(hook.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(address.Port())
	if err != nil {
		t.Fatal(err)
	}
	c.must(201, "POST", "/api/v1/namespaces/default/services", jsonObject{
		"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "hook"},
		"spec": map[string]any{"type": "ExternalName", "externalName": address.Hostname()},
	})
	c.must(201, "POST", definitions, hook.definition(port))
	const v1, v2 = "/apis/a.example.com/v1/namespaces/default/paints", "/apis/a.example.com/v2/namespaces/default/paints"
	for i := range 3 {
		c.must(201, "POST", v1, jsonObject{
			"apiVersion": "a.example.com/v1", "kind": "Paint", "metadata": map[string]any{"name": fmt.Sprintf("p%d", i)},
			"spec": map[string]any{"colour": "red"},
		})
	}
	if sizes := hook.reviews(); len(sizes) != 0 {
		t.Errorf("reviews of what needs none: %v", sizes)
	}
	list := c.must(200, "GET", v2, nil)
	items, _ := list["items"].([]any)
	if sizes := hook.reviews(); len(items) != 3 || fmt.Sprint(sizes) != "[3]" {
		t.Errorf("%d items with reviews of %v", len(items), sizes)
	}
	made := c.must(201, "POST", v2, jsonObject{"apiVersion": "a.example.com/v2", "kind": "Paint",
		"metadata": map[string]any{"name": "new"}, "spec": map[string]any{"paint": "blue"}})
	if made.text("spec", "paint") != "blue" {
		t.Errorf("made: %v", made)
	}
	if got := c.must(200, "GET", v1+"/new", nil); got.text("spec", "colour") != "blue" {
		t.Errorf("as v1: %v", got)
	}

	hook.reviews()
	hook.lies.Store(true)
	if got := c.must(200, "GET", v2+"/p1", nil); got.text("spec", "paint") != "red" || len(hook.reviews()) != 0 {
		t.Errorf("what was converted before is asked for again, or is %v", got)
	}
	if _, _, err := c.do(t.Context(), "PATCH", v1+"/p1", "application/merge-patch+json",
		jsonObject{"spec": map[string]any{"size": 1}}, 200); err != nil {
		t.Fatal(err)
	}
	failed := c.must(500, "GET", v2+"/p1", nil)
	if message := failed.text("message"); !strings.HasSuffix(message,
		"default/p1: conversion webhook for a.example.com/v1, Kind=Paint returned invalid object: must have the same name: p1 != liar") {
		t.Error(message)
	}
	failed = c.must(500, "POST", v2, jsonObject{"apiVersion": "a.example.com/v2", "kind": "Paint",
		"metadata": map[string]any{"name": "lost"}})
	if message := failed.text(
		"message"); message != "conversion webhook for a.example.com/v2, Kind=Paint returned invalid object: must have the same name: lost != liar" {
		t.Error(message)
	}
	c.must(404, "GET", v1+"/lost", nil)
	c.must(200, "GET", v1+"/p1", nil)
	hook.lies.Store(false)
	c.must(200, "DELETE", "/api/v1/namespaces/default/services/hook", nil)
	failed = c.must(500, "GET", v2+"/p1", nil)
	if message := failed.text("message"); !strings.HasSuffix(message, `service "hook" not found`) {
		t.Error(message)
	}
}

// The Scale of an object that does not set its replicas cannot be read, but can be patched and applied.
//
// SPEC: URI-7, SSA-14, EXT-1
func TestScaleOfACustomObject(t *testing.T) {
	c, _ := serveDefinitions(t)
	definition := newConverter(t).definition(1)
	delete(definition["spec"].(map[string]any), "conversion")
	c.must(201, "POST", definitions, definition)
	const paints = "/apis/a.example.com/v1/namespaces/default/paints"
	c.must(201, "POST", paints, jsonObject{"apiVersion": "a.example.com/v1", "kind": "Paint",
		"metadata": map[string]any{"name": "p"}})
	send := func(mediaType, query string, body jsonObject, code int, want string) jsonObject {
		t.Helper()
		_, got, err := c.do(t.Context(), "PATCH", paints+"/p/scale"+query, mediaType, body, code)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(got.text("message"), want) {
			t.Errorf("have %q, want %q", got.text("message"), want)
		}
		return got
	}
	scale := func(spec map[string]any) jsonObject {
		return jsonObject{"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": map[string]any{"name": "p"},
			"spec": spec}
	}
	const merge, apply = "application/merge-patch+json", "application/apply-patch+yaml"
	const missing, empty = `the spec replicas field ".spec.size" does not exist`,
		`the spec replicas field ".spec.size" cannot be empty`
	if got := c.must(500, "GET", paints+"/p/scale", nil); !strings.HasSuffix(got.text("message"), missing) {
		t.Errorf("have %q", got.text("message"))
	}
	send("application/strategic-merge-patch+json", "", scale(map[string]any{"replicas": 3}), 415,
		"the body of the request was in an unknown format - accepted media types include: application/json-patch+json, "+
			"application/merge-patch+json, application/apply-patch+yaml")
	send(merge, "", jsonObject{"metadata": map[string]any{"labels": map[string]any{"a": "b"}}}, 400, empty)
	send(apply, "?fieldManager=m", scale(map[string]any{}), 400, empty)
	send(apply, "?fieldManager=m", scale(map[string]any{"replicas": 4}), 200, "")
	send(apply, "?fieldManager=n", scale(map[string]any{"replicas": 5}), 409,
		`conflict with "m" with subresource "scale": .spec.replicas`)
	send(merge, "?fieldManager=n", jsonObject{"spec": map[string]any{"replicas": -1}}, 422,
		`.spec.size: Invalid value: -1: should be a non-negative integer`)
	send(merge, "?fieldManager=n", jsonObject{"spec": map[string]any{"replicas": 6}}, 200, "")
	got := c.must(200, "GET", paints+"/p", nil)
	managed, _ := json.Marshal(got.at("metadata", "managedFields"))
	if size, _ := got.at("spec", "size").(float64); size != 6 ||
		!strings.Contains(string(managed),
			`{"f:spec":{"f:size":{}}},"manager":"n","operation":"Update","subresource":"scale"`) {
		t.Errorf("%v, owned: %s", got, managed)
	}
}
