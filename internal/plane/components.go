package plane

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"plinth/internal/builtin"
	"plinth/internal/egress"
)

// The components that ComponentStatuses tell of, as in the reference: kube-controller-manager and kube-scheduler at
// their default ports on this machine, and each etcd. The embedded store stands in the place of an etcd.
const (
	managerPort, schedulerPort = 10257, 10259
	componentTimeout           = 20 * time.Second
	maxHealthText              = 10 << 10
)

// component is how one of them is asked.
type component struct {
	name string
	ask  func(context.Context) (healthy, message, problem string)
}

// components is builtin.Config.Components. All are asked at the same time.
func (p *Plane) components(ctx context.Context, name string) []builtin.Component {
	asked := []component{
		{"controller-manager", healthPage(managerPort, p.config.Egress)},
		{"scheduler", healthPage(schedulerPort, p.config.Egress)},
	}
	for i, check := range p.Storage.Members(componentTimeout) {
		asked = append(asked, component{"etcd-" + strconv.Itoa(i), storeHealth(check)})
	}
	asked = slices.DeleteFunc(asked, func(c component) bool { return name != "" && c.name != name })
	all := make([]builtin.Component, len(asked))
	var work sync.WaitGroup
	for i, c := range asked {
		work.Go(func() {
			all[i].Name = c.name
			all[i].Healthy, all[i].Message, all[i].Error = c.ask(ctx)
		})
	}
	work.Wait()
	return all
}

// storeHealth asks by a health check.
func storeHealth(check func(context.Context) error) func(context.Context) (healthy, message, problem string) {
	return func(ctx context.Context) (healthy, message, problem string) {
		if err := check(ctx); err != nil {
			return "False", "", err.Error()
		}
		return "True", "ok", ""
	}
}

// healthPage asks /healthz at a port of this machine, whatever its certificate is.
func healthPage(port int, from egress.Policy) func(context.Context) (healthy, message, problem string) {
	return func(ctx context.Context) (healthy, message, problem string) {
		transport := &http.Transport{DisableKeepAlives: true, DialContext: from.Dialer(net.Dialer{}).DialContext,
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
		client := &http.Client{Timeout: componentTimeout, Transport: transport}
		url := fmt.Sprintf("https://127.0.0.1:%d/healthz", port)
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return "Unknown", "", err.Error()
		}
		answer, err := client.Do(request)
		if err != nil {
			return "False", err.Error(), ""
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(io.LimitReader(answer.Body, maxHealthText))
		switch code := answer.StatusCode; {
		case err != nil:
			return "Unknown", "", err.Error()
		case code < 200 || code >= 400:
			return "False", fmt.Sprintf("HTTP probe failed with statuscode: %d", code), ""
		case code >= 300:
			return "Unknown", fmt.Sprintf("Probe terminated redirects, Response body: %s", text), ""
		}
		return "True", string(text), ""
	}
}
