// Package grpcsocket calls programs of the same machine that listen at Unix sockets and speak gRPC: the plugins of key
// management services (package encryption), and the external signer of tokens (package externaljwt).
package grpcsocket

import (
	"context"
	"errors"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"plinth/internal/execution"
)

// Called is told of each call: the full name of the method, how long it took, and its error.
type Called func(method string, took time.Duration, err error)

// Dial returns a connection to the program at a socket: a path, or a name with @ in Linux' abstract namespace. It
// connects at the first call, and again when the connection is lost. A call waits for the program until its context
// ends, without the place of its request. who is what is called, for assertions; called may be nil.
func Dial(socket, who string, called Called) (*grpc.ClientConn, error) {
	// The target is no name to be resolved, whatever the path is; the dialer has the path.
	return grpc.NewClient("passthrough:///localhost",
		grpc.WithAuthority("localhost"),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
		// A program that was started is to be noticed soon; gRPC's default is a pause of up to two minutes.
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
				execution.AssertOutside(ctx, who)
				err = invoke(ctx, method, req, reply, cc, opts...)
			})
			if called != nil {
				called(method, time.Since(begin), err)
			}
			return err
		}),
	)
}

// Code is the name of the gRPC code of an error, for metrics.
func Code(err error) string {
	if err == nil {
		return codes.OK.String()
	}
	var s interface{ GRPCStatus() *status.Status }
	if errors.As(err, &s) {
		return s.GRPCStatus().Code().String()
	}
	return "unknown-non-grpc"
}
