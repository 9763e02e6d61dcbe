package webhook

import (
	"context"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// The backoff of the reference (DefaultRetryBackoffWithInitialDelay in k8s.io/apiserver): 5 calls, the delay between
// them grows by half each time, and up to a fifth of it is added at random.
const (
	attempts = 5
	growth   = 1.5
	jitter   = 0.2
)

// RetryDelay is the first delay for webhooks of authentication and authorization.
const RetryDelay = 500 * time.Millisecond

// Retry runs call up to five times, until it returns nil or an error that is not temporary. delay is the time to the
// second call; the later ones take longer. It returns the last error of call, or the error of ctx if that had ended
// before the first call. If ctx would end during a delay, it returns without waiting.
func Retry(ctx context.Context, delay time.Duration, call func() error) error {
	return retry(ctx, delay, transient, call)
}

// RetryAny is Retry, but retries after any error. It is for webhooks that receive data which would be lost.
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
			delay+time.Duration(rand.Float64()*jitter*float64(delay))) {
			return err
		}
		delay = time.Duration(float64(delay) * growth)
	}
}

// transient says whether a retry may help: the connection broke, or the response says so. It matches
// DefaultShouldRetry in the reference.
func transient(err error) bool {
	if utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err) {
		return true
	}
	_, delays := apierrors.SuggestsClientDelay(err)
	return delays || apierrors.IsInternalError(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err)
}
