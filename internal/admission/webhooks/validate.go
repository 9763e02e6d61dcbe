package webhooks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"plinth/internal/admission/hooks"
	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/internal/execution"
)

// Validate is validating admission: it asks all hooks at the same time. If several refuse, the first one in the order
// of names is the answer.
func (p *Plugin) Validate(ctx context.Context, a *engine.Attributes) error {
	all, err := p.candidates(ctx, a)
	if len(all) == 0 || err != nil {
		return err
	}
	asked, labels := hooks.Questions{Attributes: a}, hooks.LabelsOf(a)
	var calls []*verdict
	for i := range all {
		c := &all[i]
		if selected, err := c.selectors.Select(ctx, p.namespace, labels); err != nil {
			return err
		} else if !selected {
			continue
		}
		q, err := asked.In(ctx, c.in)
		if err != nil {
			return apierr.NewInternal(err)
		}
		if meets, err := p.meets(ctx, c.hook, q); err != nil {
			return err
		} else if !meets {
			continue
		}
		calls = append(calls, &verdict{hook: c.hook, question: q})
	}
	if len(calls) == 0 {
		return nil
	}
	if ctx.Err() != nil {
		return timedOut()
	}
	execution.Outside(ctx, func() { p.askAll(ctx, calls) })
	if err := p.judge(a, calls); err != nil {
		return err
	}
	if ctx.Err() != nil { // a hook that failed open may have taken all of the request's time
		return timedOut()
	}
	return nil
}

// verdict is what a validating hook says.
type verdict struct {
	hook     *hook
	question *hooks.Question
	answer   *answer
	err      error
}

// askAll asks all hooks, and returns when all have answered.
func (p *Plugin) askAll(ctx context.Context, calls []*verdict) {
	var wait sync.WaitGroup
	for _, v := range calls[1:] {
		wait.Go(func() { p.ask(ctx, v) })
	}
	p.ask(ctx, calls[0]) // one of them needs no goroutine
	wait.Wait()
}

// ask asks one hook. A panic is an error of the request and not the end of the server.
func (p *Plugin) ask(ctx context.Context, v *verdict) {
	defer func() {
		if r := recover(); r != nil {
			v.err = apierr.NewInternal(fmt.Errorf("ValidatingAdmissionWebhook/%v has panicked: %v", v.hook.name, r))
		}
	}()
	began := time.Now()
	v.answer, v.err = p.call(ctx, v.hook, v.question)
	if v.err == nil && !v.answer.allowed {
		v.err = &refusedError{denied(v.hook.name, v.answer.result)}
	}
	p.observe(ctx, v.hook, v.question.Attributes, began, v.err)
}

// judge takes the warnings and annotations of all answers to the request, and returns the first refusal.
func (p *Plugin) judge(a *engine.Attributes, calls []*verdict) error {
	var first error
	for i, v := range calls {
		if v.answer != nil {
			note(v.hook, v.question, v.answer)
		}
		switch {
		case v.err == nil:
		case failedOpen(v.hook, v.err):
			if !isCanceled(v.err) {
				a.Annotate(fmt.Sprintf("failed-open.validating.webhook.admission.k8s.io/round_0_index_%d", i), v.hook.name)
			}
		case first == nil:
			first = refusal(v.err)
		}
	}
	return first
}

// isCanceled says whether a call failed because the client of the request has gone.
func isCanceled(err error) bool { return errors.Is(err, context.Canceled) }
