//go:build !unix

package durable

import "io/fs"

func keepOwner(string, fs.FileInfo) error { return nil }
