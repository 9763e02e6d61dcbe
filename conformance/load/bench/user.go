package main

import (
	"context"
	"errors"
	"net/http"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/load"
)

// rules gives an ordinary user all verbs on the resources of the rows, in their namespace.
func (b *bench) rules(ctx context.Context) error {
	const group = "/apis/rbac.authorization.k8s.io/v1/namespaces/" + namespace
	for path, body := range map[string]string{
		group +
			"/roles": `{"metadata":{"name":"bench"},"rules":[{"apiGroups":["","apps"],"resources":["pods","deployments"],"verbs":["*"]}]}`,
		group +
			"/rolebindings": `{"metadata":{"name":"bench"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"bench"},` +
			`"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"somebody"}]}`,
	} {
		_, err := b.one.Discard(ctx, load.Request{Method: http.MethodPost, Path: path, Body: []byte(body)})
		var status *load.StatusError
		if err != nil && !(errors.As(err, &status) && status.Code == http.StatusConflict) {
			return err
		}
	}
	return nil
}

// against measures what the server spends on requests of a user with roles, divided by what it spends on those of the
// administrator. The two take turns of less than a second, each first every other time, so that other load on the
// machine affects both.
func (b *bench) against(ctx context.Context, key string, from, to, piece int,
	ask func(i int, token string) error) error {
	if from == 0 {
		if err := b.rules(ctx); err != nil {
			return err
		}
	}
	var spent [2]float64
	for n := 0; from < to; n, from = n+1, from+piece {
		for turn := range 2 {
			who := (n + turn) % 2
			before, err := load.CPU(b.server)
			if err != nil {
				return err
			}
			for i := from; i < min(from+piece, to); i++ {
				if err := ask(2*i+turn, [...]string{harness.AdminToken, harness.UserToken}[who]); err != nil {
					return err
				}
			}
			after, err := load.CPU(b.server)
			if err != nil {
				return err
			}
			spent[who] += (after - before).Seconds()
		}
	}
	b.add(key, spent[1], spent[0])
	return nil
}

func (b *bench) userGet(ctx context.Context, from, to int) error {
	return b.against(ctx, "user-get", from, to, 1000, func(i int, token string) error {
		_, err := b.one.Discard(ctx, load.Request{Method: http.MethodGet, Path: podsPath + "/" + podName(i%b.pods),
			Token: token})
		return err
	})
}

func (b *bench) userApply(ctx context.Context, from, to int) error {
	return b.against(ctx, "user-apply", from, to, 200, func(i int, token string) error {
		rq := applied(-2 - i)
		rq.Token = token
		_, err := b.one.Discard(ctx, rq)
		return err
	})
}
