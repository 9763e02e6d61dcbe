package server

import (
	"context"

	"plinth/internal/features"
	"plinth/internal/metrics"
	"plinth/internal/peerproxy"
	"plinth/internal/webhook"
)

// openPeerProxy makes what forwards requests to other servers on the same etcd. As in the reference they are forwarded
// with --peer-ca-file alone. A server that has its objects for itself forwards none.
func (s *Server) openPeerProxy() error {
	c := &s.config
	if c.PeerCAFile == "" || c.storageKind() != inEtcd || !s.features.On(features.UnknownVersionInteroperabilityProxy) {
		return nil
	}
	counts := metrics.NewPeers()
	s.peerProxy = peerproxy.New(peerproxy.Config{
		Certificate: s.certificates.front.client, Logger: c.Logger, Metrics: counts.Hooks(),
		AddressOf: func(ctx context.Context, identity string) (string, error) { return s.peers.AddressOf(ctx, identity) },
	})
	s.counts.peers = counts
	return s.files.Use("--peer-ca-file", []string{c.PeerCAFile}, func(texts [][]byte) error {
		pool, err := webhook.CABundle(texts[0])
		if err == nil {
			s.peerProxy.Trust(pool)
		}
		return err
	})
}

// validatePeers refuses what the reference refuses. The certificate that a server makes itself, for aggregated servers,
// is none that other servers believe.
func (c *Config) validatePeers(refuse func(format string, args ...any)) {
	set, _, err := c.features()
	if err != nil {
		return // this is another error
	}
	if !set.On(features.UnknownVersionInteroperabilityProxy) {
		for _, flag := range []struct{ name, value string }{{"--peer-ca-file", c.PeerCAFile},
			{"--peer-advertise-ip", c.PeerAdvertiseIP}, {"--peer-advertise-port", c.PeerAdvertisePort}} {
			if flag.value != "" {
				refuse("%s requires UnknownVersionInteroperabilityProxy feature to be turned on", flag.name)
			}
		}
		return
	}
	if c.PeerCAFile != "" && c.Aggregation.ClientCertFile == "" {
		refuse("--peer-ca-file: needs --proxy-client-cert-file, by which other servers know this one")
	}
}
