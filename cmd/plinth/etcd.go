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
	"time"

	"github.com/spf13/pflag"

	"plinth/internal/etcdstub"
)

// stubSettings are the settings that the flags of the etcd stub set.
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

// stub runs the etcd stub, the program named etcd.
func stub(args []string, out io.Writer) error {
	s := stubDefaults()
	all := stubFlags(s)
	_, nothing, err := all.parse(etcd, twoDashes(args))
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return all.help(out, etcd)
	case s.version != "false":
		_, err := fmt.Fprintf(out, "etcd Version: %s\nThis is the etcd stub that is part of plinth.\n", etcdstub.Version)
		return err
	case err != nil:
		return err
	}
	level := slog.LevelInfo
	if err := level.UnmarshalText([]byte(s.logLevel)); err != nil { // panic and fatal are not levels of package slog
		level = slog.LevelError
	}
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	if len(nothing) > 0 {
		logger.Info("flags without effect are ignored", nothing...)
	}
	if err := s.configure(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), endSignals()...)
	defer stop()
	logger.Info("the etcd stub is ready", "urls", strings.Join(s.URLs, ","), "data-dir", s.DataDir)
	return etcdstub.Serve(ctx, s.Config)
}

// twoDashes adds a dash to flags that have one: etcd accepts both, package pflag only two.
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

// configure turns the flags into the configuration of the stub.
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

// stubFlags lists the flags of etcd 3.7, in the sections of its help.
func stubFlags(s *stubSettings) table {
	return table{
		{"Member", memberFlags(s)},
		{"Clustering", clusterFlags(s)},
		{"Security", securityFlags(s)},
		{"Auth", []row{
			{"auth-token", text(new("simple")), ignored, "the stub stores nothing itself", ""},
			{"bcrypt-cost", integer(new(10)), ignored, "the stub stores nothing itself", ""},
			{"auth-token-ttl", integer(new(300)), ignored, "the stub stores nothing itself", ""},
		}},
		{"Profiling, logging and tracing", loggingFlags(s)},
		{"Features", []row{
			{"corrupt-check-time", duration(new(time.Duration)), ignored, "the API server checks its log itself", ""},
			{"compact-hash-check-time", duration(new(time.Minute)), ignored,
				"the API server checks its log itself", ""},
			{"compaction-batch-limit", integer(new(1000)), ignored, "the log compacts itself", ""},
			{"peer-skip-client-san-verification", boolean(new(bool)), ignored, "the stub has no peers", ""},
			{"watch-progress-notify-interval", duration(new(10 * time.Minute)), ignored, "the stub serves no watches", ""},
			{"warning-apply-duration", duration(new(100 * time.Millisecond)), ignored, "the stub applies nothing", ""},
			{"bootstrap-defrag-threshold-megabytes", integer(new(int)), ignored, "the log compacts itself", ""},
			{"max-learners", integer(new(1)), ignored, "the stub has no peers", ""},
			{"compaction-sleep-interval", duration(new(time.Duration)), ignored, "the log compacts itself", ""},
			{"downgrade-check-time", duration(new(5 * time.Second)), ignored, "the stub has no peers", ""},
			{"snapshot-catchup-entries", integer(new(5000)), ignored, "the stub has no peers", ""},
		}},
		{"Unsafe", []row{
			{"force-new-cluster", boolean(new(bool)), refused, "a new cluster from the data of one member", ""},
			{"unsafe-no-fsync", boolean(&s.NoSync), works,
				"the API server does not sync its files: a power cut may lose " +
					"everything", ""},
		}},
		{"Global", []row{{"version", version(&s.version), works, "print the version and exit", ""}}},
	}
}

func memberFlags(s *stubSettings) []row {
	const (
		alone = "the stub has no peers"
		empty = "the stub stores nothing itself"
		http  = "the stub does not speak gRPC"
	)
	return []row{
		{"name", text(&s.name), works, "the default of --data-dir is NAME.etcd", ""},
		{"data-dir", text(&s.DataDir), works, "the directory in which the API server stores everything", ""},
		{"wal-dir", text(new(string)), ignored, empty, ""},
		{"snapshot-count", integer64(new(int64(10000))), ignored, empty, ""},
		{"heartbeat-interval", integer(new(100)), ignored, alone, ""},
		{"election-timeout", integer(new(1000)), ignored, alone, ""},
		{"initial-election-tick-advance", boolean(new(true)), ignored, alone, ""},
		{"listen-peer-urls", list(new([]string{"http://localhost:2380"})), ignored, alone, ""},
		{"listen-client-urls", list(&s.listen), works,
			"the addresses to listen on: http://HOST:PORT or https://HOST:PORT", ""},
		{"listen-client-http-urls", list(&s.listenHTTP), works, "further addresses to listen on", ""},
		{"max-snapshots", integer(new(5)), ignored, empty, ""},
		{"max-wals", integer(new(5)), ignored, empty, ""},
		{"memory-mlock", boolean(new(bool)), ignored, empty, ""},
		{"quota-backend-bytes", integer64(new(int64)), ignored, "only the size of the disk limits the data", ""},
		{"backend-bbolt-freelist-type", text(new("map")), ignored, empty, ""},
		{"backend-batch-interval", text(new(string)), ignored, empty, ""},
		{"backend-batch-limit", integer(new(int)), ignored, empty, ""},
		{"max-txn-ops", integer(new(128)), ignored, empty, ""},
		{"max-request-bytes", integer(new(1572864)), ignored, empty, ""},
		{"max-concurrent-streams", integer64(new(int64(4294967295))), ignored, http, ""},
		{"grpc-keepalive-min-time", duration(new(5 * time.Second)), ignored, http, ""},
		{"grpc-keepalive-interval", duration(new(2 * time.Hour)), ignored, http, ""},
		{"grpc-keepalive-timeout", duration(new(20 * time.Second)), ignored, http, ""},
		{"socket-reuse-port", boolean(new(bool)), ignored, "the stub does not share its address", ""},
		{"socket-reuse-address", boolean(new(bool)), ignored, "the stub does not share its address", ""},
		{"enable-grpc-gateway", boolean(new(true)), ignored, http, ""},
		{"raft-read-timeout", duration(new(5 * time.Second)), ignored, alone, ""},
		{"raft-write-timeout", duration(new(5 * time.Second)), ignored, alone, ""},
		{"feature-gates", text(new(string)), ignored, empty, ""},
		{"config-file", text(new(string)), refused, "a configuration file", ""},
	}
}

func clusterFlags(s *stubSettings) []row {
	const (
		alone  = "the stub has no peers"
		find   = "discovery of other members"
		within = "the stub has no discovery"
	)
	return []row{
		{"initial-advertise-peer-urls", list(new([]string{"http://localhost:2380"})), ignored, alone, ""},
		{"initial-cluster", list(&s.initialCluster), works, "the members of the cluster; more than one is an error", ""},
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
		{"v2-deprecation", text(new("write-only")), ignored, "the stub has no v2 store", ""},
	}
}

func securityFlags(s *stubSettings) []row {
	const (
		alone = "the stub has no peers"
		which = "restrictions on client certificates"
	)
	return []row{
		{"cert-file", text(&s.certFile), works, "the certificate for https:// client URLs", ""},
		{"key-file", text(&s.keyFile), works, "the private key of --cert-file", ""},
		{"client-cert-auth", boolean(&s.clientCertAuth), works,
			"require client certificates that --trusted-ca-file has signed", ""},
		{"client-cert-file", text(new(string)), ignored, alone, ""},
		{"client-key-file", text(new(string)), ignored, alone, ""},
		{"client-crl-file", text(new(string)), refused, which, ""},
		{"client-cert-allowed-hostname", text(new(string)), refused, which, ""},
		{"trusted-ca-file", text(&s.trustedCAFile), works,
			"the authority of client certificates; if set, clients need one", ""},
		{"auto-tls", boolean(new(bool)), refused, "a self-signed certificate", ""},
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
		{"cors", text(new("*")), ignored, "the stub serves nothing for web pages", ""},
		{"host-whitelist", text(new("*")), refused, "restrictions on host names", ""},
		{"tls-min-version", oneOf(new("TLS1.2"), "TLS1.2", "TLS1.3"), refused, "a choice of TLS versions", ""},
		{"tls-max-version", oneOf(new(string), "", "TLS1.2", "TLS1.3"), refused, "a choice of TLS versions", ""},
	}
}

func loggingFlags(s *stubSettings) []row {
	const direct = "the log goes to standard error, as text"
	return []row{
		{"enable-pprof", boolean(new(bool)), ignored, "the stub serves no profiles", ""},
		{"metrics", text(new("basic")), ignored, "the stub has no metrics", ""},
		{"listen-metrics-urls", list(new([]string)), ignored, "the stub has no metrics", ""},
		{"logger", oneOf(new("zap"), "zap"), ignored, direct, ""},
		{"log-outputs", list(new([]string{"default"})), ignored, direct, ""},
		{"log-level", oneOf(&s.logLevel, "debug", "info", "warn", "error", "panic", "fatal"), works,
			"the lowest level to log", ""},
		{"log-format", oneOf(new("json"), "json", "console"), ignored, direct, ""},
		{"enable-log-rotation", boolean(new(bool)), ignored, direct, ""},
		{"log-rotation-config-json",
			text(new(`{"maxsize": 100, "maxage": 0, "maxbackups": 0, "localtime": false, "compress": false}`)), ignored,
			direct, ""},
		{"warning-unary-request-duration", duration(new(300 * time.Millisecond)), ignored,
			"the stub serves only health checks", ""},
		{"enable-distributed-tracing", boolean(new(bool)), ignored, "there is no tracing", ""},
		{"distributed-tracing-address", text(new("localhost:4317")), ignored, "there is no tracing", ""},
		{"distributed-tracing-service-name", text(new("etcd")), ignored, "there is no tracing", ""},
		{"distributed-tracing-instance-id", text(new(string)), ignored, "there is no tracing", ""},
		{"distributed-tracing-sampling-rate", integer(new(int)), ignored, "there is no tracing", ""},
	}
}
