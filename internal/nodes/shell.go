package nodes

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"plinth/internal/access"
	"plinth/internal/apierr"
	"plinth/internal/features"
	"plinth/internal/forward"
	"plinth/internal/gotypes"
)

// shell answers pods/exec, pods/attach and pods/portforward.
func (n *Nodes) shell(w http.ResponseWriter, r *http.Request, asked *access.Attributes) error {
	container, query, streams, err := shellOptions(r.URL.Query(), asked.Subresource)
	if err != nil {
		return apierr.NewBadRequest(err.Error())
	}
	pod, err := n.Object(r.Context(), "pods", asked.Namespace, asked.Name)
	if err != nil {
		return err
	}
	path := "/portForward/" + asked.Namespace + "/" + asked.Name
	if asked.Subresource != "portforward" {
		if container, err = containerOf(pod, container); err != nil {
			return err
		}
		path = fmt.Sprintf("/%s/%s/%s/%s", asked.Subresource, asked.Namespace, asked.Name, container)
	}
	host := pod.At("spec", "nodeName").Str()
	if host == "" {
		return apierr.NewBadRequest(fmt.Sprintf("pod %s does not have a host assigned", asked.Name))
	}
	k, err := n.kubelet(r.Context(), asked, host)
	if err != nil {
		return err
	}
	transport := n.transports.kubelets()
	at := k.urlOf(path, query)
	toKubelet := n.Features.On(features.ExtendWebSocketsToKubelet) && k.websockets()
	if asked.Subresource == "portforward" && n.Features.On(features.PortForwardWebsockets) ||
		asked.Subresource != "portforward" && n.Features.On(features.TranslateStreamCloseWebsocketRequests) {
		n.Metrics.Streaming(asked.Subresource, toKubelet)
	}
	switch {
	case toKubelet:
	case asked.Subresource == "portforward":
		if n.Features.On(features.PortForwardWebsockets) && wsstream.IsWebSocketRequestWithTunnelingProtocol(r) {
			return n.tunnel(w, r, at, transport)
		}
	case n.Features.On(features.TranslateStreamCloseWebsocketRequests) &&
		wsstream.IsWebSocketRequestWithStreamCloseProtocol(r):
		return n.translate(w, r, at, transport, streams)
	}
	target := &forward.Target{URL: at, OwnQuery: true, Transport: transport, UpgradeOnly: true,
		BytesPerSecond: n.BytesPerSecond, Logger: n.Logger}
	return target.Forward(w, r)
}

// shellOptions returns the container that a request names, the query for the kubelet, and the streams.
func shellOptions(given url.Values, subresource string) (container string, query url.Values, s streams, err error) {
	query = url.Values{}
	switch subresource {
	case "exec":
		var o corev1.PodExecOptions
		err = gotypes.Query(given, &o)
		container, s = o.Container, streams{o.Stdin, o.Stdout, o.Stderr, o.TTY}
		if len(o.Command) > 0 {
			query["command"] = o.Command
		}
	case "attach":
		var o corev1.PodAttachOptions
		err = gotypes.Query(given, &o)
		container, s = o.Container, streams{o.Stdin, o.Stdout, o.Stderr, o.TTY}
	default:
		var o corev1.PodPortForwardOptions
		err = gotypes.Query(given, &o)
		var ports []string
		for _, p := range o.Ports {
			ports = append(ports, strconv.FormatInt(int64(p), 10))
		}
		if len(ports) > 0 {
			query.Set(corev1.PortHeader, strings.Join(ports, ","))
		}
	}
	for name, set := range map[string]bool{corev1.ExecStdinParam: s.stdin, corev1.ExecStdoutParam: s.stdout,
		corev1.ExecStderrParam: s.stderr, corev1.ExecTTYParam: s.tty} {
		if set {
			query.Set(name, "1")
		}
	}
	return container, query, s, err
}
