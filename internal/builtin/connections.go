package builtin

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"plinth/internal/engine"
	"plinth/internal/features"
	"plinth/internal/gotypes"
	"plinth/object"
)

// The verbs of connections, as in discovery documents. A proxy has those of all HTTP methods.
var (
	logVerbs   = []string{"get"}
	shellVerbs = []string{"create", "get"}
	proxyVerbs = []string{"create", "delete", "get", "patch", "update"}
)

// podConnections are the subresources of Pods that are sent on to kubelets, and to the Pods themselves.
func podConnections(set features.Set) []*engine.Subresource {
	creates := set.On(features.AuthorizePodWebsocketUpgradeCreatePermission)
	log := connection[corev1.PodLogOptions]("log", "Pod", logVerbs)
	log.Connection.Admitted = false // to read a log is a get
	all := []*engine.Subresource{log, proxied[corev1.PodProxyOptions]("PodProxyOptions")}
	for _, s := range []*engine.Subresource{
		connection[corev1.PodAttachOptions]("attach", "PodAttachOptions", shellVerbs),
		connection[corev1.PodExecOptions]("exec", "PodExecOptions", shellVerbs),
		connection[corev1.PodPortForwardOptions]("portforward", "PodPortForwardOptions", shellVerbs),
	} {
		s.Connection.Creates = creates
		all = append(all, s)
	}
	return all
}

// proxied is the subresource proxy of Nodes, Pods and Services. Its only option is the path below it.
func proxied[T any](kind string) *engine.Subresource {
	s := connection[T]("proxy", kind, proxyVerbs)
	s.Connection.Below = true
	s.Connection.Options = func(_ map[string][]string, below string) (object.Value, error) {
		return connectionOptions[T](kind, map[string][]string{"path": {below}})
	}
	return s
}

// connection is a subresource of the core group whose options are a T.
func connection[T any](name, kind string, verbs []string) *engine.Subresource {
	return &engine.Subresource{
		Name: name, Version: "v1", Kind: kind, Verbs: verbs,
		Connection: &engine.Connection{Admitted: true,
			Options: func(query map[string][]string, _ string) (object.Value, error) {
				return connectionOptions[T](kind, query)
			}},
	}
}

// connectionOptions makes an object of the options of a connection.
func connectionOptions[T any](kind string, query map[string][]string) (object.Value, error) {
	var options T
	if err := gotypes.Query(query, &options); err != nil {
		return object.Nil, err
	}
	text, err := json.Marshal(options)
	if err != nil {
		return object.Nil, fmt.Errorf("the options of a connection: %w", err)
	}
	parsed, err := object.ParseJSON(text)
	if err != nil {
		return object.Nil, fmt.Errorf("the options of a connection: %w", err)
	}
	return parsed.Value.With("apiVersion", object.StringOf("v1")).With("kind", object.StringOf(kind)), nil
}
