// Package plinth is a module of Testcontainers for Go: a Kubernetes API server in a container, from the image of a
// release. Copy it beside your tests.
//
//	server, err := plinth.Run(ctx, "REGISTRY/plinth:VERSION")
//	testcontainers.CleanupContainer(t, server)
//	config := &rest.Config{Host: server.URL, BearerToken: server.Token,
//		TLSClientConfig: rest.TLSClientConfig{CAData: server.CA, ServerName: "localhost"}}
package plinth

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"
)

const port = "6443/tcp"

// Container is a running server.
type Container struct {
	testcontainers.Container
	URL   string // as this process reaches it
	CA    []byte // the authority of its certificate, which is valid for the name localhost, as PEM
	Token string // a bearer token of an administrator
}

// Run starts a server and waits until it is ready. Options are those of Testcontainers: WithCmdArgs has further flags
// of plinth test-server, and files for --manifests come with WithFiles.
func Run(ctx context.Context, image string, options ...testcontainers.ContainerCustomizer) (*Container, error) {
	all := append([]testcontainers.ContainerCustomizer{
		testcontainers.WithCmd("test-server", "--ready-json", "--bind-address=0.0.0.0", "--secure-port=6443",
			"--external-hostname=localhost"),
		testcontainers.WithExposedPorts(port),
		testcontainers.WithWaitStrategy(wait.ForLog(`{"host":`)),
	}, options...)
	started, err := testcontainers.Run(ctx, image, all...)
	if started == nil {
		return nil, err
	}
	c := &Container{Container: started}
	if err != nil {
		return c, fmt.Errorf("starting %s: %w", image, err)
	}
	if c.URL, err = started.PortEndpoint(ctx, port, "https"); err != nil {
		return c, err
	}
	return c, c.readReadyLine(ctx)
}

// readReadyLine finds the line that the server prints when it is ready.
func (c *Container) readReadyLine(ctx context.Context) error {
	logs, err := c.Logs(ctx)
	if err != nil {
		return err
	}
	defer logs.Close()
	lines := bufio.NewScanner(logs)
	for lines.Scan() {
		line := lines.Bytes()
		at := bytes.Index(line, []byte(`{"host":`))
		if at < 0 {
			continue
		}
		var ready struct{ CA, Token string }
		if err := json.Unmarshal(line[at:], &ready); err != nil {
			return err
		}
		c.CA, c.Token = []byte(ready.CA), ready.Token
		return nil
	}
	return errors.Join(errors.New("the server has printed no ready line"), lines.Err())
}
