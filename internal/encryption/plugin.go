package encryption

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	grpcstatus "google.golang.org/grpc/status"
	api "k8s.io/kms/apis/v2"

	"plinth/internal/execution"
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
	// The target is no name to be resolved, whatever the path is; the dialer has the path.
	connection, err := grpc.NewClient("passthrough:///localhost",
		grpc.WithAuthority("localhost"),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
		// A plugin that was started is to be noticed soon; gRPC's default is a pause of up to two minutes.
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second, Backoff: backoff.Config{
			BaseDelay: 50 * time.Millisecond, Multiplier: 2, Jitter: 0.2, MaxDelay: 500 * time.Millisecond}}),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		}),
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
			invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			begin := time.Now()
			var err error
			execution.Outside(ctx, func() {
				execution.AssertOutside(ctx, "a plugin")
				err = invoke(ctx, method, req, reply, cc, opts...)
			})
			if told.Called != nil {
				told.Called(c.Name, method, time.Since(begin), err)
			}
			return err
		}),
	)
	if err != nil {
		return nil, fmt.Errorf("failed to create connection to %s, error: %w", c.Endpoint, err)
	}
	return connection, nil
}

// Code is the name of the gRPC code of an error, for metrics.
func Code(err error) string {
	if err == nil {
		return codes.OK.String()
	}
	var s interface{ GRPCStatus() *grpcstatus.Status }
	if errors.As(err, &s) {
		return s.GRPCStatus().Code().String()
	}
	return "unknown-non-grpc"
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
