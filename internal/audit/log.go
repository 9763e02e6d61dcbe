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
	out, end, err := o.open()
	if err != nil {
		return nil, err
	}
	b := &sink{name: "log", encode: (*event).appendLine, end: end}
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
	return b, nil
}

// open opens the log for writing. A file that cannot be written is an error when the server starts, and not later.
func (o *LogOptions) open() (out io.Writer, end func() error, err error) {
	if o.Path == "-" {
		return os.Stdout, nil, nil
	}
	if err := os.MkdirAll(filepath.Dir(o.Path), 0o700); err != nil {
		return nil, nil, fmt.Errorf("ensureLogFile: %w", err)
	}
	file, err := os.OpenFile(o.Path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("ensureLogFile: %w", err)
	}
	if o.MaxSize == 0 {
		return file, file.Close, nil
	}
	if err := file.Close(); err != nil {
		return nil, nil, err
	}
	rotated := &lumberjack.Logger{
		Filename: o.Path, MaxAge: o.MaxAge, MaxBackups: o.MaxBackup, MaxSize: o.MaxSize, Compress: o.Compress,
	}
	return rotated, rotated.Close, nil
}
