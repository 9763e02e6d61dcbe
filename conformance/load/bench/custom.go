package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"plinth/conformance/internal/load"
)

const (
	definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	ruledPath       = "/apis/ruled.example.com/v1/namespaces/" + namespace + "/ruleds"
	ruledObjects    = 3000
)

// ruled returns a definition with twenty cheap rules, about integers and strings.
func ruled(group, plural, kind string) []byte {
	var properties, rules []string
	for i := range 10 {
		properties = append(properties,
			fmt.Sprintf(`"n%d":{"type":"integer","minimum":0,"maximum":1000},"s%d":{"type":"string","maxLength":64}`, i, i))
		rules = append(rules,
			fmt.Sprintf(
				`{"rule":"self.n%d <= self.limit","message":"n%d is above the limit"},{"rule":"self.s%d.startsWith('s') && self.s%d.size() < 60"}`, i, i, i, i))
	}
	return fmt.Appendf(nil, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"%[2]s.%[1]s"},
"spec":{"group":"%[1]s","scope":"Namespaced","names":{"plural":"%[2]s","singular":"%[4]s","kind":"%[3]s","listKind":"%[3]sList"},
"versions":[{"name":"v1","served":true,"storage":true,"subresources":{"status":{}},"schema":{"openAPIV3Schema":{"type":"object","required":["spec"],"properties":{
"spec":{"type":"object","required":["limit"],"x-kubernetes-validations":[%[5]s],"properties":{%[6]s,"limit":{"type":"integer"},
"ports":{"type":"array","maxItems":16,"x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["port"],"items":{"type":"object","required":["port"],"properties":{"port":{"type":"integer"},"name":{"type":"string","maxLength":32}}}}}},
"status":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}}]}}`,
		group, plural, kind, strings.ToLower(kind), strings.Join(rules, ","), strings.Join(properties, ","))
}

// ruledObject returns an object of the definition ruled that satisfies all its rules.
func ruledObject(name string, n int) []byte {
	var fields []string
	for i := range 10 {
		fields = append(fields, fmt.Sprintf(`"n%d":%d,"s%d":"s%d"`, i, (n+i)%1000, i, n))
	}
	return fmt.Appendf(nil,
		`{"apiVersion":"ruled.example.com/v1","kind":"Ruled","metadata":{"name":"%s","labels":{"app":"web"}},"spec":{"limit":1000,%s,"ports":[{"port":80,"name":"http"},{"port":443,"name":"https"}]}}`,
		name, strings.Join(fields, ","))
}

// usable waits until a type is served.
func (b *bench) usable(ctx context.Context, path string) error {
	for {
		_, err := b.client.Discard(ctx, load.Request{Method: http.MethodGet, Path: path})
		if err == nil {
			return nil
		}
		var status *load.StatusError // 404 until the type is served, 429 while its storage starts
		if !errors.As(err, &status) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}

// customCreate adds the custom objects that later rows work on.
func (b *bench) customCreate(ctx context.Context, from, to int) error {
	if from == 0 {
		_, err := b.client.Discard(ctx, load.Request{Method: http.MethodPost, Path: definitionsPath,
			Body: ruled("ruled.example.com", "ruleds", "Ruled")})
		if err != nil {
			return b.refused(err, "custom-create", "custom-get", "custom-list", "custom-apply")
		}
		if err := b.usable(ctx, ruledPath); err != nil {
			return err
		}
		// The first one compiles the rules; the reference sleeps two seconds before it.
		if _, err := b.client.Discard(ctx, load.Request{Method: http.MethodPost, Path: ruledPath,
			Body: ruledObject("first", 0)}); err != nil {
			return err
		}
	}
	return b.spend("custom-create", to-from, func() error {
		return load.Each(connections, to-from, func(i int) error {
			_, err := b.client.Discard(ctx, load.Request{Method: http.MethodPost, Path: ruledPath,
				Body: ruledObject(fmt.Sprintf("r-%05d", from+i), from+i)})
			return err
		})
	})
}

func (b *bench) customGet(ctx context.Context, from, to int) error {
	return b.spend("custom-get", to-from, func() error {
		return load.Each(8, to-from, func(i int) error {
			_, err := b.one.Discard(ctx, load.Request{Method: http.MethodGet,
				Path: fmt.Sprintf("%s/r-%05d", ruledPath, (from+i)%ruledObjects)})
			return err
		})
	})
}

func (b *bench) customList(ctx context.Context) error {
	return b.listAgain(ctx, "custom-list", ruledPath)
}

func (b *bench) customApply(ctx context.Context, from, to int) error {
	apply := func(i int) load.Request {
		return load.Request{Method: http.MethodPatch, ContentType: "application/apply-patch+yaml",
			Path: ruledPath + "/applied?fieldManager=bench", Body: ruledObject("applied", i)}
	}
	if _, err := b.one.Discard(ctx, apply(999)); err != nil {
		return b.refused(err, "custom-apply")
	}
	return b.spend("custom-apply", to-from, func() error {
		for i := from; i < to; i++ {
			if _, err := b.one.Discard(ctx, apply(i)); err != nil {
				return err
			}
		}
		return nil
	})
}

// crdRules creates 200 definitions with rules, one after the other: the next one when a list of the objects of the last
// one is answered.
func (b *bench) crdRules(ctx context.Context) error {
	const n = 200
	began := time.Now()
	for i := range n {
		group := fmt.Sprintf("g%d.rules.example.com", i)
		_, err := b.client.Discard(ctx, load.Request{Method: http.MethodPost, Path: definitionsPath,
			Body: ruled(group, "ruleds", "Ruled")})
		if err != nil {
			return b.refused(err, "crd-rules")
		}
		if err := b.usable(ctx, "/apis/"+group+"/v1/namespaces/"+namespace+"/ruleds"); err != nil {
			return err
		}
	}
	b.set("crd-rules", float64(time.Since(began).Microseconds())/1000/n)
	return nil
}
