package encryption

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"google.golang.org/grpc"
	api "k8s.io/kms/apis/v2"

	"plinth/internal/grpcsocket"
)

// client calls a plugin by gRPC, through a Unix socket. It connects at the first call, and again when the connection is
// lost.
type client struct {
	connection *grpc.ClientConn
	api        api.KeyManagementServiceClient
	timeout    time.Duration // of a call
}

// dial returns a client of the plugin at an endpoint, which was validated. It does not connect yet.
func dial(c *KMS, told *Metrics) (*client, error) {
	connection, err := connect(c, told)
	if err != nil {
		return nil, err
	}
	return &client{connection, api.NewKeyManagementServiceClient(connection), c.Timeout.Duration}, nil
}

func connect(c *KMS, told *Metrics) (*grpc.ClientConn, error) {
	u, err := url.Parse(c.Endpoint)
	if err != nil {
		return nil, err
	}
	socket := u.Path
	if strings.HasPrefix(socket, "/@") { // a name in Linux' abstract namespace
		socket = socket[1:]
	}
	connection, err := grpcsocket.Dial(socket, "a plugin", func(method string, took time.Duration, err error) {
		if told.Called != nil {
			told.Called(c.Name, method, took, err)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("failed to create connection to %s, error: %w", c.Endpoint, err)
	}
	return connection, nil
}

func (c *client) Status(ctx context.Context) (status, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	r, err := c.api.Status(ctx, &api.StatusRequest{})
	if err != nil {
		return status{}, err
	}
	return status{version: r.Version, healthz: r.Healthz, keyID: r.KeyId}, nil
}

func (c *client) Encrypt(ctx context.Context, uid string, plain []byte) (*envelope, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	r, err := c.api.Encrypt(ctx, &api.EncryptRequest{Plaintext: plain, Uid: uid})
	if err != nil {
		return nil, err
	}
	return &envelope{keyID: r.KeyId, source: r.Ciphertext, annotations: r.Annotations}, nil
}

func (c *client) Decrypt(ctx context.Context, uid string, e *envelope) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	r, err := c.api.Decrypt(ctx, &api.DecryptRequest{Ciphertext: e.source, Uid: uid, KeyId: e.keyID,
		Annotations: e.annotations})
	if err != nil {
		return nil, err
	}
	return r.Plaintext, nil
}
