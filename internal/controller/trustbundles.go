package controller

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"plinth/internal/access"
	"plinth/internal/controller/steps"
	"plinth/internal/engine"
	"plinth/object"
)

// TrustBundles publishes the certificate authority with which clients verify this server in a ClusterTrustBundle, and
// deletes the other bundles of its signer: those of authorities that it had before.
type TrustBundles struct {
	Engine      *engine.Engine
	Registry    *engine.Registry
	Logger      *slog.Logger
	Certificate []byte // as PEM
}

// servingSigner is the signer of the certificates of API servers.
const servingSigner = "kubernetes.io/kube-apiserver-serving"

// trustBundleName is the name of the bundle of an authority: another authority has another bundle, so that those who
// have mounted the old one do not lose it before the new one is there.
func trustBundleName(certificate []byte) string {
	hash := sha256.Sum256(certificate)
	return fmt.Sprintf("%s:%x", strings.ReplaceAll(servingSigner, "/", ":"), hash[:12])
}

// Start begins its loops.
func (c *TrustBundles) Start(g *steps.Group) {
	const group, resource = "certificates.k8s.io", "clustertrustbundles"
	bundles := c.Registry.Builtin().Find(group, "v1", resource)
	if bundles == nil {
		bundles = c.Registry.Builtin().Find(group, "v1beta1", resource)
	}
	if bundles == nil || len(c.Certificate) == 0 {
		return
	}
	name, certificate := trustBundleName(c.Certificate), object.StringOf(string(c.Certificate))
	user := access.ControllerAccount("kube-apiserver-serving-clustertrustbundle-publisher")
	content := object.Fields("spec",
		object.Fields("signerName", object.StringOf(servingSigner), "trustBundle", certificate))
	renew := func(obj object.Value) object.Value { return obj.WithAt(certificate, "spec", "trustBundle") }
	(&follower{
		engine: c.Engine, logger: c.Logger, name: "kube-apiserver-serving-clustertrustbundle-publisher-controller",
		types: []*engine.Resource{bundles}, wanted: &engine.Object{Key: bundles.Key("", name)},
		sync: func(ctx context.Context, of *engine.Resource, o *engine.Object, gone bool) (time.Duration, error) {
			ours := o.Key.Name == name
			if !ours && (gone || o.Sidecar.Deleting || !ofServingSigner(o)) {
				return 0, nil
			}
			// Another bundle is deleted when this one is there.
			err := ensure(ctx, c.Engine, &engine.Request{Resource: bundles, Name: name, User: user, FieldManager: manager},
				content, renew)
			if err != nil || ours {
				return 0, err
			}
			rq := of.RequestFor(o.Key)
			rq.User = user
			return 0, unlessChanged(c.Engine.Delete(ctx, rq, engine.DeleteOptions{PreconditionUID: o.Sidecar.UID}))
		},
	}).start(g)
}

func ofServingSigner(o *engine.Object) bool {
	for _, f := range o.Sidecar.Fields {
		if f.Name == "spec.signerName" {
			return f.Value == servingSigner
		}
	}
	return false
}
