package webhooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/object"
	"plinth/patch"
)

// Passes is the state of the mutating plugins in one attempt of a write.
//
// The problem: plugins run in an order, and a later one may add what an earlier one would have wanted to see: a webhook
// adds a container, and the plugin that sets the image policy of all containers has run. So a change by a webhook or
// by a policy causes one second pass. All built-in plugins run again in it, which must be idempotent. A hook is called
// again only if it says that it may be (reinvocationPolicy), and if the object has changed since:
//
//	called in the second pass  ⇔  called in the first, and reinvocable,
//	                             and the object was changed after it by a hook, or by a plugin of the second pass
//
// There is no third pass: two hooks that undo each other would go on for ever.
type Passes struct {
	// Second says that this is the second pass, Wanted that there is to be one.
	Second, Wanted bool

	// called are the reinvocable hooks that were called since the object last changed, and again those that are to be
	// called again, both by id. last is the object after the hooks of the first pass.
	called, again map[string]bool
	last          object.Value
}

// changed notes that the object has changed: what was called before is to be called again.
func (s *Passes) changed() {
	if s.again == nil {
		s.again = map[string]bool{}
	}
	for id := range s.called {
		s.again[id] = true
	}
	clear(s.called)
}

// Admit is mutating admission: it asks the hooks one after the other, in the order of their names, and each sees the
// object as the one before has left it.
func (p *Plugin) Admit(ctx context.Context, a *engine.Attributes, passes *Passes) error {
	all := p.candidates(a)
	if len(all) == 0 {
		return nil
	}
	if passes.Second && !object.Equal(passes.last, a.Object) {
		passes.changed()
	}
	asked := questions{a: a}
	for i := range all {
		changed, err := p.admitBy(ctx, &all[i], &asked, passes)
		if err != nil {
			return err
		}
		if changed {
			passes.changed()
			passes.Wanted = true
		}
		if all[i].again && asked.called {
			if passes.called == nil {
				passes.called = map[string]bool{}
			}
			passes.called[all[i].id] = true
		}
	}
	passes.last = a.Object
	return nil
}

// admitBy asks one hook, and says whether it has changed the object.
func (p *Plugin) admitBy(ctx context.Context, c *candidate, asked *questions, passes *Passes) (changed bool,
	err error) {
	a := asked.a
	asked.called = false
	if selected, err := p.selects(ctx, c.hook, a, a.Object); !selected || err != nil {
		return false, err
	}
	q, err := asked.in(ctx, c.in)
	if err != nil {
		return false, apierr.NewInternal(err)
	}
	if len(c.conditions()) > 0 {
		if meets, err := p.meets(ctx, c.hook, a, input(q)); !meets || err != nil {
			return false, err
		}
	}
	if passes.Second && !passes.again[c.id] {
		return false, nil
	}
	asked.called = true
	began := time.Now()
	changed, err = p.mutate(ctx, c, q, asked, passes.Second)
	p.observe(c.hook, a.Operation, began, err)
	place := fmt.Sprintf("round_%d_index_%d", round(passes.Second), c.index)
	a.Annotate("mutation.webhook.admission.k8s.io/"+place, annotation(mutated{c.configuration, c.name, changed}))
	if !failedOpen(c.hook, err) {
		return changed, refusal(err)
	}
	if !isCanceled(err) {
		a.Annotate("failed-open.mutation.webhook.admission.k8s.io/"+place, c.name)
	}
	if ctx.Err() != nil {
		return false, timedOut()
	}
	return false, nil
}

func round(second bool) int {
	if second {
		return 1
	}
	return 0
}

// mutate asks a hook, and applies its patch to the object.
func (p *Plugin) mutate(ctx context.Context, c *candidate, q *question, asked *questions, second bool) (bool, error) {
	answer, err := p.call(ctx, c.hook, q)
	if err != nil {
		return false, err
	}
	note(c.hook, q, answer)
	if !answer.allowed {
		return false, &refusedError{denied(c.name, answer.result)}
	}
	if len(answer.patch) == 0 {
		return false, nil
	}
	undecodable := func(err error) error {
		return &callError{c.name, fmt.Errorf("received undecodable patch in webhook response: %w", plain(err)), 503}
	}
	if err := patch.CheckSyntax(answer.patch); err != nil {
		return false, undecodable(err)
	}
	var operations []json.RawMessage
	if err := json.Unmarshal(answer.patch, &operations); err == nil && len(operations) == 0 {
		return false, nil
	}
	switch {
	case q.obj.IsNull():
		return false, apierr.NewInternal(fmt.Errorf(
			"admission webhook %q attempted to modify the object, which is not supported for this operation", c.name))
	case answer.patchType != "JSONPatch":
		return false, &callError{c.name, fmt.Errorf("unsupported patch type %q", answer.patchType), 400}
	}
	patched, err := patch.JSON(q.obj, answer.patch, ctx.Err)
	if errors.Is(err, patch.ErrMalformed) {
		return false, undecodable(err)
	}
	if err != nil {
		return false, apierr.NewInternal(plain(err))
	}
	next, changed, err := q.Admitted(ctx, patched, q.obj, c.in)
	if err != nil {
		return false, apierr.NewInternal(err)
	}
	place := fmt.Sprintf("round_%d_index_%d", round(second), c.index)
	q.AnnotateRequest("patch.webhook.admission.k8s.io/"+place, annotation(patchAnnotation{c.configuration, c.name,
		answer.patch, answer.patchType}))
	asked.a.Object = next
	asked.made = nil // every version is converted from the new object
	return changed, nil
}

// plain is an error of a patch as the reference words it: without its kind.
func plain(err error) error {
	text := err.Error()
	for _, kind := range []error{patch.ErrMalformed, patch.ErrUnprocessable} {
		text = strings.TrimPrefix(text, kind.Error()+": ")
	}
	return errors.New(text)
}

// mutated and patchAnnotation are the values of audit annotations.
type mutated struct {
	Configuration string `json:"configuration"`
	Webhook       string `json:"webhook"`
	Mutated       bool   `json:"mutated"`
}

type patchAnnotation struct {
	Configuration string          `json:"configuration"`
	Webhook       string          `json:"webhook"`
	Patch         json.RawMessage `json:"patch,omitempty"`
	PatchType     string          `json:"patchType,omitempty"`
}

func annotation(v any) string {
	text, err := json.Marshal(v)
	if err != nil { // it was parsed from JSON
		return err.Error()
	}
	return string(text)
}
