package webhook

import (
	"context"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// How often a webhook is asked while its errors may pass, and how much longer is waited each time; a fifth of that is
// left to chance. The numbers are the reference's.
const (
	attempts = 5
	growth   = 1.5
	chance   = 0.2
)

// RetryDelay is how long the webhooks of authentication and authorization are waited for before they are asked again
// for the first time.
const RetryDelay = 500 * time.Millisecond

// Retry calls a webhook until it answers, with an error that will not pass included, or five times in all, first after
// delay and then after longer and longer pauses. The error is the last one of the webhook, or that of ctx where it was
// not called at all.
func Retry(ctx context.Context, delay time.Duration, call func() error) error {
	return retry(ctx, delay, passing, call)
}

// RetryAny does the same, and calls again after any error: what is sent would be lost otherwise.
func RetryAny(ctx context.Context, delay time.Duration, call func() error) error {
	return retry(ctx, delay, func(error) bool { return true }, call)
}

func retry(ctx context.Context, delay time.Duration, again func(error) bool, call func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for left := attempts; ; left-- {
		err := call()
		if err == nil || left == 1 || !again(err) || !sleep(ctx,
			delay+time.Duration(rand.Float64()*chance*float64(delay))) {
			return err
		}
		delay = time.Duration(float64(delay) * growth)
	}
}

// passing says whether an error may be gone when the webhook is asked again: a connection that broke, or an answer that
// says so.
func passing(err error) bool {
	if utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err) {
		return true
	}
	_, delays := apierrors.SuggestsClientDelay(err)
	return delays || apierrors.IsInternalError(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err)
}
