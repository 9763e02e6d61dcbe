package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"plinth/internal/etcdstub"
)

// stubSettings are what the flags of the stub of etcd become.
type stubSettings struct {
	etcdstub.Config
	name               string
	listen, listenHTTP []string
	initialCluster     []string
	certFile, keyFile  string
	trustedCAFile      string
	clientCertAuth     bool
	logLevel           string
	version            string
}

func stubDefaults() *stubSettings {
	return &stubSettings{
		name: "default", listen: []string{"http://localhost:2379"}, initialCluster: []string{"default=http://localhost:2380"},
		logLevel: "info", version: "false",
	}
}

// stub runs the program as etcd.
func stub(args []string, out io.Writer) error {
	s := stubDefaults()
	all := stubFlags(s)
	_, nothing, err := all.parse(etcd, twoDashes(args))
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return all.help(out, etcd)
	case s.version != "false":
		_, err := fmt.Fprintf(out, "etcd Version: %s\nThis is the stub of etcd that goes with plinth.\n", etcdstub.Version)
		return err
	case err != nil:
		return err
	}
	level := slog.LevelInfo
	if err := level.UnmarshalText([]byte(s.logLevel)); err != nil { // panic and fatal are less than an error
		level = slog.LevelError
	}
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	if len(nothing) > 0 {
		logger.Info("flags that mean nothing here are ignored", nothing...)
	}
	if err := s.configure(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	logger.Info("the stub of etcd answers", "urls", strings.Join(s.URLs, ","), "data-dir", s.DataDir)
	return etcdstub.Serve(ctx, s.Config)
}

// twoDashes are the arguments as package pflag takes them: etcd's flags may have one dash.
func twoDashes(args []string) []string {
	all := make([]string, len(args))
	for i, arg := range args {
		if len(arg) > 2 && arg[0] == '-' && arg[1] != '-' {
			arg = "-" + arg
		}
		all[i] = arg
	}
	return all
}

// configure makes the stub's configuration of the flags.
func (s *stubSettings) configure() error {
	if s.DataDir == "" {
		s.DataDir = s.name + ".etcd"
	}
	if len(s.initialCluster) > 1 {
		return errors.New("--initial-cluster asks for a cluster of several members, which is not there")
	}
	s.URLs = append(s.listen, s.listenHTTP...)
	if s.certFile == "" {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(s.certFile, s.keyFile)
	if err != nil {
		return fmt.Errorf("--cert-file: %w", err)
	}
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if !s.clientCertAuth && s.trustedCAFile == "" {
		return nil
	}
	text, err := os.ReadFile(s.trustedCAFile)
	if err != nil {
		return fmt.Errorf("--trusted-ca-file: %w", err)
	}
	s.TLS.ClientAuth, s.TLS.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	if !s.TLS.ClientCAs.AppendCertsFromPEM(text) {
		return fmt.Errorf("--trusted-ca-file: no certificate in %s", s.trustedCAFile)
	}
	return nil
}

// stubFlags are the flags of etcd 3.7, in the sections of its help.
func stubFlags(s *stubSettings) table {
	return table{
		{"Member", memberFlags(s)},
		{"Clustering", clusterFlags(s)},
		{"Security", securityFlags(s)},
		{"Auth", []row{
			{"auth-token", text(new("simple")), ignored, "a stub holds nothing but a folder", ""},
			{"bcrypt-cost", integer(new(10)), ignored, "a stub holds nothing but a folder", ""},
			{"auth-token-ttl", integer(new(300)), ignored, "a stub holds nothing but a folder", ""},
		}},
		{"Profiling, logging and tracing", loggingFlags(s)},
		{"Features", []row{
			{"corrupt-check-time", duration(new(time.Duration)), ignored, "the API server checks its log itself", ""},
			{"compact-hash-check-time", duration(new(time.Minute)), ignored,
				"the API server checks its log itself", ""},
			{"compaction-batch-limit", integer(new(1000)), ignored, "the log compacts itself", ""},
			{"peer-skip-client-san-verification", boolean(new(bool)), ignored, "a stub has no peers", ""},
			{"watch-progress-notify-interval", duration(new(10 * time.Minute)), ignored, "a stub has no watches", ""},
			{"warning-apply-duration", duration(new(100 * time.Millisecond)), ignored, "a stub applies nothing", ""},
			{"bootstrap-defrag-threshold-megabytes", integer(new(int)), ignored, "the log compacts itself", ""},
			{"max-learners", integer(new(1)), ignored, "a stub has no peers", ""},
			{"compaction-sleep-interval", duration(new(time.Duration)), ignored, "the log compacts itself", ""},
			{"downgrade-check-time", duration(new(5 * time.Second)), ignored, "a stub has no peers", ""},
			{"snapshot-catchup-entries", integer(new(5000)), ignored, "a stub has no peers", ""},
		}},
		{"Unsafe", []row{
			{"force-new-cluster", boolean(new(bool)), refused, "a cluster made of a member", ""},
			{"unsafe-no-fsync", boolean(&s.NoSync), works,
				"the API server answers before what it writes is on the disk: a loss of power may cost " +
					"everything", ""},
		}},
		{"Global", []row{{"version", version(&s.version), works, "print the version, and end", ""}}},
	}
}

func memberFlags(s *stubSettings) []row {
	const (
		alone = "a stub has no peers"
		empty = "a stub holds nothing but a folder"
		http  = "a stub speaks no gRPC"
	)
	return []row{
		{"name", text(&s.name), works, "gives --data-dir its default, NAME.etcd", ""},
		{"data-dir", text(&s.DataDir), works, "where the API server keeps everything", ""},
		{"wal-dir", text(new(string)), ignored, empty, ""},
		{"snapshot-count", integer64(new(int64(10000))), ignored, empty, ""},
		{"heartbeat-interval", integer(new(100)), ignored, alone, ""},
		{"election-timeout", integer(new(1000)), ignored, alone, ""},
		{"initial-election-tick-advance", boolean(new(true)), ignored, alone, ""},
		{"listen-peer-urls", list(new([]string{"http://localhost:2380"})), ignored, alone, ""},
		{"listen-client-urls", list(&s.listen), works,
			"where the stub answers: http://HOST:PORT or https://HOST:PORT", ""},
		{"listen-client-http-urls", list(&s.listenHTTP), works, "where it answers, too", ""},
		{"max-snapshots", integer(new(5)), ignored, empty, ""},
		{"max-wals", integer(new(5)), ignored, empty, ""},
		{"memory-mlock", boolean(new(bool)), ignored, empty, ""},
		{"quota-backend-bytes", integer64(new(int64)), ignored, "the disk is the limit", ""},
		{"backend-bbolt-freelist-type", text(new("map")), ignored, empty, ""},
		{"backend-batch-interval", text(new(string)), ignored, empty, ""},
		{"backend-batch-limit", integer(new(int)), ignored, empty, ""},
		{"max-txn-ops", integer(new(128)), ignored, empty, ""},
		{"max-request-bytes", integer(new(1572864)), ignored, empty, ""},
		{"max-concurrent-streams", integer64(new(int64(4294967295))), ignored, http, ""},
		{"grpc-keepalive-min-time", duration(new(5 * time.Second)), ignored, http, ""},
		{"grpc-keepalive-interval", duration(new(2 * time.Hour)), ignored, http, ""},
		{"grpc-keepalive-timeout", duration(new(20 * time.Second)), ignored, http, ""},
		{"socket-reuse-port", boolean(new(bool)), ignored, "a stub listens alone", ""},
		{"socket-reuse-address", boolean(new(bool)), ignored, "a stub listens alone", ""},
		{"enable-grpc-gateway", boolean(new(true)), ignored, http, ""},
		{"raft-read-timeout", duration(new(5 * time.Second)), ignored, alone, ""},
		{"raft-write-timeout", duration(new(5 * time.Second)), ignored, alone, ""},
		{"feature-gates", text(new(string)), ignored, empty, ""},
		{"config-file", text(new(string)), refused, "a configuration file", ""},
	}
}

func clusterFlags(s *stubSettings) []row {
	const (
		alone  = "a stub has no peers"
		find   = "members that find each other"
		within = "there is no discovery"
	)
	return []row{
		{"initial-advertise-peer-urls", list(new([]string{"http://localhost:2380"})), ignored, alone, ""},
		{"initial-cluster", list(&s.initialCluster), works, "more than one member is an error", ""},
		{"initial-cluster-state", text(new("new")), ignored, alone, ""},
		{"initial-cluster-token", text(new("etcd-cluster")), ignored, alone, ""},
		{"advertise-client-urls", list(new([]string{"http://localhost:2379"})), ignored, alone, ""},
		{"discovery", text(new(string)), refused, find, ""},
		{"discovery-token", text(new(string)), refused, find, ""},
		{"discovery-endpoints", list(new([]string)), refused, find, ""},
		{"discovery-dial-timeout", duration(new(2 * time.Second)), ignored, within, ""},
		{"discovery-request-timeout", duration(new(5 * time.Second)), ignored, within, ""},
		{"discovery-keepalive-time", duration(new(2 * time.Second)), ignored, within, ""},
		{"discovery-keepalive-timeout", duration(new(6 * time.Second)), ignored, within, ""},
		{"discovery-insecure-transport", boolean(new(true)), ignored, within, ""},
		{"discovery-insecure-skip-tls-verify", boolean(new(bool)), ignored, within, ""},
		{"discovery-cert", text(new(string)), ignored, within, ""},
		{"discovery-key", text(new(string)), ignored, within, ""},
		{"discovery-cacert", text(new(string)), ignored, within, ""},
		{"discovery-user", text(new(string)), ignored, within, ""},
		{"discovery-password", text(new(string)), ignored, within, ""},
		{"discovery-fallback", text(new("exit")), ignored, within, ""},
		{"discovery-proxy", text(new(string)), ignored, within, ""},
		{"discovery-srv", text(new(string)), refused, find, ""},
		{"discovery-srv-name", text(new(string)), ignored, within, ""},
		{"strict-reconfig-check", boolean(new(true)), ignored, alone, ""},
		{"pre-vote", boolean(new(true)), ignored, alone, ""},
		{"auto-compaction-retention", text(new("0")), ignored, "the log compacts itself", ""},
		{"auto-compaction-mode", text(new("periodic")), ignored, "the log compacts itself", ""},
		{"v2-deprecation", text(new("write-only")), ignored, "there is no v2 store", ""},
	}
}

func securityFlags(s *stubSettings) []row {
	const (
		alone = "a stub has no peers"
		which = "a choice among client certificates"
	)
	return []row{
		{"cert-file", text(&s.certFile), works, "the certificate for https:// client URLs", ""},
		{"key-file", text(&s.keyFile), works, "the private key of --cert-file", ""},
		{"client-cert-auth", boolean(&s.clientCertAuth), works,
			"clients need a certificate that --trusted-ca-file has signed", ""},
		{"client-cert-file", text(new(string)), ignored, alone, ""},
		{"client-key-file", text(new(string)), ignored, alone, ""},
		{"client-crl-file", text(new(string)), refused, which, ""},
		{"client-cert-allowed-hostname", text(new(string)), refused, which, ""},
		{"trusted-ca-file", text(&s.trustedCAFile), works,
			"the authority of the certificates of clients, which they then need", ""},
		{"auto-tls", boolean(new(bool)), refused, "a certificate of its own", ""},
		{"peer-cert-file", text(new(string)), ignored, alone, ""},
		{"peer-key-file", text(new(string)), ignored, alone, ""},
		{"peer-client-cert-auth", boolean(new(bool)), ignored, alone, ""},
		{"peer-client-cert-file", text(new(string)), ignored, alone, ""},
		{"peer-client-key-file", text(new(string)), ignored, alone, ""},
		{"peer-trusted-ca-file", text(new(string)), ignored, alone, ""},
		{"peer-cert-allowed-cn", text(new(string)), ignored, alone, ""},
		{"peer-cert-allowed-hostname", text(new(string)), ignored, alone, ""},
		{"peer-auto-tls", boolean(new(bool)), ignored, alone, ""},
		{"self-signed-cert-validity", integer(new(1)), ignored, alone, ""},
		{"peer-crl-file", text(new(string)), ignored, alone, ""},
		{"cipher-suites", list(new([]string)), refused, "a choice of cipher suites", ""},
		{"cors", text(new("*")), ignored, "there is nothing for web pages", ""},
		{"host-whitelist", text(new("*")), refused, "a choice among hosts", ""},
		{"tls-min-version", oneOf(new("TLS1.2"), "TLS1.2", "TLS1.3"), refused, "a choice of TLS versions", ""},
		{"tls-max-version", oneOf(new(string), "", "TLS1.2", "TLS1.3"), refused, "a choice of TLS versions", ""},
	}
}

func loggingFlags(s *stubSettings) []row {
	const direct = "every message is written to standard error, as text"
	return []row{
		{"enable-pprof", boolean(new(bool)), ignored, "there is nothing to profile", ""},
		{"metrics", text(new("basic")), ignored, "a stub has no metrics", ""},
		{"listen-metrics-urls", list(new([]string)), ignored, "a stub has no metrics", ""},
		{"logger", oneOf(new("zap"), "zap"), ignored, direct, ""},
		{"log-outputs", list(new([]string{"default"})), ignored, direct, ""},
		{"log-level", oneOf(&s.logLevel, "debug", "info", "warn", "error", "panic", "fatal"), works,
			"the least important messages to log", ""},
		{"log-format", oneOf(new("json"), "json", "console"), ignored, direct, ""},
		{"enable-log-rotation", boolean(new(bool)), ignored, direct, ""},
		{"log-rotation-config-json",
			text(new(`{"maxsize": 100, "maxage": 0, "maxbackups": 0, "localtime": false, "compress": false}`)), ignored,
			direct, ""},
		{"warning-unary-request-duration", duration(new(300 * time.Millisecond)), ignored,
			"a stub serves no requests but for health", ""},
		{"enable-distributed-tracing", boolean(new(bool)), ignored, "there are no traces", ""},
		{"distributed-tracing-address", text(new("localhost:4317")), ignored, "there are no traces", ""},
		{"distributed-tracing-service-name", text(new("etcd")), ignored, "there are no traces", ""},
		{"distributed-tracing-instance-id", text(new(string)), ignored, "there are no traces", ""},
		{"distributed-tracing-sampling-rate", integer(new(int)), ignored, "there are no traces", ""},
	}
}
