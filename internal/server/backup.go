package server

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"time"

	"plinth/internal/apierr"
	"plinth/internal/backup"
	"plinth/internal/httpapi"
	"plinth/internal/plane"
	"plinth/internal/planes/route"
	"plinth/internal/product"
)

// backupPath is the path at which a backup of the store is read. It has everything: those who may get it are those who
// may do everything, unless somebody gives the right to the path to others.
const backupPath = "/backup"

// backupHandler answers with an archive (package backup) of the store as it is at that moment.
//
// The answer is read from files that are open, at the pace of the client: it takes no memory, and no commit waits for
// it. What it does take is the room of files that are removed meanwhile, so a client that reads nothing for stallTime
// is cut off.
func (s *Server) backupHandler(p *plane.Plane) http.Handler {
	return httpapi.LastingHandler{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			route.Refuse(w, apierr.NewMethodNotAllowed())
			return
		}
		if err := s.sendBackup(p, w, r); err != nil {
			route.Refuse(w, err)
		}
	})}
}

// sendBackup sends an archive. An error is for the client, and nothing was sent then.
func (s *Server) sendBackup(p *plane.Plane, w http.ResponseWriter, r *http.Request) error {
	c := &s.config
	switch {
	case c.onEtcd:
		return &apierr.Error{Code: http.StatusNotImplemented, Message: fmt.Sprintf(
			"%s: the objects of this server are in an etcd, whose backup is made by etcdctl snapshot save", backup.ErrNothing)}
	case c.storageKind() != embedded || c.Log != nil:
		return &apierr.Error{Code: http.StatusNotImplemented, Message: fmt.Sprintf(
			"%s: the objects of this server are in memory (--storage)", backup.ErrNothing)}
	}
	d := c.backupDocument()
	// Before the snapshot: what is restored as of this time is never more than was there.
	d.Time = s.clock().UTC()
	snapshot, err := p.Storage.Freeze()
	if err != nil {
		return apierr.NewInternal(err)
	}
	defer snapshot.Close()
	archive, err := backup.New(d, snapshot)
	if err != nil {
		return apierr.NewInternal(err)
	}
	header := w.Header()
	header.Set("Content-Type", "application/x-tar")
	header.Set("Content-Length", strconv.FormatInt(archive.Size(), 10))
	header.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	began := time.Now()
	err = archive.Write(&steady{w, http.NewResponseController(w), r})
	if err != nil {
		c.Logger.Warn("a backup was not sent as a whole", "revision", snapshot.Revision, "error", err)
		panic(http.ErrAbortHandler) // the client has a part of it, and must not take that for the whole
	}
	c.Logger.Info("a backup was sent", "revision", snapshot.Revision, "bytes", archive.Size(),
		"took", time.Since(began).Round(time.Millisecond))
	return nil
}

// backupDocument is what the document of a backup says, besides what the store knows. Of the files that flags name it
// has those that a flag names by its whole value; what such a file itself names is not looked for.
func (c *Config) backupDocument() backup.Document {
	d := backup.Document{Product: "plinth " + product.Built().Version, Kubernetes: plane.Version}
	for _, part := range c.parts() {
		d.Parts = append(d.Parts, part.File)
	}
	d.Directory = absolutePath(c.DataDir)
	if c.Authority.Cert == nil {
		d.Authority = backup.AuthorityOf(c.DataDir)
	}
	for _, f := range []struct{ flag, file string }{
		{"admission-control-config-file", c.AdmissionConfig},
		{"allow-metric-labels-manifest", c.Metrics.LabelsFile},
		{"audit-policy-file", c.Audit.PolicyFile},
		{"audit-webhook-config-file", c.Audit.Webhook.ConfigFile},
		{"authentication-config", c.AuthenticationConfig},
		{"authentication-token-webhook-config-file", c.TokenWebhook.ConfigFile},
		{"authorization-config", c.AuthorizationConfig},
		{"authorization-policy-file", c.AuthorizationPolicyFile},
		{"authorization-webhook-config-file", c.AuthorizationWebhook.ConfigFile},
		{"client-ca-file", c.ClientCAFile},
		{"cluster-signing-cert-file", c.SigningCertFile},
		{"cluster-signing-key-file", c.SigningKeyFile},
		{"encryption-provider-config", c.Encryption.ConfigFile},
		{"kubelet-certificate-authority", c.Kubelets.CAFile},
		{"kubelet-client-certificate", c.Kubelets.CertFile},
		{"kubelet-client-key", c.Kubelets.KeyFile},
		{"oidc-ca-file", c.OIDC.CAFile},
		{"peer-ca-file", c.PeerCAFile},
		{"proxy-client-cert-file", c.Aggregation.ClientCertFile},
		{"proxy-client-key-file", c.Aggregation.ClientKeyFile},
		{"requestheader-client-ca-file", c.FrontProxy.CAFile},
		{"service-account-signing-key-file", c.ServiceAccounts.SigningKeyFile},
		{"tls-cert-file", c.TLSCertFile},
		{"tls-private-key-file", c.TLSKeyFile},
		{"token-auth-file", c.TokenAuthFile},
	} {
		if f.file != "" {
			d.Supplied = append(d.Supplied, backup.Supplied{Flag: f.flag, File: absolutePath(f.file)})
		}
	}
	for _, file := range c.ServiceAccounts.KeyFiles {
		d.Supplied = append(d.Supplied, backup.Supplied{Flag: "service-account-key-file", File: absolutePath(file)})
	}
	return d
}

func absolutePath(file string) string {
	absolute, err := filepath.Abs(file)
	if err != nil {
		return file
	}
	return absolute
}

// stallTime is how long a client of a backup may take for what is written at once.
const stallTime = time.Minute

// steady writes to a client that goes on reading.
type steady struct {
	to      http.ResponseWriter
	control *http.ResponseController
	request *http.Request
}

// Write implements io.Writer.
func (s *steady) Write(b []byte) (n int, err error) {
	for len(b) > 0 && err == nil {
		if err = s.request.Context().Err(); err != nil {
			break
		}
		if err := s.control.SetWriteDeadline(time.Now().Add(stallTime)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return n, err
		}
		part := b[:min(len(b), 1<<20)]
		var wrote int
		wrote, err = s.to.Write(part)
		n += wrote
		b = b[len(part):]
		err = cmp.Or(err, short(wrote, part))
	}
	return n, err
}

func short(wrote int, of []byte) error {
	if wrote < len(of) {
		return io.ErrShortWrite
	}
	return nil
}
