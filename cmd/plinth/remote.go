package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"plinth/object"
)

// remote is a client of the server that a kubeconfig names.
type remote struct {
	url, token, namespace string
	client                *http.Client
}

// kubeconfig is what a kubeconfig has, with the folder to which the names of files in it are relative.
type kubeconfig struct {
	file  string
	value object.Value
}

// readKubeconfigs reads those files of a list that there are: kubectl leaves out the others, too.
func readKubeconfigs(files []string) ([]kubeconfig, error) {
	var all []kubeconfig
	for _, file := range files {
		config, err := readObject(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, kubeconfig{file, config})
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("there is no kubeconfig at %s; --kubeconfig names one", strings.Join(files, ", "))
	}
	return all, nil
}

// currentContext is the current context of kubeconfigs, which count as one: of two entries of one name the first one
// counts.
type currentContext struct {
	files   []string
	name    string
	context object.Value
	// cluster and user are what the context names, each with the file that has it.
	cluster, user item
}

// item is an entry of a list in a kubeconfig.
type item struct {
	name, file string
	value      object.Value
}

func readCurrentContext(files []string) (*currentContext, error) {
	all, err := readKubeconfigs(files)
	if err != nil {
		return nil, err
	}
	c := &currentContext{files: files}
	for _, k := range all {
		c.name = cmp.Or(c.name, k.value.At("current-context").Str())
	}
	c.context = named(all, "contexts", "context", c.name).value
	c.cluster = named(all, "clusters", "cluster", c.context.At("cluster").Str())
	c.user = named(all, "users", "user", c.context.At("user").Str())
	if c.cluster.value.At("server").Str() == "" {
		return nil, fmt.Errorf("%s: the current context, %q, names no server; kubectl config use-context sets another one", strings.Join(files, ", "),
			c.name)
	}
	return c, nil
}

// connect creates a client for the current context of kubeconfigs. Only certificates and tokens are supported; users
// with an exec plugin can pipe the object into `plinth owners -f -`.
func connect(files []string) (*remote, error) {
	current, err := readCurrentContext(files)
	if err != nil {
		return nil, err
	}
	return current.connect()
}

func (current *currentContext) connect() (*remote, error) {
	cluster, user := current.cluster.value, current.user.value
	c := &remote{url: strings.TrimSuffix(cluster.At("server").Str(), "/"), token: user.At("token").Str(),
		namespace: cmp.Or(current.context.At("namespace").Str(), "default")}
	security := &tls.Config{InsecureSkipVerify: cluster.At("insecure-skip-tls-verify").Bool(),
		ServerName: cluster.At("tls-server-name").Str()}
	authority, err := content(cluster, current.cluster.file, "certificate-authority")
	if err != nil {
		return nil, err
	}
	if authority != nil {
		security.RootCAs = x509.NewCertPool()
		if !security.RootCAs.AppendCertsFromPEM(authority) {
			return nil, fmt.Errorf("%s: the certificate authority is no PEM", current.cluster.file)
		}
	}
	certificate, err := content(user, current.user.file, "client-certificate")
	if err != nil {
		return nil, err
	}
	key, err := content(user, current.user.file, "client-key")
	if err != nil {
		return nil, err
	}
	if certificate != nil {
		pair, err := tls.X509KeyPair(certificate, key)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", current.user.file, err)
		}
		security.Certificates = []tls.Certificate{pair}
	}
	c.client = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{TLSClientConfig: security,
		Proxy: http.ProxyFromEnvironment}}
	return c, nil
}

// named finds the entry of a list by its name.
func named(all []kubeconfig, list, member, name string) item {
	for _, k := range all {
		for _, entry := range k.value.At(list).Items() {
			if entry.At("name").Str() == name {
				return item{name, k.file, entry.At(member)}
			}
		}
	}
	return item{name: name}
}

// content returns the member NAME-data of a kubeconfig's entry, decoded, else the content of the file in its member
// NAME, which is relative to the kubeconfig.
func content(v object.Value, kubeconfig, name string) ([]byte, error) {
	if text := v.At(name + "-data").Str(); text != "" {
		return base64.StdEncoding.DecodeString(text)
	}
	if file := v.At(name).Str(); file != "" {
		if !filepath.IsAbs(file) {
			file = filepath.Join(filepath.Dir(kubeconfig), file)
		}
		return os.ReadFile(file)
	}
	return nil, nil
}

// get sends a GET request.
func (c *remote) get(path string, accept ...string) ([]byte, error) {
	return c.send(http.MethodGet, path, nil, http.Header{"Accept": accept})
}

// statusError is an error in the words of a server, with its Status.
type statusError struct {
	text  string
	value object.Value
}

func (e *statusError) Error() string { return e.text }

// codeError is the answer of a server that is an error, without a Status.
type codeError struct {
	path, status string
	code         int
}

func (e *codeError) Error() string { return e.path + ": " + e.status }

// send sends a request and returns the body of the response. If the status is none of success it returns the message in
// the response as an error.
func (c *remote) send(method, path string, body []byte, header http.Header) ([]byte, error) {
	response, err := c.open(context.Background(), c.client, method, path, body, header)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	return io.ReadAll(response.Body)
}

// open sends a request and returns the response, of which the caller closes the body. Errors are as with send.
func (c *remote) open(ctx context.Context, client *http.Client, method, path string, body []byte, header http.Header) (
	*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header = header
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := client.Do(request)
	if err != nil || response.StatusCode/100 == 2 {
		return response, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if parsed, err := object.ParseJSON(text); err == nil && parsed.Value.At("message").Str() != "" {
		return nil, &statusError{parsed.Value.At("message").Str(), parsed.Value}
	}
	return nil, &codeError{path, response.Status, response.StatusCode}
}

// discovery is the media type of aggregated discovery.
const discovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// splitName splits the name of an object, as for kubectl: deployments/web, deploy/web, deployments.apps/web.
func splitName(name string) (kind, base string, err error) {
	kind, base, ok := strings.Cut(name, "/")
	if !ok || kind == "" || base == "" {
		return "", "", fmt.Errorf("%q is no TYPE/NAME, such as deploy/web or ns/default", name)
	}
	return kind, base, nil
}

// find returns the path of an object.
func (c *remote) find(kind, base, namespace string) (string, error) {
	if namespace == "" {
		namespace = c.namespace
	}
	for _, root := range []string{"/api", "/apis"} {
		path, err := c.findIn(root, kind, namespace)
		if path != "" || err != nil {
			return path + "/" + url.PathEscape(base), err
		}
	}
	return "", fmt.Errorf("the server at %s has no resource type %q%skubectl api-resources lists them", c.url, kind,
		didYouMean(kind, c.types(), ""))
}

func (c *remote) findIn(root, kind, namespace string) (string, error) {
	text, err := c.get(root, discovery)
	if err != nil {
		return "", err
	}
	parsed, err := object.ParseJSON(text)
	if err != nil {
		return "", err
	}
	plural, group, _ := strings.Cut(kind, ".")
	for _, g := range parsed.Value.At("items").Items() {
		if group != "" && g.At("metadata", "name").Str() != group {
			continue
		}
		for _, version := range g.At("versions").Items() {
			for _, r := range version.At("resources").Items() {
				if !isCalled(r, plural) {
					continue
				}
				path := root
				if group := g.At("metadata", "name").Str(); group != "" {
					path += "/" + group
				}
				path += "/" + version.At("version").Str()
				if r.At("scope").Str() == "Namespaced" {
					path += "/namespaces/" + url.PathEscape(namespace)
				}
				return path + "/" + r.At("resource").Str(), nil
			}
		}
	}
	return "", nil
}

// isCalled says whether a type has this name: its plural, singular or short name, or its kind.
func isCalled(r object.Value, name string) bool {
	name = strings.ToLower(name)
	if r.At("resource").Str() == name || r.At("singularResource").Str() == name ||
		strings.ToLower(r.At("responseKind", "kind").Str()) == name {
		return true
	}
	return slices.ContainsFunc(r.At("shortNames").Items(), func(short object.Value) bool { return short.Str() == name })
}
