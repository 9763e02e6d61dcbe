//go:build clockoffset

package main

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// clock returns the clock of the server, which tests may step while it runs: it is off by the duration in the file that
// PLINTH_CLOCK_OFFSET names. Without the variable it is that of the system. No release has this.
func clock() (func() time.Time, error) {
	name := os.Getenv("PLINTH_CLOCK_OFFSET")
	if name == "" {
		return nil, nil
	}
	var offset atomic.Int64
	step := func() error {
		text, err := os.ReadFile(name)
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil {
			return err
		}
		by, err := time.ParseDuration(strings.TrimSpace(string(text)))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		offset.Store(int64(by))
		return nil
	}
	if err := step(); err != nil {
		return nil, err
	}
	go func() {
		for {
			time.Sleep(50 * time.Millisecond)
			_ = step() // a file that is just being written says nothing yet
		}
	}()
	return func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }, nil
}
