// Command plinth-cloud serves a bucket of an object storage to plinth, which starts it: Amazon S3 and what is
// compatible, Google Cloud Storage, and Azure Blob Storage. It is a program and a module of its own, so that plinth has
// none of the SDKs of the clouds (decision 23); package remote has the protocol between the two.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"plinth/internal/backup/remote"
	"plinth/internal/product"
)

const usage = `plinth-cloud %s serves backups in object storages to plinth, which starts it by itself for URLs
such as s3://bucket/path, gs://bucket/path and azblob://container/path:

  plinth backup s3://bucket/plinth.tar
  plinth serve --backup-url s3://bucket/plinth
`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	release := product.Built().Version
	if len(args) != 1 || strings.HasPrefix(args[0], "-") {
		_, err := fmt.Printf(usage, release)
		return err
	}
	// The output is the connection to plinth, and some of the SDKs print warnings.
	out := os.Stdout
	os.Stdout = os.Stderr
	// A terminal and systemd send these to plinth and to its children. It ends when plinth does, which has something to
	// upload before.
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	return remote.Serve(release, func() (remote.Objects, error) {
		return open(context.Background(), args[0])
	}, os.Stdin, out)
}
