package audit

import (
	"context"

	"plinth/internal/webhook"
)

// newWebhook returns the sink that posts lists of events to the webhook of a kubeconfig. A batch is retried after
// any error, since its events would be lost otherwise.
func newWebhook(o *WebhookOptions) (*sink, error) {
	remote, err := webhook.FromKubeconfig(o.ConfigFile)
	if err != nil {
		return nil, err
	}
	b := &sink{name: "webhook", encode: (*event).appendItem, overhead: int64(len(typeHead))}
	b.write = func(ctx context.Context, events [][]byte) error {
		body := listOf(events)
		return webhook.RetryAny(ctx, o.InitialBackoff, func() error {
			_, err := remote.Post(ctx, body)
			return err
		})
	}
	return b, nil
}

// listOf returns an EventList of encoded events.
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
