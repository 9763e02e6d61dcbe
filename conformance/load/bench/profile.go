package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/load"
)

func (b *bench) profiling() bool { return b.profiles != "" && b.kind == harness.Plinth }

func (b *bench) flags() []string {
	if b.profiling() {
		return []string{"--profiling"}
	}
	return nil
}

// profiled runs a measurement, and takes a profile of the server meanwhile if profiles are wanted. If the work ends
// sooner, the rest of the profile is of the idle server.
func (b *bench) profiled(ctx context.Context, key string, measure func() error) error {
	if !b.profiling() {
		return measure()
	}
	taken := make(chan error, 1)
	go func() {
		time.Sleep(500 * time.Millisecond) // the first requests open connections
		profile, err := b.client.Do(ctx, load.Request{Method: http.MethodGet, Path: "/debug/pprof/profile?seconds=2",
			Accept: "*/*"})
		if err == nil {
			err = errors.Join(os.MkdirAll(b.profiles, 0o755),
				os.WriteFile(filepath.Join(b.profiles, key+".pprof"), profile, 0o644))
		}
		taken <- err
	}()
	return errors.Join(measure(), <-taken)
}
