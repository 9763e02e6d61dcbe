package webhooks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/google/uuid"
	admissionregistration "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"plinth/internal/admission/hooks"
	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/internal/samplelog"
	"plinth/internal/webhook"
)

// callError says that a hook could not be asked, or that its answer is none. Whether the request is refused for that
// depends on the failure policy. code is what metrics show.
type callError struct {
	name   string
	reason error
	code   int
}

func (e *callError) Error() string {
	return fmt.Sprintf("failed calling webhook %q: %v", e.name, e.reason)
}

func (e *callError) Unwrap() error { return e.reason }

// timedOut is the answer to a request whose own time is over.
func timedOut() error { return apierr.NewTimeout("request did not complete within requested timeout") }

// call asks a hook. The error is a *callError, or a refusal of the hook or of the server.
func (p *Plugin) call(ctx context.Context, h *hook, q *hooks.Question) (*answer, error) {
	failed := func(code int, format string, args ...any) (*answer, error) {
		return nil, &callError{h.name, fmt.Errorf(format, args...), code}
	}
	if q.DryRun && h.sideEffects != string(admissionregistration.SideEffectClassNone) &&
		h.sideEffects != string(admissionregistration.SideEffectClassNoneOnDryRun) {
		return nil, apierr.NewBadRequest(fmt.Sprintf("admission webhook %q does not support dry run", h.name))
	}
	if h.version == "" {
		return failed(http.StatusBadRequest, "could not create admission objects: %w",
			errors.New("webhook does not accept known AdmissionReview versions (v1, v1beta1)"))
	}
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	deadline, _ := ctx.Deadline()
	// Whole seconds, rounded up: what the webhook is told in the query.
	timeout := max(time.Second, (time.Until(deadline) + time.Second - 1).Truncate(time.Second))
	uid := uuid.NewString()
	clients := p.clients
	if h.static {
		clients = p.ofStatic
	}
	text, err := clients.CallWithin(ctx, h.client, timeout, h.review(q, uid))
	if err != nil {
		code := http.StatusServiceUnavailable
		var status apierrors.APIStatus
		if errors.As(err, &status) {
			code = int(status.Status().Code)
		}
		return failed(code, "failed to call webhook: %w", err)
	}
	review, err := readReview(text, h.version)
	if err != nil {
		return failed(http.StatusServiceUnavailable, "failed to call webhook: %w", err)
	}
	a, err := readAnswer(review, h.version, uid, p.mutating)
	if err != nil {
		return failed(http.StatusServiceUnavailable, "received invalid webhook response: %w", err)
	}
	return a, nil
}

// note takes the warnings and annotations of an answer to the request.
func note(h *hook, q *hooks.Question, a *answer) {
	for key, value := range a.annotations {
		q.Annotate(h.name+"/"+key, value)
	}
	q.Warn(a.warnings...)
}

// failedOpen says whether an error of a call is no refusal, by the failure policy of the hook.
func failedOpen(h *hook, err error) bool {
	var call *callError
	return h.ignore && errors.As(err, &call)
}

// refusal is the error that the client gets for an error of a call.
func refusal(err error) error {
	var call *callError
	if errors.As(err, &call) {
		return apierr.NewInternal(call)
	}
	return err
}

// observe tells the metrics of a call and its error, and the log of the error.
func (p *Plugin) observe(ctx context.Context, h *hook, a *engine.Attributes, began time.Time, err error) {
	operation, took, code, kind := a.Operation, time.Since(began), http.StatusOK, ""
	var call *callError
	var refused *refusedError
	switch {
	case err == nil:
	case errors.As(err, &call):
		code = call.code
		if !h.ignore {
			kind = "calling_webhook_error"
		}
	case errors.As(err, &refused):
		code, kind = refused.answer.Code, "no_error"
	default:
		code, kind = 0, "apiserver_internal_error"
	}
	webhook.Waited(ctx, p.mutating, took)
	p.metrics.Called(h.name, p.mutating, operation, kind != "", code, took)
	if kind != "" && !(call != nil && errors.Is(call.reason, context.Canceled)) {
		p.metrics.Rejected(h.name, p.mutating, operation, kind, code)
	}
	if call != nil && h.ignore && !errors.Is(call.reason, context.Canceled) {
		p.metrics.FailedOpen(h.name, p.mutating)
	}
	if err != nil {
		p.report(ctx, h, a, err)
	}
}

// report logs that a hook has refused a request or could not be asked: whoever runs the server is to see that a hook
// fails open, and why requests are refused. The reference logs the same, as warnings.
func (p *Plugin) report(ctx context.Context, h *hook, a *engine.Attributes, err error) {
	var call *callError
	level, sort, message := slog.LevelWarn, &p.logs.failures, "calling a webhook has failed, failing closed"
	switch {
	case !errors.As(err, &call):
		level, sort, message = slog.LevelInfo, &p.logs.refusals, "rejected by a webhook"
	case isCanceled(err):
		level, message = slog.LevelInfo, "the client has gone while a webhook was called"
	case h.ignore:
		message = "calling a webhook has failed, failing open"
	}
	sort.Log(context.WithoutCancel(ctx), p.logger, level, message, "webhook", h.name, "operation", a.Operation,
		"resource", a.Request.Resource.Type().String(), "namespace", a.Request.Namespace, "name", samplelog.Clip(a.Name),
		"error", samplelog.Clip(err.Error()))
}

// refusedError is the refusal of a hook, as opposed to one of the server.
type refusedError struct{ answer *apierr.Error }

func (e *refusedError) Error() string { return e.answer.Error() }

func (e *refusedError) Unwrap() error { return e.answer }
