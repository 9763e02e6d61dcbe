package webhooks

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"plinth/internal/admission/hooks"
	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/patch"
)

// Admit is mutating admission: it asks the hooks one after the other, in the order of their names, and each sees the
// object as the one before has left it.
func (p *Plugin) Admit(ctx context.Context, a *engine.Attributes, passes *hooks.Passes) error {
	all, err := p.candidates(ctx, a)
	if len(all) == 0 || err != nil {
		return err
	}
	round := round{
		Calls: passes.Begin("webhooks", a.Object), asked: hooks.Questions{Attributes: a}, second: passes.Second,
		labels: hooks.LabelsOf(a),
	}
	for i := range all {
		called, changed, err := p.admitBy(ctx, &all[i], &round)
		if err != nil {
			return err
		}
		if changed {
			round.Changed()
			passes.Wanted = true
		}
		if all[i].again && called {
			round.Called(all[i].id)
		}
	}
	round.End(a.Object)
	return nil
}

// round is one pass of this plugin.
type round struct {
	*hooks.Calls
	asked  hooks.Questions
	labels *hooks.Labels // of the object as the last hook has left it
	second bool
}

// nameOf names a hook in annotations.
func (r *round) nameOf(c *candidate) string {
	number := 0
	if r.second {
		number = 1
	}
	return fmt.Sprintf("round_%d_index_%d", number, c.index)
}

// admitBy asks one hook, if it is for the request, and says whether that has changed the object.
func (p *Plugin) admitBy(ctx context.Context, c *candidate, r *round) (called, changed bool, err error) {
	a := r.asked.Attributes
	if selected, err := c.selectors.Select(ctx, p.namespace, r.labels); !selected || err != nil {
		return false, false, err
	}
	q, err := r.asked.In(ctx, c.in)
	if err != nil {
		return false, false, apierr.NewInternal(err)
	}
	if meets, err := p.meets(ctx, c.hook, q); !meets || err != nil {
		return false, false, err
	}
	if r.second && !r.Again(c.id) {
		return false, false, nil
	}
	began := time.Now()
	changed, err = p.mutate(ctx, c, q, r)
	p.observe(ctx, c.hook, a, began, err)
	a.Annotate("mutation.webhook.admission.k8s.io/"+r.nameOf(c), annotation(mutated{c.configuration, c.name, changed}))
	if !failedOpen(c.hook, err) {
		return true, changed, refusal(err)
	}
	if !isCanceled(err) {
		a.Annotate("failed-open.mutation.webhook.admission.k8s.io/"+r.nameOf(c), c.name)
	}
	if ctx.Err() != nil {
		return true, false, timedOut()
	}
	return true, false, nil
}

// mutate asks a hook, and applies its patch to the object.
func (p *Plugin) mutate(ctx context.Context, c *candidate, q *hooks.Question, r *round) (bool, error) {
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
	switch operations, err := jsonpatch.DecodePatch(answer.patch); {
	case err != nil:
		err = fmt.Errorf("received undecodable patch in webhook response: %w", err)
		return false, &callError{c.name, err, http.StatusServiceUnavailable}
	case len(operations) == 0:
		return false, nil
	}
	switch {
	case q.Now.IsNull():
		return false, apierr.NewInternal(fmt.Errorf(
			"admission webhook %q attempted to modify the object, which is not supported for this operation", c.name))
	case answer.patchType != "JSONPatch":
		return false, &callError{c.name, fmt.Errorf("unsupported patch type %q", answer.patchType), 400}
	}
	patched, err := patch.JSON(q.Now, answer.patch, ctx.Err)
	if err != nil {
		return false, apierr.NewInternal(hooks.PatchError(err))
	}
	next, changed, err := q.Admitted(ctx, patched, q.Now, c.in, false)
	if err != nil {
		return false, apierr.NewInternal(err)
	}
	q.AnnotateRequest("patch.webhook.admission.k8s.io/"+r.nameOf(c), annotation(patchAnnotation{c.configuration, c.name,
		answer.patch, answer.patchType}))
	r.asked.Replace(next)
	r.labels = hooks.LabelsOf(r.asked.Attributes)
	return changed, nil
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
	text, _ := json.Marshal(v) // it has texts, and a patch that was parsed as JSON
	return string(text)
}
