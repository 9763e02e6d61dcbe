package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"plinth/conformance/internal/load"
)

// A bare watch is a process that has etcd send it all changes, and ignores them. What it costs a write is what any
// server costs that follows etcd by a watch, however it is made.

// follow is a bare watch, until standard input ends.
func follow(ctx context.Context, endpoint string) error {
	const window = 4 << 20 // as Plinth's
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialOptions: []grpc.DialOption{
		grpc.WithStaticStreamWindowSize(window), grpc.WithStaticConnWindowSize(window)}})
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	changes := client.Watch(ctx, "/registry/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	first := <-changes
	if err := first.Err(); err != nil {
		return err
	}
	if !first.Created {
		return errors.New("there is no watch")
	}
	fmt.Println("watching")
	go func() {
		io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	for answer := range changes {
		if err := answer.Err(); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// startFollower starts a process with a bare watch of an etcd, and waits until it watches. It ends when this one does.
func startFollower(endpoint string) (*exec.Cmd, error) {
	cmd, _, out, err := load.Copy("-follow", endpoint)
	if err != nil {
		return nil, err
	}
	_, err = bufio.NewReader(out).ReadString('\n')
	return cmd, err
}
