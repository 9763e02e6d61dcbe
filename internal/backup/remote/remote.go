// Package remote is a bucket (backup.Bucket) that another program serves: the helper, plinth-cloud, which has the SDKs
// of the clouds. Both ends of the protocol between them are here: [Bucket] is that of Plinth, [Serve] that of the
// helper.
//
// A helper is started with the URL of the bucket, and speaks over its standard input and output. It first writes a
// line, the greeting:
//
//	plinth-cloud PROTOCOL RELEASE ready
//	plinth-cloud PROTOCOL RELEASE error TEXT
//
// After ready it is a server of HTTP/1.1 with one connection:
//
//	PUT /NAME         writes an object (204); with If-None-Match: * only if there is none of the name (412)
//	GET /NAME         reads an object; the trailer Plinth-Result is "ok", or says why the content is not whole
//	DELETE /NAME      removes an object, if it is there (204)
//	GET /?prefix=…    lists the objects whose names begin with the prefix, as JSON: [{"name": …, "size": …}, …]
//
// An error has the status 404 if there is no such object, and else 500, with its text as the body.
//
// The problem: an object is there as a whole or not at all, and either process may be killed at any time. HTTP says
// where a body ends, so a body that was cut off is an error for whoever reads it:
//
//	an object is made  ⇒  the helper has read its body up to the end that Plinth has written
//	Get has returned io.EOF  ⇒  the helper has read the object to its end, and said so in the trailer
//
// A helper ends when its standard input does, or when the process that has started it has ended. A process that closes
// the connection kills the helper if it does not end by itself within [grace].
//
// Caveats. One process has one connection, so requests at one time are in as many processes. A request whose answer was
// lost may have been carried out, as with any server.
package remote

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Program is the name of the helper.
const Program = "plinth-cloud"

// protocol is the version of the protocol, which both ends have to have.
const protocol = 1

// grace is how long a helper may take to give up what it is doing, such as the parts of an object that it has uploaded.
const grace = 3 * time.Second

const (
	resultTrailer = "Plinth-Result"
	resultOK      = "ok"
)

// Item is an object in a list.
type Item struct {
	Name string `json:"name"`
	Size int64  `json:"size"` // in bytes
}

// Find returns the path of the helper, which is beside the program that runs, or else in a directory of PATH. A
// directory that is relative to the working directory is not looked into: anybody may have put a program there.
func Find() (string, error) {
	own, err := os.Executable()
	if err == nil {
		own, err = filepath.EvalSymlinks(own)
	}
	if err != nil {
		return "", err
	}
	dir := filepath.Dir(own)
	for _, name := range []string{filepath.Join(dir, Program), Program} {
		if path, err := exec.LookPath(name); err == nil && filepath.IsAbs(path) {
			return path, nil
		} else if err != nil && !errors.Is(err, exec.ErrNotFound) && !errors.Is(err, os.ErrNotExist) &&
			!errors.Is(err, exec.ErrDot) {
			return "", fmt.Errorf("%s: %w", name, err)
		}
	}
	return "", fmt.Errorf("object storages need the program %s, which is neither in %s nor in a directory of PATH; "+
		"make cloud builds it, from the sources of the same release", Program, dir)
}
