package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"plinth/conformance/internal/load"
)

// definitions measures custom types: what a definition takes until its objects are served, and in memory, before and
// after it was used, and after a restart.
func (s *subject) definitions(ctx context.Context, sizes []int) error {
	const part = "definitions"
	empty, held, err := s.idle(ctx)
	if err != nil {
		return err
	}
	have := 0
	for _, n := range sizes {
		err := s.spend(part, n, "create", n-have, func() error {
			for i := have; i < n; i++ {
				_, err := s.one.Discard(ctx, load.Request{Method: http.MethodPost,
					Path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", Body: definition(i)})
				if err != nil {
					return err
				}
				if err := s.served(ctx, i); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		have = n
		settle()
		if err := s.memory(part, n, "", empty); err != nil {
			return err
		}
		if err := s.held(ctx, part, n, held); err != nil {
			return err
		}
		if err := s.restart(part, n, empty); err != nil {
			return err
		}
		if err := s.spend(part, n, "use", n, func() error { return load.Each(8, n, s.use(ctx)) }); err != nil {
			return err
		}
		settle()
		if err := s.memory(part, n, "-used", empty); err != nil {
			return err
		}
	}
	return nil
}

// served waits until the objects of a definition can be listed.
func (s *subject) served(ctx context.Context, i int) error {
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		_, err := s.one.Discard(ctx, load.Request{Method: http.MethodGet, Path: things(i)})
		if err == nil || !load.Refused(err) || time.Since(began) > time.Minute {
			return err
		}
	}
}

// use creates an object of a type.
func (s *subject) use(ctx context.Context) func(i int) error {
	return func(i int) error {
		_, err := s.client.Discard(ctx, load.Request{Method: http.MethodPost, Path: things(i),
			Body: fmt.Appendf(nil, `{"apiVersion":"scale.example.com/v1","kind":"Thing%d","metadata":{"generateName":"a-"},`+
				`"spec":{"field1":{"name":"a"}}}`, i)})
		return err
	}
}

func things(i int) string { return fmt.Sprintf("/apis/scale.example.com/v1/thing%ds", i) }

// definition is a CustomResourceDefinition of 4 kB: a type of thirty fields.
func definition(i int) []byte {
	var properties strings.Builder
	for p := range 30 {
		if p > 0 {
			properties.WriteByte(',')
		}
		fmt.Fprintf(&properties, `"field%d":{"type":"object","description":"what it is for","properties":{`+
			`"name":{"type":"string"},"count":{"type":"integer","minimum":0}}}`, p)
	}
	return fmt.Appendf(nil, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",`+
		`"metadata":{"name":"thing%[1]ds.scale.example.com"},"spec":{"group":"scale.example.com","scope":"Cluster",`+
		`"names":{"plural":"thing%[1]ds","singular":"thing%[1]d","kind":"Thing%[1]d","listKind":"Thing%[1]dList"},`+
		`"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object",`+
		`"properties":{"spec":{"type":"object","properties":{%[2]s}}}}}}]}}`, i, properties.String())
}
