package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/load"
)

// prepare makes the objects and the two users.
func (s *subject) prepare(ctx context.Context, many int) error {
	if !s.planes {
		return prepare(ctx, s.server.URL, many, &s.flood, &s.other)
	}
	first := load.New(s.server, 1)
	defer first.Close()
	for name, its := range map[string]*user{"flooded": &s.flood, "another": &s.other} {
		_, err := first.Do(ctx, load.Request{Method: http.MethodPost, Path: "/apis/plinth/v1alpha1/planes",
			Body: fmt.Appendf(nil, `{"apiVersion":"plinth/v1alpha1","kind":"Plane","metadata":{"name":%q}}`, name)})
		if err != nil {
			return err
		}
		var flood, other user
		if err := prepare(ctx, s.server.URL+"/clusters/"+name, many, &flood, &other); err != nil {
			return err
		}
		if *its = flood; its == &s.other {
			*its = other
		}
	}
	return nil
}

// prepare makes the objects and the two users of a control plane.
func prepare(ctx context.Context, url string, many int, flood, other *user) error {
	c := load.New(&harness.Server{URL: url}, 4)
	defer c.Close()
	for _, name := range []string{"few", "many", "written", "other"} {
		if err := c.Namespace(ctx, name); err != nil {
			return err
		}
	}
	const rbac = "/apis/rbac.authorization.k8s.io/v1/"
	post := func(path, body string) ([]byte, error) {
		return c.Do(ctx, load.Request{Method: http.MethodPost, Path: path, Body: []byte(body)})
	}
	if _, err := post(rbac+"clusterroles",
		`{"metadata":{"name":"flood"},"rules":[{"apiGroups":[""],"resources":["configmaps"],"verbs":["*"]},
			{"apiGroups":["`+backendGroup+`"],"resources":["things"],"verbs":["*"]}]}`); err != nil {
		return err
	}
	for name, made := range map[string]*user{"flood": flood, "other": other} {
		const accounts = "/api/v1/namespaces/other/serviceaccounts"
		_, err := post(accounts, fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
		_, second := post(rbac+"clusterrolebindings", fmt.Sprintf(`{"metadata":{"name":%q},"roleRef":{"kind":"ClusterRole",
			"apiGroup":"rbac.authorization.k8s.io","name":"flood"},"subjects":[{"kind":"ServiceAccount","name":%[1]q,
			"namespace":"other"}]}`, name))
		answer, third := post(accounts+"/"+name+"/token", `{"spec":{}}`)
		if err := errors.Join(err, second, third); err != nil {
			return err
		}
		var request struct{ Status struct{ Token string } }
		if err := json.Unmarshal(answer, &request); err != nil {
			return err
		}
		*made = user{url, request.Status.Token}
	}
	if _, err := post(configMaps("other"), `{"metadata":{"name":"one"},"data":{"k":"v"}}`); err != nil {
		return err
	}
	body := fmt.Sprintf(`{"metadata":{"generateName":"c-"},"data":{"k":%q}}`, strings.Repeat("x", 1000))
	return load.Each(16, few+many, func(i int) error {
		namespace := "few"
		if i >= few {
			namespace = "many"
		}
		_, err := post(configMaps(namespace), body)
		return err
	})
}

// measure prints a row: the GETs of the other user beside a flood.
func (s *subject) measure(f row, flooded *subject, lasts time.Duration) (err error) {
	if f.backend != "" {
		remove, failed := flooded.backend(context.Background(), f.backend)
		if failed != nil {
			return failed
		}
		defer func() { err = errors.Join(err, remove()) }()
	}
	var done func() (string, float64, error)
	if f.ask != nil {
		var err error
		if done, err = flooded.load(f.name); err != nil {
			return err
		}
	}
	before, err := load.CPU(flooded.server)
	if err != nil {
		return err
	}
	gets := exec.Command("nice", "-n", "-15", os.Args[0], probeCommand, s.other.url, s.other.token, lasts.String())
	gets.Stderr = os.Stderr
	text, err := gets.Output()
	if err != nil {
		return err
	}
	rate := "–"
	if done != nil {
		after, err := load.CPU(flooded.server)
		if err != nil {
			return err
		}
		var n float64
		if rate, n, err = done(); err != nil {
			return err
		}
		rate += fmt.Sprintf(", %.2f ms", millis(after-before)/max(1, n))
	}
	var took probed
	if err := json.Unmarshal(text, &took); err != nil {
		return err
	}
	if f.ask == nil {
		s.alone = took.P99
	}
	fmt.Printf("%-33s %-10s %6d %7.2f ms %7.2f ms %13.1f×  %s\n", f.name, s.name, took.N, millis(took.P50),
		millis(took.P99), took.P99.Seconds()/s.alone.Seconds(), rate)
	return nil
}

func millis(d time.Duration) float64 { return d.Seconds() * 1000 }

// load starts the process of a flood. The function that is returned ends it, and says how much was done in a second,
// and how many requests these were.
func (s *subject) load(name string) (func() (string, float64, error), error) {
	cmd, in, out, err := load.Copy(loadCommand, s.flood.url, s.flood.token, name)
	if err != nil {
		return nil, err
	}
	lines := bufio.NewReader(out)
	if _, err := lines.ReadString('\n'); err != nil {
		return nil, errors.Join(err, cmd.Wait())
	}
	return func() (string, float64, error) {
		in.Close()
		line, err := lines.ReadString('\n')
		if err := errors.Join(err, cmd.Wait()); err != nil {
			return "", 0, err
		}
		var rate, n float64
		var refused int
		if _, err := fmt.Sscan(line, &rate, &refused, &n); err != nil {
			return "", 0, err
		}
		if refused > 0 {
			return fmt.Sprintf("%.1f/s, %d refused", rate, refused), n, nil
		}
		return fmt.Sprintf("%.1f/s", rate), n, nil
	}, nil
}

func summary(took []time.Duration) probed {
	slices.Sort(took)
	n := len(took)
	return probed{N: n, P50: took[n/2], P99: took[n*99/100]}
}
