package encryption

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/configfile"
)

// Configuration is an EncryptionConfiguration of apiserver.config.k8s.io/v1. The types below are those of its members.
type Configuration struct {
	Kind       string  `json:"kind"`
	APIVersion string  `json:"apiVersion"`
	Resources  []Group `json:"resources"`
}

// Group is the providers of a group of resources. The first provider encrypts, all of them decrypt.
type Group struct {
	Resources []string   `json:"resources"`
	Providers []Provider `json:"providers"`
}

// Provider is one of the ways to encrypt; one of its members is set. A value of this type is printed in an error of the
// reference, by the names that the members have there.
type Provider struct {
	AESGCM    *Keys     `json:"aesgcm,omitempty"`
	AESCBC    *Keys     `json:"aescbc,omitempty"`
	Secretbox *Keys     `json:"secretbox,omitempty"`
	Identity  *struct{} `json:"identity,omitempty"`
	KMS       *KMS      `json:"kms,omitempty"`
}

// Keys are the keys of a provider. The first one encrypts, all of them decrypt.
type Keys struct {
	Keys []Key `json:"keys"`
}

// Key is a key by its name; Secret is its base64.
type Key struct {
	Name   string `json:"name"`
	Secret string `json:"secret"`
}

// KMS configures a plugin of a key management service.
type KMS struct {
	APIVersion string           `json:"apiVersion"`
	Name       string           `json:"name"`
	CacheSize  *int32           `json:"cachesize,omitempty"` // of v1 only
	Endpoint   string           `json:"endpoint"`            // a URL with the scheme unix
	Timeout    *metav1.Duration `json:"timeout,omitempty"`   // of a call
}

// Hash is the hash of the text of a configuration, as metrics show it.
func Hash(text []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(text)) }

// read reads the text of a configuration.
func read(file string) ([]byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("error reading encryption provider configuration file %q: %w", file, err)
	}
	return text, notEmpty(file, text)
}

func notEmpty(file string, text []byte) error {
	if len(text) == 0 {
		return fmt.Errorf("encryption provider configuration file %q is empty", file)
	}
	return nil
}

// parse parses the text of a file and validates it. Errors have the texts of the reference. reloads says whether the
// configuration may be replaced by another one while the server runs.
func parse(file string, text []byte, reloads bool) (*Configuration, error) {
	c := &Configuration{}
	kind, versions := "EncryptionConfiguration", []string{"apiserver.config.k8s.io/v1"}
	if legacy(text) {
		kind, versions = "EncryptionConfig", []string{"v1"}
	}
	lenient, err := configfile.Decode(text, kind, versions, c)
	if err == nil {
		err = configfile.Strict(lenient)
	}
	if err != nil {
		return nil, fmt.Errorf("error decoding encryption provider configuration file %q: %w", file, err)
	}
	c.setDefaults()
	if err := c.validate(reloads).ToAggregate(); err != nil {
		return nil, err
	}
	return c, nil
}

// legacy says whether a text has the kind and version that configurations had before Kubernetes 1.13.
func legacy(text []byte) bool {
	var head struct{ Kind, APIVersion string }
	_, err := configfile.Decode(text, "EncryptionConfig", []string{"v1"}, &head)
	return err == nil
}

// setDefaults sets what a configuration of a plugin may leave out.
func (c *Configuration) setDefaults() {
	for _, g := range c.Resources {
		for _, p := range g.Providers {
			if p.KMS == nil {
				continue
			}
			if p.KMS.Timeout == nil {
				p.KMS.Timeout = &metav1.Duration{Duration: 3 * time.Second}
			}
			if p.KMS.APIVersion == "" {
				p.KMS.APIVersion = "v1"
			}
			if p.KMS.CacheSize == nil && p.KMS.APIVersion == "v1" {
				p.KMS.CacheSize = new(int32(1000))
			}
		}
	}
}

// validate returns the errors of the reference.
func (c *Configuration) validate(reloads bool) (errs field.ErrorList) {
	root := field.NewPath("resources")
	if len(c.Resources) == 0 {
		return field.ErrorList{required(root)}
	}
	plugins := map[string]bool{}
	for i, g := range c.Resources {
		at := root.Index(i)
		resources, providers := at.Child("resources"), at.Child("providers")
		if len(g.Resources) == 0 {
			errs = append(errs, required(resources))
		}
		errs = append(errs, validateOverlap(g.Resources, resources)...)
		for j, name := range g.Resources {
			if why := badResource(name); why != "" {
				errs = append(errs, field.Invalid(resources.Index(j), name, why))
			}
		}
		if len(g.Providers) == 0 {
			errs = append(errs, required(providers))
		}
		for j := range g.Providers {
			errs = append(errs, g.Providers[j].validate(providers.Index(j), plugins, reloads)...)
		}
	}
	return errs
}

func required(at *field.Path) *field.Error {
	return field.Required(at, fmt.Sprintf("at least one %s is required", at))
}

// groupResource is a resource of a group. "*" stands for all groups or resources.
type groupResource struct{ group, resource string }

// parseResource parses RESOURCE or RESOURCE.GROUP.
func parseResource(text string) groupResource {
	resource, group, _ := strings.Cut(text, ".")
	return groupResource{group, resource}
}

// String is the resource as configurations and metrics have it.
func (r groupResource) String() string {
	if r.group == "" {
		return r.resource
	}
	return r.resource + "." + r.group
}

// everything is the resource that stands for all.
var everything = groupResource{"*", "*"}

// validateOverlap refuses a list of resources in which one is covered by another.
func validateOverlap(names []string, at *field.Path) (errs field.ErrorList) {
	duplicate, overlap := false, false
	for i, name := range names {
		r := parseResource(name)
		for j, other := range names {
			o := parseResource(other)
			switch {
			case i == j:
			case r == o && !duplicate:
				duplicate = true
			case r == everything, r.group == o.group && (r.resource == "*" || o.resource == "*"):
				overlap = true
			}
		}
	}
	if duplicate {
		errs = append(errs, field.Invalid(at, names, "the same resource cannot be specified multiple times"))
	}
	if overlap {
		errs = append(errs, field.Invalid(at, names, "using overlapping resources such as 'secrets' and '*.' in the "+
			"same resource list is not allowed as they will be masked"))
	}
	return errs
}

// badResource returns why a name of a resource is refused; "": it is not.
func badResource(name string) string {
	switch r := parseResource(name); {
	case strings.ToLower(name) != name:
		return "resource name should not contain capital letters"
	case name == "*":
		return "use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources"
	case slices.Contains([]string{"apiserveripinfo", "serviceipallocations", "servicenodeportallocations"}, name):
		return "resources which do not have REST API/s cannot be encrypted"
	case r.group == "events.k8s.io":
		return "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the config file"
	case r.group == "extensions":
		return "'extensions' group has been removed and cannot be used for encryption"
	case r.group == "*" && r.resource != "*":
		return "encrypting the same resource across groups is not supported"
	}
	return ""
}

// printed is a provider as the reference prints it in an error. Secrets are left out, which the reference prints, too.
type printed struct {
	AESGCM, AESCBC, Secretbox *printedKeys
	Identity                  *struct{}
	KMS                       *printedKMS
}

type printedKeys struct{ Keys []printedKey }

type printedKey struct{ Name, Secret string }

type printedKMS struct {
	APIVersion, Name string
	CacheSize        *int32
	Endpoint         string
	Timeout          *metav1.Duration
}

func (p *Provider) printed() printed {
	keys := func(k *Keys) *printedKeys {
		if k == nil {
			return nil
		}
		list := &printedKeys{}
		for _, key := range k.Keys {
			list.Keys = append(list.Keys, printedKey{key.Name, "REDACTED"})
		}
		return list
	}
	return printed{keys(p.AESGCM), keys(p.AESCBC), keys(p.Secretbox), p.Identity, untagged(p.KMS)}
}

func untagged(k *KMS) *printedKMS {
	if k == nil {
		return nil
	}
	return &printedKMS{k.APIVersion, k.Name, k.CacheSize, k.Endpoint, k.Timeout}
}

// aesKeys and secretboxKeys are the lengths that keys may have.
var (
	aesKeys       = []int{16, 24, 32}
	secretboxKeys = []int{32}
)

// validate validates a provider. plugins has the names of the plugins before it, and gets its own.
func (p *Provider) validate(at *field.Path, plugins map[string]bool, reloads bool) (errs field.ErrorList) {
	set := 0
	for _, holds := range []bool{p.KMS != nil, p.AESGCM != nil, p.AESCBC != nil, p.Secretbox != nil, p.Identity != nil} {
		if holds {
			set++
		}
	}
	switch {
	case set == 0:
		errs = append(errs, field.Invalid(at, p.printed(),
			"provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity"))
	case set > 1:
		errs = append(errs, field.Invalid(at, p.printed(),
			"more than one provider specified in a single element, should split into different list elements"))
	}
	switch {
	case p.KMS != nil:
		errs = append(errs, p.KMS.validate(at.Child("kms"), plugins, reloads)...)
		plugins[p.KMS.Name] = true
	case p.AESGCM != nil:
		errs = append(errs, p.AESGCM.validate(at.Child("aesgcm", "keys"), aesKeys)...)
	case p.AESCBC != nil:
		errs = append(errs, p.AESCBC.validate(at.Child("aescbc", "keys"), aesKeys)...)
	case p.Secretbox != nil:
		errs = append(errs, p.Secretbox.validate(at.Child("secretbox", "keys"), secretboxKeys)...)
	}
	return errs
}

// validate validates keys of which each has one of the lengths.
func (k *Keys) validate(at *field.Path, lengths []int) (errs field.ErrorList) {
	if len(k.Keys) == 0 {
		return field.ErrorList{field.Required(at, "at least one keys is required")}
	}
	for i, key := range k.Keys {
		at := at.Index(i)
		if key.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), "name is a mandatory field for a key"))
		}
		at = at.Child("secret")
		secret, err := base64.StdEncoding.DecodeString(key.Secret)
		switch {
		case key.Secret == "":
			errs = append(errs, field.Required(at, "secret is a mandatory field for a key"))
		case err != nil:
			errs = append(errs, field.Invalid(at, "REDACTED", "secrets must be base64 encoded"))
		case !slices.Contains(lengths, len(secret)):
			errs = append(errs, field.Invalid(at, "REDACTED",
				fmt.Sprintf("secret is not of the expected length, got %d, expected one of %v", len(secret), lengths)))
		}
	}
	return errs
}

// validate validates the configuration of a plugin.
func (k *KMS) validate(at *field.Path, plugins map[string]bool, reloads bool) (errs field.ErrorList) {
	bad := func(child string, value any, format string, args ...any) {
		errs = append(errs, field.Invalid(at.Child(child), value, fmt.Sprintf(format, args...)))
	}
	v1 := k.APIVersion == "v1"
	if k.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), "name is a mandatory field for a provider"))
	}
	if !v1 && strings.Contains(k.Name, ":") {
		bad("name", k.Name, "invalid KMS provider name %s, must not contain ':'", k.Name)
	}
	if (reloads || !v1) && plugins[k.Name] {
		bad("name", k.Name, "duplicate KMS provider name %s, names must be unique", k.Name)
	}
	if k.Timeout.Duration <= 0 {
		bad("timeout", k.Timeout, "timeout should be a positive value")
	}
	switch u, err := url.Parse(k.Endpoint); {
	case k.Endpoint == "":
		bad("endpoint", "", "endpoint is a mandatory field for a kms")
	case err != nil:
		bad("endpoint", k.Endpoint, "invalid endpoint for kms provider, error: %v", err)
	case u.Scheme != "unix":
		bad("endpoint", k.Endpoint, "unsupported scheme %q for KMS provider, only unix is supported", u.Scheme)
	}
	if !v1 && k.CacheSize != nil {
		bad("cachesize", *k.CacheSize, "cachesize is not supported in v2")
	}
	if v1 && *k.CacheSize == 0 {
		bad("cachesize", *k.CacheSize, "cachesize should be a positive value, or negative to disable")
	}
	if !v1 && k.APIVersion != "v2" {
		bad("apiVersion", k.APIVersion, "unsupported apiVersion apiVersion for KMS provider, only v1 and v2 are supported")
	}
	return errs
}
