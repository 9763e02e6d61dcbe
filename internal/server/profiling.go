package server

import (
	"errors"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"runtime"
)

// profiles returns the handlers of /debug/pprof.
func profiles() map[string]http.Handler {
	return map[string]http.Handler{
		"/debug/pprof/":        http.HandlerFunc(pprof.Index),
		"/debug/pprof/cmdline": http.HandlerFunc(pprof.Cmdline),
		"/debug/pprof/profile": http.HandlerFunc(pprof.Profile),
		"/debug/pprof/symbol":  http.HandlerFunc(pprof.Symbol),
		"/debug/pprof/trace":   http.HandlerFunc(pprof.Trace),
	}
}

// profile turns on the block profile and serves the profiles on --debug-socket-path, as configured.
func (s *Server) profile() error {
	c := &s.config
	if c.Profiling && c.ContentionProfiling {
		runtime.SetBlockProfileRate(1)
	}
	if c.DebugSocket == "" {
		return nil
	}
	if err := os.Remove(c.DebugSocket); err != nil && !errors.Is(err, os.ErrNotExist) { // as the reference does
		return err
	}
	listener, err := net.Listen("unix", c.DebugSocket)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	for path, handler := range profiles() {
		mux.Handle(path, handler)
	}
	server := &http.Server{Handler: mux}
	s.run(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			c.Logger.Error("serving profiles failed", "error", err)
		}
	})
	s.run(func() {
		<-s.closing.Done()
		server.Close()
	})
	return nil
}
