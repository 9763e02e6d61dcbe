package nodes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	netutils "k8s.io/utils/net"

	"plinth/internal/access"
	"plinth/internal/apierr"
	"plinth/internal/execution"
	"plinth/internal/forward"
	"plinth/internal/planes/route"
	"plinth/object"
)

// A name in the URL of a proxy is NAME, NAME:PORT or SCHEME:NAME:PORT.

// nodeProxy answers nodes/proxy.
func (n *Nodes) nodeProxy(w http.ResponseWriter, r *http.Request, asked *access.Attributes) error {
	scheme, name, port, valid := utilnet.SplitSchemeNamePort(asked.Name)
	if !valid {
		return apierr.NewBadRequest(fmt.Sprintf("invalid node request %q", asked.Name))
	}
	k, err := n.kubelet(r.Context(), asked, name)
	if err != nil {
		return err
	}
	if err := n.reachable(r.Context(), k.host); err != nil {
		return apierr.NewBadRequest(err.Error())
	}
	if port == "" || port == k.port {
		return n.proxy(w, r, asked, k.urlOf("", nil), n.transports.kubelets())
	}
	return n.proxyPlain(w, r, asked, &url.URL{Scheme: scheme, Host: net.JoinHostPort(k.host, port)})
}

// reachable refuses a Node whose name leads to this machine or to a link-local address, such as that of a cloud's
// metadata: whoever may write a Node's status could otherwise reach them through the server.
func (n *Nodes) reachable(ctx context.Context, host string) error {
	execution.AssertOutside(ctx, "a name server")
	addresses, err := n.Lookup(ctx, host)
	if err != nil {
		return err
	}
	if len(addresses) == 0 {
		return fmt.Errorf("no addresses for hostname")
	}
	for _, a := range addresses {
		if !a.IP.IsGlobalUnicast() {
			return fmt.Errorf("address not allowed")
		}
	}
	return nil
}

// podProxy answers pods/proxy. Without a port, it is the first that a container declares.
func (n *Nodes) podProxy(w http.ResponseWriter, r *http.Request, asked *access.Attributes) error {
	scheme, name, port, valid := utilnet.SplitSchemeNamePort(asked.Name)
	if !valid {
		return apierr.NewBadRequest(fmt.Sprintf("invalid pod request %q", asked.Name))
	}
	pod, err := n.Object(r.Context(), "pods", asked.Namespace, name)
	if err != nil {
		return err
	}
	for _, c := range pod.At("spec", "containers").Items() {
		if ports := c.At("ports").Items(); port == "" && len(ports) > 0 {
			port = strconv.FormatInt(ports[0].At("containerPort").Int(), 10)
		}
	}
	ip := ""
	if all := podIPs(pod); len(all) > 0 {
		ip = all[0]
	}
	if parsed := netutils.ParseIPSloppy(ip); parsed == nil || !parsed.IsGlobalUnicast() {
		return apierr.NewBadRequest("address not allowed")
	}
	host := ip
	switch {
	case port != "":
		host = net.JoinHostPort(ip, port)
	case strings.Contains(ip, ":"):
		host = "[" + ip + "]"
	}
	return n.proxyPlain(w, r, asked, &url.URL{Scheme: scheme, Host: host})
}

// podIPs are the addresses of a Pod. As in the reference, podIP counts if podIPs says otherwise.
func podIPs(pod object.Value) (all []string) {
	for _, ip := range pod.At("status", "podIPs").Items() {
		all = append(all, ip.At("ip").Str())
	}
	if ip := pod.At("status", "podIP").Str(); ip != "" && (len(all) == 0 || all[0] != ip) {
		return []string{ip}
	}
	return all
}

// serviceProxy answers services/proxy. The port is the name of one, or its number.
func (n *Nodes) serviceProxy(w http.ResponseWriter, r *http.Request, asked *access.Attributes) error {
	scheme, name, port, valid := utilnet.SplitSchemeNamePort(asked.Name)
	if !valid {
		return apierr.NewBadRequest(fmt.Sprintf("invalid service request %q", asked.Name))
	}
	if number, err := strconv.ParseInt(port, 10, 64); err == nil {
		service, err := n.Object(r.Context(), "services", asked.Namespace, name)
		if err != nil {
			return err
		}
		ports := service.At("spec", "ports").Items()
		i := slices.IndexFunc(ports, func(p object.Value) bool { return p.At("port").Int() == number })
		if i < 0 {
			return apierr.NewUnavailable(fmt.Sprintf("no service port %d found for service %q", number, name))
		}
		port = ports[i].At("name").Str()
	}
	if asked.Namespace == "" {
		return apierr.NewBadRequest("missing required namespace")
	}
	host, err := n.endpoint(r.Context(), asked.Namespace, name, port)
	if err != nil {
		return err
	}
	return n.proxyPlain(w, r, asked, &url.URL{Scheme: scheme, Host: host})
}

// endpoint finds an address of a Service, a random one among those that are ready.
func (n *Nodes) endpoint(ctx context.Context, namespace, service, port string) (hostPort string, err error) {
	found, err := n.EndpointSlices(ctx, namespace, service)
	if err != nil {
		return "", apierr.NewInternal(err)
	}
	preferred := "IPv4"
	if n.IPv6 {
		preferred = "IPv6"
	}
	rand.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] })
	slices.SortStableFunc(found, func(a, b object.Value) int {
		later := func(v object.Value) int {
			if v.At("addressType").Str() == preferred {
				return 0
			}
			return 1
		}
		return later(a) - later(b)
	})
	for _, slice := range found {
		endpoints := slice.At("endpoints").Items()
		for _, p := range slice.At("ports").Items() {
			number := p.At("port")
			if len(endpoints) == 0 || number.IsNull() || p.At("name").IsNull() || p.At("name").Str() != port {
				continue
			}
			first := rand.IntN(len(endpoints))
			for i := range endpoints {
				e := endpoints[(first+i)%len(endpoints)]
				if ready := e.At("conditions", "ready"); !ready.IsNull() && !ready.Bool() || !n.isPod(ctx, namespace, e) {
					continue
				}
				return net.JoinHostPort(e.At("addresses").Items()[0].Str(), strconv.FormatInt(number.Int(), 10)), nil
			}
		}
	}
	return "", apierr.NewUnavailable(fmt.Sprintf("no endpoints available for service %q", service))
}

// isPod says whether an endpoint is the address of a Pod in the namespace of the Service. Whoever may write
// EndpointSlices could otherwise have the server send requests anywhere.
func (n *Nodes) isPod(ctx context.Context, namespace string, endpoint object.Value) bool {
	target, addresses := endpoint.At("targetRef"), endpoint.At("addresses").Items()
	if target.IsNull() || target.At("namespace").Str() != namespace || len(addresses) == 0 {
		return false
	}
	pod, err := n.Object(ctx, "pods", namespace, target.At("name").Str())
	return err == nil && slices.Contains(podIPs(pod), addresses[0].Str())
}

// proxyPlain sends a request on to a Pod or a Service.
func (n *Nodes) proxyPlain(w http.ResponseWriter, r *http.Request, asked *access.Attributes, at *url.URL) error {
	return n.proxy(w, r, asked, at, n.transports.proxied())
}

// proxy sends a request on, with the path below the subresource.
func (n *Nodes) proxy(w http.ResponseWriter, r *http.Request, asked *access.Attributes, at *url.URL,
	transport *http.Transport) error {
	at.Path = utilnet.JoinPreservingTrailingSlash(at.Path, below(asked))
	target := &forward.Target{URL: at, Transport: transport, Rewrite: true, Base: route.Of(r.Context()).Base,
		BytesPerSecond: n.BytesPerSecond, Logger: n.Logger}
	return target.Forward(w, r)
}

// below is the path below the subresource proxy, with the slash at the end that the URL has; "" if there is none.
func below(asked *access.Attributes) string {
	segments := 5 // api/v1/nodes/NAME/proxy
	if asked.Namespace != "" {
		segments = 7 // api/v1/namespaces/NAMESPACE/pods/NAME/proxy
	}
	rest := strings.Trim(asked.Path, "/")
	for range segments {
		_, rest, _ = strings.Cut(rest, "/")
	}
	if rest != "" && !strings.HasPrefix(rest, "/") {
		rest = "/" + rest
	}
	if strings.HasSuffix(asked.Path, "/") && !strings.HasSuffix(rest, "/") {
		rest += "/"
	}
	return rest
}
