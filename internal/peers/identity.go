package peers

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/labels"

	"plinth/internal/apierr"
	"plinth/internal/controller"
	"plinth/internal/engine"
	"plinth/internal/features"
	"plinth/object"
)

// The identity Lease: clients find the API servers of a cluster by the Leases with the label IdentityLabel. Each server
// renews its own Lease, whose name is its identity, and deletes it when it closes. It also deletes Leases of other
// servers that have expired.
const (
	IdentityLabel    = "apiserver.kubernetes.io/identity"
	identityDuration = time.Hour // until a Lease expires, and between two searches for expired ones
	identityRenewal  = 10 * time.Second
	publishEvery     = 10 * time.Minute // how the server stores objects

	microTime = "2006-01-02T15:04:05.000000Z" // metav1.MicroTime
)

// IdentityOf is the name of a server that differs from the others by these properties. A restarted server has the same
// one, and so finds its old Lease.
func IdentityOf(properties ...string) string {
	var text []byte
	for _, part := range properties {
		text = append(binary.BigEndian.AppendUint16(text, uint16(len(part))), part...)
	}
	hash := sha256.Sum256(text)
	return "apiserver-" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(hash[:16]))
}

// HostIdentity is the identity of the server in labels of metrics: that of the reference, which depends on the host
// alone.
func HostIdentity() string {
	hostname, err := os.Hostname()
	if err != nil {
		hostname = ""
	}
	return IdentityOf(hostname, "kube-apiserver")
}

// Identity is the identity of a server; it is "" if the feature is turned off. That of the reference depends on the
// host name alone, so that two servers on one host delete each other's Lease when they start and when they close. On
// the embedded store, where there is no other server, it is the same here.
//
// On etcd it also depends on the address at which the server listens, which no other process on the host has. So
// several servers, and a kube-apiserver beside them, have a Lease each. Nobody computes the identity of another server:
// all take it from the names of the Leases.
func Identity(set features.Set, listensAt ...string) (string, error) {
	if !set.On(features.APIServerIdentity) {
		return "", nil
	}
	hostname, err := os.Hostname()
	if err != nil {
		return "", err
	}
	return IdentityOf(append([]string{hostname, "kube-apiserver"}, listensAt...)...), nil
}

// lease keeps the server's Lease renewed.
type lease struct {
	*Config
	rq   engine.Request // addresses the Lease
	body object.Value   // the Lease without its renewTime
}

// Lease returns what keeps the server's Lease renewed until leaving is over, and then deletes it; nil if Leases or the
// feature are turned off, and for a server that no other process can find.
func (c *Config) Lease() (run func(leaving context.Context), err error) {
	leases := c.Registry.Builtin().Find("coordination.k8s.io", "v1", "leases")
	if leases == nil || c.Identity == "" {
		return nil, nil
	}
	hostname, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	l := &lease{Config: c}
	l.rq = engine.Request{Resource: leases, Namespace: "kube-system", Name: c.Identity,
		FieldManager: "kube-apiserver", OwnStart: true}
	text := object.StringOf
	meta := object.Fields("labels", object.Fields(IdentityLabel, text("kube-apiserver"), "kubernetes.io/hostname",
		text(hostname)))
	if c.Host != "" && c.Features.On(features.UnknownVersionInteroperabilityProxy) {
		meta = meta.With("annotations", object.Fields("kubernetes.io/peer-advertise-address",
			text(net.JoinHostPort(c.Host, strconv.FormatInt(c.HostPort, 10)))))
	}
	l.body = object.Fields("metadata", meta, "spec", object.Fields("holderIdentity", text(l.rq.Name+"_"+uuid.NewString()),
		"leaseDurationSeconds", object.IntOf(int64(identityDuration/time.Second))))
	return l.run, nil
}

// run renews the Lease until ctx is cancelled, and then deletes it.
func (l *lease) run(ctx context.Context) {
	// An earlier process that was killed has left its Lease. Clients that wait for that server to disappear have to see
	// the DELETED event.
	l.logError(ctx, "deleting an old", l.delete(ctx))
	renewal := time.NewTicker(identityRenewal)
	defer renewal.Stop()
	var swept, published time.Time
	for {
		err := l.renew(ctx)
		l.logError(ctx, "renewing the", err)
		now := l.Now()
		if now.Sub(swept) >= identityDuration {
			swept = now
			l.logError(ctx, "deleting an expired", l.sweep(ctx))
		}
		if err == nil && now.Sub(published) >= publishEvery {
			published = now
			l.publish(ctx)
		}
		select {
		case <-renewal.C:
			continue
		case <-ctx.Done():
		}
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTime)
		l.logError(last, "deleting the", l.delete(last))
		cancel()
		return
	}
}

// publish says how the server stores objects. It follows the Lease, without which the records would be removed.
func (l *lease) publish(ctx context.Context) {
	if !l.Features.On(features.StorageVersionAPI) {
		return
	}
	versions := &controller.StorageVersions{Engine: l.Engine, Registry: l.Registry, Logger: l.Logger, Now: l.Now}
	if err := versions.Publish(ctx, l.Identity); err != nil && ctx.Err() == nil {
		l.Logger.Warn("publishing how objects are stored", "error", err)
	}
}

// logError logs an error; the next renewal tries again.
func (l *lease) logError(ctx context.Context, what string, err error) {
	if err != nil && ctx.Err() == nil { // errors while the server closes are expected
		l.Logger.Warn(what+" identity Lease", "error", err)
	}
}

// renew writes the current time into the Lease, and creates it if it is missing.
func (l *lease) renew(ctx context.Context) error {
	body := l.body.WithAt(object.StringOf(l.Now().UTC().Format(microTime)), "spec", "renewTime")
	patch := engine.Patch{Type: engine.MergePatch, Body: object.AppendObject(nil, body)}
	_, err := l.Engine.Patch(ctx, &l.rq, patch)
	if apierr.Is(err, apierr.NotFound) {
		rq := l.rq
		rq.Name = ""
		_, err = l.Engine.Create(ctx, &rq, object.Parsed{Value: body.WithAt(object.StringOf(l.rq.Name),
			"metadata", "name")})
	}
	return err
}

func (l *lease) delete(ctx context.Context) error {
	if _, err := l.Engine.Delete(ctx, &l.rq, engine.DeleteOptions{}); err != nil &&
		!apierr.Is(err, apierr.NotFound) {
		return err
	}
	return nil
}

// sweep deletes expired Leases.
func (l *lease) sweep(ctx context.Context) error {
	all := l.rq
	all.Name = ""
	list, err := l.Engine.List(ctx, &all,
		engine.ListOptions{Labels: labels.SelectorFromSet(labels.Set{IdentityLabel: "kube-apiserver"})})
	if err != nil {
		return err
	}
	for item := range list.Items {
		obj, err := engine.ObjectOf(item)
		if err != nil {
			return err
		}
		renewed, err := time.Parse(time.RFC3339Nano, obj.At("spec", "renewTime").Str())
		duration := time.Duration(obj.At("spec", "leaseDurationSeconds").Int()) * time.Second
		if err == nil && duration > 0 && l.Now().Before(renewed.Add(duration)) {
			continue
		}
		one := l.rq
		one.Name = obj.At("metadata", "name").Str()
		o := engine.DeleteOptions{PreconditionRV: fmt.Sprint(item.Revision)} // fails for one that was renewed since
		if _, err := l.Engine.Delete(ctx, &one, o); err != nil && !apierr.Is(err, apierr.NotFound) &&
			!apierr.Is(err, apierr.Conflict) {
			return err
		}
	}
	return nil
}
