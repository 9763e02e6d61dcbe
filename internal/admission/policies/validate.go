package policies

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"plinth/internal/admission/hooks"
	"plinth/internal/apierr"
	"plinth/internal/cel"
	"plinth/internal/engine"
	"plinth/object"
)

// Validate is validating admission: it evaluates all policies, and refuses with the first refusal of those whose
// binding says so.
func (p *Plugin) Validate(ctx context.Context, a *engine.Attributes) error {
	steps, err := p.steps(ctx, a)
	if len(steps) == 0 || err != nil {
		return err
	}
	v := validating{session: p.session(ctx, a)}
	for i := range steps {
		s := &steps[i]
		if s.err != nil {
			if !s.ignore {
				v.deny(s, &decision{message: s.err.Error()})
			}
			continue
		}
		if err := v.step(s); err != nil {
			return err
		}
	}
	v.publish()
	if v.denied == nil {
		return nil
	}
	return v.denied
}

// validating is the validating admission of one request.
type validating struct {
	*session
	denied   *apierr.Error // the first refusal
	failures []failure
	notes    []note
}

// decision is what one expression of a policy says against a request.
type decision struct {
	message, reason string
	failure         string // the kind of the error, for metrics
	took            time.Duration
}

// The kinds of errors, for metrics.
const (
	noError      = "no_error"
	compileError = "compile_error"
	outOfBudget  = "out_of_budget"
	invalidError = "invalid_error"
)

// failureOf is the kind of an error of an expression, by its text.
func failureOf(text string) string {
	switch {
	case strings.HasPrefix(text, "compilation"):
		return compileError
	case strings.HasPrefix(text, cel.ErrOutOfBudget.Error()):
		return outOfBudget
	}
	return invalidError
}

// step evaluates a policy with the params of one binding. Without any it reads the namespace all the same, as in the
// reference: the request is refused if there is none.
func (v *validating) step(s *step) error {
	var q *hooks.Question
	if len(s.params) > 0 {
		var err error
		if q, err = v.asked.In(v.ctx, s.in); err != nil {
			if !s.ignore {
				v.deny(s, &decision{message: fmt.Sprintf(
					"failed to configure binding: failed to convert object version: %v", err)})
			}
			return nil
		}
	}
	if err := v.readNamespace(); err != nil {
		return apierr.From(err)
	}
	for _, param := range s.params {
		v.evaluate(s, s.program.Get(), q, param)
	}
	return nil
}

// evaluate evaluates a policy with one param.
func (v *validating) evaluate(s *step, of *program, q *hooks.Question, param object.Value) {
	meets, err := v.meets(s, of, q, param)
	if err != nil {
		v.failed(s, 0, err.Error(), 0)
		return
	}
	if !meets {
		return
	}
	on := v.input(q, param)
	values := of.scope.Evaluate(v.ctx, on, cel.PolicyBudget)
	results := make([]result, len(of.validations))
	for i := range of.validations {
		began := time.Now()
		holds, err, stop := values.Test(of.validations[i].expression)
		if stop != nil {
			v.failed(s, 0, stop.Error(), 0)
			return
		}
		results[i] = result{holds: holds, err: err, took: time.Since(began)}
	}
	stop := v.messages(values, of, results, on)
	annotations, spent := v.annotations(of, q, param)
	if spent != nil {
		v.failed(s, 0, spent.Error(), 0)
		return
	}
	for i := range results {
		r := &results[i]
		switch {
		case r.err != nil:
			v.failed(s, i, r.err.Error(), r.took)
		case stop != nil:
			v.failed(s, i, fmt.Sprintf("failed messageExpression: %v", stop), r.took)
		case !r.holds:
			v.decide(s, i, &decision{message: r.text, reason: of.validations[i].reason, took: r.took,
				failure: failureOf(r.text)})
		}
	}
	for i, r := range annotations {
		v.annotate(s, of.annotations[i].key, r)
	}
}

// result is that of one expression. text is the value of an annotation, or the message of a validation that is false.
type result struct {
	holds bool
	text  string
	err   error
	took  time.Duration
}

// messages sets the messages of the validations that are false. The expressions of all messages are evaluated, as their
// cost counts. stop says that it did: then there are no messages, and even a validation that holds is an error.
func (v *validating) messages(values *cel.Evaluation, of *program, results []result, on *cel.AdmissionInput) (
	stop error) {
	var composed *cel.Evaluation
	for i := range of.validations {
		rule, r := &of.validations[i], &results[i]
		if rule.message != nil {
			if composed == nil {
				unauthorized := *on
				unauthorized.Unauthorized = true
				composed = values.Continue(&unauthorized)
			}
			// An error is none of the request: there is another message.
			text, _, stop := composed.Text(rule.message)
			if stop != nil {
				return stop
			}
			r.text = usable(text)
		}
		if r.holds || r.err != nil {
			continue // nobody asks for it
		}
		if r.text == "" {
			r.text = strings.TrimSpace(rule.text)
		}
		if r.text == "" {
			r.text = "failed expression: " + strings.TrimSpace(rule.source)
		}
	}
	return nil
}

// usable is the message that an expression has made; "" if it is too long, or has several lines.
func usable(text string) string {
	text = strings.TrimSpace(text)
	if len(text) > cel.MaxMessage || strings.Contains(text, "\n") {
		return ""
	}
	return text
}

// failed takes an error of an expression: it counts like a refusal, unless the policy ignores errors.
func (v *validating) failed(s *step, index int, message string, took time.Duration) {
	d := &decision{message: message, failure: failureOf(message), took: took}
	if s.ignore {
		v.metrics.Checked(s.policy.name, s.binding.name, d.failure, "allow", took)
		return
	}
	v.decide(s, index, d)
}

// decide does what the binding says for a validation that is not met.
func (v *validating) decide(s *step, index int, d *decision) {
	for _, action := range s.binding.actions {
		switch action {
		case "Deny":
			v.deny(s, d)
		case "Audit":
			v.failures = append(v.failures, failure{Message: d.message, Policy: s.binding.policy, Binding: s.binding.name,
				ExpressionIndex: index, ValidationActions: s.binding.actions})
		case "Warn":
			v.asked.Warn(fmt.Sprintf("Validation failed for ValidatingAdmissionPolicy '%s' with binding '%s': %s",
				s.policy.name, s.binding.name, d.message))
		default:
			continue
		}
		v.metrics.Checked(s.policy.name, s.binding.name, d.failure, strings.ToLower(action), d.took)
	}
}

// codes are those of the reasons that a validation may have.
var codes = map[string]int{
	"Unauthorized": http.StatusUnauthorized, "Forbidden": http.StatusForbidden,
	"RequestEntityTooLarge": http.StatusRequestEntityTooLarge,
}

// deny refuses the request, unless it has been refused.
func (v *validating) deny(s *step, d *decision) {
	if v.denied != nil {
		return
	}
	by := ""
	if s.binding != nil {
		by = fmt.Sprintf(" with binding '%s'", s.binding.name)
	}
	message := fmt.Sprintf("ValidatingAdmissionPolicy '%s'%s denied request: %s", s.policy.name, by, d.message)
	v.denied = hooks.Forbidden(v.asked.Attributes, message)
	v.denied.Reason, v.denied.Code = "Invalid", http.StatusUnprocessableEntity
	if d.reason != "" {
		v.denied.Reason = apierr.Reason(d.reason)
	}
	if code := codes[d.reason]; code != 0 {
		v.denied.Code = code
	}
	v.denied.Details.Causes = append(v.denied.Details.Causes, apierr.Cause{Message: message})
}

// failure is a validation that is not met, in the audit event.
type failure struct {
	Message           string   `json:"message"`
	Policy            string   `json:"policy"`
	Binding           string   `json:"binding"`
	ExpressionIndex   int      `json:"expressionIndex"`
	ValidationActions []string `json:"validationActions"`
}

// note is an audit annotation, with the values that bindings and params have made of it.
type note struct {
	key    string
	values []string
}

const (
	maxFailures  = 50       // in an audit event
	maxNoteBytes = 10 << 10 // of a value
)

// annotations evaluates the audit annotations of a policy. They see the whole namespace, and may ask nobody about
// access.
func (v *validating) annotations(of *program, q *hooks.Question, param object.Value) ([]result, error) {
	if len(of.annotations) == 0 {
		return nil, nil
	}
	on := v.input(q, param)
	on.Namespace, on.Unauthorized = v.whole, true
	values := of.scope.Evaluate(v.ctx, on, cel.PolicyBudget)
	results := make([]result, len(of.annotations))
	for i := range of.annotations {
		began := time.Now()
		text, err, stop := values.Text(of.annotations[i].value)
		if stop != nil {
			return nil, stop
		}
		results[i] = result{text: text, err: err, took: time.Since(began)}
	}
	return results, nil
}

// annotate takes the result of an audit annotation. An error of one refuses the request whatever the binding says.
func (v *validating) annotate(s *step, key string, r result) {
	if r.err != nil {
		if !s.ignore {
			d := &decision{message: r.err.Error(), failure: failureOf(r.err.Error()), took: r.took}
			v.deny(s, d)
			v.metrics.Checked(s.policy.name, s.binding.name, d.failure, "deny", d.took)
		}
		return
	}
	if text := strings.TrimSpace(r.text); text != "" {
		v.note(s.policy.name+"/"+key, text[:min(len(text), maxNoteBytes)])
	}
}

// note notes a value of an audit annotation.
func (v *validating) note(key, value string) {
	i := slices.IndexFunc(v.notes, func(n note) bool { return n.key == key })
	if i < 0 {
		i = len(v.notes)
		v.notes = append(v.notes, note{key: key})
	}
	if n := &v.notes[i]; !slices.Contains(n.values, value) {
		n.values = append(n.values, value)
	}
}

// publish adds the annotations to the audit event.
func (v *validating) publish() {
	for _, n := range v.notes {
		v.asked.Annotate(n.key, strings.Join(n.values, ", "))
	}
	if len(v.failures) == 0 {
		return
	}
	text, _ := json.Marshal(v.failures[:min(len(v.failures), maxFailures)]) // texts and numbers can be printed
	v.asked.Annotate("validation.policy.admission.k8s.io/validation_failure", string(text))
}
