package controller

import (
	"context"
	"log/slog"
	"time"

	"plinth/internal/access"
	"plinth/internal/controller/steps"
	"plinth/internal/engine"
)

// PodCertificates deletes PodCertificateRequests a while after they were made, whether they were answered or not: a
// kubelet waits for none as long.
type PodCertificates struct {
	Engine   *engine.Engine
	Registry *engine.Registry
	Logger   *slog.Logger
	Now      func() time.Time // nil: time.Now
}

// podCertificateLife is how long they stay, as in kube-controller-manager.
const podCertificateLife = 15 * time.Minute

// Start begins its loops.
func (c *PodCertificates) Start(g *steps.Group) {
	of := c.Registry.Builtin().Find("certificates.k8s.io", "v1", "podcertificaterequests")
	user := access.ControllerAccount("podcertificaterequestcleaner")
	now := time.Now
	if c.Now != nil {
		now = c.Now
	}
	(&follower{engine: c.Engine, logger: c.Logger, name: "podcertificaterequest-cleaner-controller",
		types: []*engine.Resource{of},
		sync: func(ctx context.Context, of *engine.Resource, o *engine.Object, gone bool) (time.Duration, error) {
			obj, err := parsed(o)
			if gone || o.Sidecar.Deleting || err != nil {
				return 0, nil
			}
			// Every stored object has a time.
			made, _ := time.Parse(time.RFC3339, obj.At("metadata", "creationTimestamp").Str())
			if left := made.Add(podCertificateLife).Sub(now()); left > 0 {
				return left, nil
			}
			rq := of.RequestFor(o.Key)
			rq.User = user
			return 0, unlessChanged(c.Engine.Delete(ctx, rq, engine.DeleteOptions{PreconditionUID: o.Sidecar.UID}))
		},
	}).start(g)
}
