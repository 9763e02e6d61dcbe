package etcdform

import (
	"slices"
	"strings"
)

// older are the versions of built-in kinds that the reference reads although it does not serve them and this server
// does not have them, and that differ from the storage version in nothing but their name. Some of them are what the
// oldest releases have stored.
var older = map[string]string{
	"networking.k8s.io/ipaddresses":  "v1beta1",
	"networking.k8s.io/servicecidrs": "v1beta1",
}

func isOlder(path, apiVersion string) bool {
	group, _, _ := strings.Cut(path, "/")
	version, ok := strings.CutPrefix(apiVersion, group+"/")
	return ok && slices.Contains(strings.Fields(older[path]), version)
}
