package server

import (
	"context"
	"errors"
	"time"

	"plinth/internal/configfile"
	"plinth/internal/kubeconfig"
)

// care looks after what gets old while the server runs, until ctx ends: it reads files again that have changed, renews
// the certificates that the server has made itself, and warns of those that expire. It does so often, by the clock of
// the server: a machine may sleep for a month, and wake up with certificates that expire today.
func (s *Server) care(ctx context.Context) {
	ticker := time.NewTicker(configfile.Interval)
	defer ticker.Stop()
	written := s.entry(s.externalURL())
	failed := ""
	for {
		now := s.clock()
		_, err := s.certificates.renew(now)
		s.files.Look()
		if next := s.entry(s.externalURL()); !next.Equal(written) {
			kept, failure := s.rewrite(ctx, written, next)
			if failure == nil {
				written = next
				s.config.Logger.Info("the administrator's access has changed", "kubeconfig", s.config.WriteKubeconfig,
					"rewritten", kept)
			}
			err = errors.Join(err, failure)
		}
		if err != nil && err.Error() != failed && ctx.Err() == nil {
			s.config.Logger.Error("certificates are not up to date, trying again", "error", err)
		}
		if failed = ""; err != nil {
			failed = err.Error()
		}
		s.certificates.expiry.Warn(s.config.Logger, now)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Reopen opens the files again to which the server writes logs, as another program has moved them away. (Files that it
// reads it reads again by itself.)
func (s *Server) Reopen() error { return s.audit.Reopen() }

// rewrite has the kubeconfig give the access of next, if it still gives that of the entry before. It returns whether it
// does: what another program or a person has made of it is theirs.
func (s *Server) rewrite(ctx context.Context, before, next *kubeconfig.Entry) (bool, error) {
	if s.config.WriteKubeconfig == "" {
		return false, nil
	}
	return kubeconfig.Replace(ctx, s.config.WriteKubeconfig, before, next)
}
