package audit

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"plinth/internal/webhook"
)

// How often an event is sent to the webhook, and how the time between grows, as in the reference.
const (
	attempts      = 5
	backoffFactor = 1.5
	backoffJitter = 0.2
)

// newWebhook makes the backend that posts lists of events to the server of a kubeconfig.
func newWebhook(o *WebhookOptions) (*backend, error) {
	remote, err := webhook.FromKubeconfig(o.ConfigFile)
	if err != nil {
		return nil, err
	}
	b := &backend{name: "webhook", encode: (*event).appendItem, overhead: int64(len(typeHead))}
	b.write = func(ctx context.Context, events [][]byte) error {
		body := listOf(events)
		return retry(ctx, o.InitialBackoff, func() error {
			_, err := remote.Post(ctx, body)
			return err
		})
	}
	return b, nil
}

// listOf is an EventList.
func listOf(events [][]byte) []byte {
	size := 100
	for _, e := range events {
		size += len(e) + 1
	}
	body := append(make([]byte, 0, size), `{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":[`...)
	for i, e := range events {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, e...)
	}
	return append(body, "]}\n"...)
}

// retry calls a function until it succeeds, a few times, and waits longer each time.
func retry(ctx context.Context, wait time.Duration, call func() error) error {
	for attempt := 1; ; attempt++ {
		err := call()
		if err == nil || attempt == attempts {
			return err
		}
		timer := time.NewTimer(time.Duration(float64(wait) * (1 + backoffJitter*rand.Float64())))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return errors.Join(err, ctx.Err())
		}
		wait = time.Duration(float64(wait) * backoffFactor)
	}
}
