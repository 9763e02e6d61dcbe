package main

import (
	"bytes"
	"errors"
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fsouza/fake-gcs-server/fakestorage"

	"plinth/internal/backup"
)

// The same with a server that is like Google Cloud Storage.
//
// SPEC: STORE-6
func TestGoogle(t *testing.T) {
	front := httptest.NewUnstartedServer(nil)
	address := front.Listener.Addr().String()
	s, err := fakestorage.NewServerWithOptions(fakestorage.Options{NoListener: true, PublicHost: address,
		ExternalURL: "http://" + address, Writer: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	front.Config.Handler = s.HTTPHandler()
	front.Start()
	t.Cleanup(front.Close)
	s.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: "bucket"})
	t.Setenv("STORAGE_EMULATOR_HOST", address)
	for name, b := range map[string]backup.Bucket{"here": opened(t, "gs://bucket/some/path"),
		"helper": helped(t, "gs://bucket/other")} {
		t.Run(name, func(t *testing.T) { promised(t, b) })
	}
	b := helped(t, "gs://bucket/cut")
	errSource := errors.New("the source has failed")
	for _, size := range []int{0, 1, 5000, partBytes, 2*partBytes + 5} {
		content := io.MultiReader(bytes.NewReader(noise(size)), failing{errSource})
		if err := b.Put(t.Context(), "a", content, false); !errors.Is(err, errSource) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	if items, err := b.List(t.Context(), ""); err != nil || len(items) > 0 {
		t.Errorf("there are %v, %v", items, err)
	}
	if _, err := opened(t, "gs://none").List(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "404") {
		t.Error(err)
	}
}

// URLs that cannot be opened are errors that say why, and none has a credential. Azure Blob Storage has no server that
// could be run here: what is tested of it is that, and no more.
//
// SPEC: STORE-6
func TestURLs(t *testing.T) {
	for _, name := range secrets {
		t.Setenv(name, "")
	}
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", "/none.json")
	t.Setenv("AZURE_STORAGE_ACCOUNT", "")
	for text, want := range map[string]string{
		"ftp://host/path":               "is no URL of a backup: there are file://, and azblob://",
		"s3://bucket?prefix=x":          "there is no parameter prefix",
		"s3://bucket?regio=x":           `unknown query parameter "regio"`,
		"s3://bucket?role=x":            "must be a valid ARN",
		"gs://bucket/path":              "/none.json",
		"azblob://container/path":       "AccountName is required",
		"azblob://container?protocol=x": "AccountName is required",
		"azblob://container?storage_account=a&localemu=true&domain=example.com&protocol=http": "example.com", // a loopback alone
	} {
		if _, err := open(t.Context(), text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, should say %q", text, err, want)
		}
	}
	t.Setenv("AZURE_STORAGE_ACCOUNT", "account")
	t.Setenv("AZURE_STORAGE_SAS_TOKEN", "sv=2030&sig=a-signature%3D")
	t.Setenv("AZURE_STORAGE_DOMAIN", "127.0.0.1:1")
	t.Setenv("AZURE_STORAGE_PROTOCOL", "http")
	t.Setenv("AZURE_STORAGE_IS_LOCAL_EMULATOR", "true")
	b := helped(t, "azblob://container/path")
	_, err := b.List(t.Context(), "")
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") || strings.Contains(err.Error(), "a-signature") {
		t.Error(err)
	}
}

// What could be a credential is not in the text of an error.
//
// SPEC: STORE-6
func TestClean(t *testing.T) {
	t.Setenv("AWS_SECRET_ACCESS_KEY", "abc/def+ghi")
	for text, want := range map[string]string{
		`Put "https://a.blob/x?sv=1&sig=s%3D": refused`:  `Put "https://a.blob/x?…": refused`,
		"dial https://user:pass@host/path: no such host": "dial https://…@host/path: no such host",
		"the key abc/def+ghi is wrong":                   "the key … is wrong",
		"what? nothing":                                  "what? nothing",
	} {
		cause := errors.New(text)
		if err := clean(cause); err.Error() != want || !errors.Is(err, cause) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if clean(nil) != nil {
		t.Error("no error is one")
	}
}
