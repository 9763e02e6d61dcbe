package admission

import (
	"context"
	"fmt"

	"plinth/internal/engine"
	"plinth/internal/features"
	"plinth/internal/objectmeta"
)

// newClusterTrustBundleAttest makes the plugin ClusterTrustBundleAttest: who writes a bundle for a signer needs the
// verb attest for it.
func newClusterTrustBundleAttest(c *Config) (steps, error) {
	if !c.Features.On(features.ClusterTrustBundle) {
		return steps{}, nil
	}
	return steps{validate: func(ctx context.Context, a *engine.Attributes) error {
		if !writes(a) || !about(a, certificatesGroup, "clustertrustbundles", "") {
			return nil
		}
		signer := a.Object.At("spec", "signerName").Str()
		if signer == "" || a.Operation == engine.OperationUpdate && objectmeta.OnlyCollectorFields(a.Object, a.Old) ||
			maySigner(ctx, a, "attest", signer) {
			return nil
		}
		return forbidden(a, fmt.Sprintf("user not permitted to attest for signerName %q", signer))
	}}, nil
}
