package audit

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"gopkg.in/natefinch/lumberjack.v2"
)

// newLog returns the sink that writes a line for each event.
func newLog(o *LogOptions) (*sink, error) {
	out, err := o.open()
	if err != nil {
		return nil, err
	}
	b := &sink{name: "log", encode: (*event).appendLine}
	if o.Format == legacy {
		b.encode = (*event).appendLegacy
	}
	// Writes to a file are not atomic: without the lock, lines of two requests could be mixed.
	var mu sync.Mutex
	b.write = func(_ context.Context, events [][]byte) error {
		mu.Lock()
		defer mu.Unlock()
		for _, line := range events {
			if _, err := out.Write(line); err != nil {
				return err
			}
		}
		return nil
	}
	if o.Path == "-" {
		return b, nil
	}
	b.end = func() error { return out.Close() }
	b.again = func() error {
		next, err := o.open()
		if err != nil {
			return err
		}
		mu.Lock()
		old := out
		out = next
		mu.Unlock()
		return old.Close()
	}
	return b, nil
}

// open opens the log for writing. A file that cannot be written is an error when the server starts, and not later.
func (o *LogOptions) open() (io.WriteCloser, error) {
	if o.Path == "-" {
		return os.Stdout, nil
	}
	if err := os.MkdirAll(filepath.Dir(o.Path), 0o700); err != nil {
		return nil, fmt.Errorf("ensureLogFile: %w", err)
	}
	file, err := os.OpenFile(o.Path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("ensureLogFile: %w", err)
	}
	if o.MaxSize == 0 {
		return file, nil
	}
	if err := file.Close(); err != nil {
		return nil, err
	}
	return &lumberjack.Logger{
		Filename: o.Path, MaxAge: o.MaxAge, MaxBackups: o.MaxBackup, MaxSize: o.MaxSize, Compress: o.Compress,
	}, nil
}
