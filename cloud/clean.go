package main

import (
	"os"
	"regexp"
	"strings"
)

// secrets are the environment variables with credentials that the SDKs read.
var secrets = []string{"AWS_SECRET_ACCESS_KEY", "AWS_SECRET_KEY", "AWS_SESSION_TOKEN", "AZURE_STORAGE_KEY",
	"AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGEBLOB_CONNECTIONSTRING",
	"AZURE_CLIENT_SECRET", "AZURE_CLIENT_CERTIFICATE_PASSWORD", "AZURE_PASSWORD"}

// In an error, what follows the path of a URL may be a signature that is as good as a key, and what precedes the host a
// password.
var (
	query    = regexp.MustCompile(`(://[^\s?"]*)\?[^\s"]*`)
	userInfo = regexp.MustCompile(`://[^\s/?"@]*@`)
)

// cleaned is an error whose text has no credentials.
type cleaned struct {
	error
	text string
}

func (c *cleaned) Error() string { return c.text }
func (c *cleaned) Unwrap() error { return c.error }

// clean removes credentials from the text of an error; nil stays nil.
func clean(err error) error {
	if err == nil {
		return nil
	}
	text := userInfo.ReplaceAllString(query.ReplaceAllString(err.Error(), "$1?…"), "://…@")
	for _, name := range secrets {
		if value := os.Getenv(name); len(value) >= 4 { // or half of the text would go
			text = strings.ReplaceAll(text, value, "…")
		}
	}
	return &cleaned{err, text}
}
