package engine

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/access"
	"plinth/internal/apierr"
	"plinth/internal/scenario"
	"plinth/internal/store"
	"plinth/object"
)

// playScript plays a script over each writer: see both, and player.step for the steps.
func playScript(t *testing.T, script string) {
	t.Helper()
	play := func(open func(*testing.T) servers) scenario.Play {
		return func(t *testing.T, steps []string) string {
			s := open(t)
			s.here.T, s.there.T = t, t
			p := &player{T: t, servers: s, made: map[string][]*Object{}, begun: map[string]*begunWrite{}}
			for _, line := range steps {
				p.step(line)
			}
			if len(p.begun) > 0 {
				t.Errorf("writes that were begun are not finished: %v", p.begun)
			}
			return p.printed.String()
		}
	}
	ways := map[string]scenario.Play{}
	for name, open := range writers {
		ways[name] = play(open)
	}
	scenario.Variants(t, script, ways)
}

// player plays a scenario with two servers.
type player struct {
	*testing.T
	servers
	printed strings.Builder
	made    map[string][]*Object // the versions that the scenario has written, by the name of the object
	begun   map[string]*begunWrite
	page    string // continue token of the last page
	ran     int    // how often an object was validated
}

// begunWrite is a write that has read its object and has not committed yet.
type begunWrite struct {
	resume chan struct{}
	result chan string
}

// step plays one step:
//
//	SERVER VERB NAME [OPTION…]    a request, to the server "here" or "there"; its answer is printed
//	begin SERVER VERB NAME [OPTION…] [reads=N]
//	                              a request that stops before its commit: where it reads the clock, for the N-th time
//	finish SERVER VERB NAME       that request goes on; its answer is printed
//	set SETTING                   a setting of the type Widget, or of Namespaces: see set
//
// "a" is a Widget in the namespace ns, "n/a" one in the namespace n, and "/n" the Namespace n. The verbs are:
//
//	create, update, patch, apply  spec=, finalizers=, annotations= set these members (JSON); version=N makes an update
//	                              conditional on the N-th version that the scenario has written of the object, and
//	                              manager= is who applies
//	delete                        uid=N makes it conditional on the UID of the N-th version
//	get, list, watch
//	page                          a page of two objects: the first one, or the one behind the last page
//	bind                          an operation, which sets spec.target
//	spoil, restore                write a value to the store that no object has; write the last version again
//
// A write with dry-run=true is one that does not commit, and with may=nothing the user may not create.
func (p *player) step(line string) {
	p.Helper()
	s := scenario.Parse(line)
	switch s.Word(0) {
	case "set":
		p.set(s.Word(1))
	case "begin":
		p.begin(s)
	case "finish":
		id := strings.Join(s.Words[1:], " ")
		w := p.begun[id]
		if w == nil {
			p.Fatalf("%s: no such write was begun", line)
		}
		delete(p.begun, id)
		close(w.resume)
		fmt.Fprintf(&p.printed, "%s: %s\n", id, <-w.result)
	default:
		fmt.Fprintf(&p.printed, "%s: %s\n", strings.Join(s.Words, " "), p.play(s, s.Words))
	}
	if err := s.Unused(); err != nil {
		p.Fatalf("%s: %v", line, err)
	}
}

// begin starts a write in a goroutine and returns once that has reached the point where it waits.
func (p *player) begin(s *scenario.Step) {
	p.Helper()
	b, times := p.server(s.Word(1)), 1
	if reads, ok := s.Option("reads"); ok {
		times, _ = strconv.Atoi(reads)
	}
	w := &begunWrite{resume: make(chan struct{}), result: make(chan string, 1)}
	stopped := make(chan struct{})
	wait := func() { close(stopped); <-w.resume }
	if times == 2 {
		b.beforeNaming(wait)
	} else {
		b.meanwhile(wait)
	}
	go func() { w.result <- p.play(s, s.Words[1:]) }()
	select {
	case <-stopped:
	case early := <-w.result:
		p.Fatalf("%v ended before it could stop: %s", s.Words, early)
	}
	p.begun[strings.Join(s.Words[1:], " ")] = w
}

// set changes what the type Widget, or Namespaces, do. From count-validations on, answers to writes say how often an
// object was validated since the scenario began.
func (p *player) set(what string) {
	p.Helper()
	switch what {
	case "widgets-are-created-on-update":
		p.here.widgets.CreateOnUpdate = true
	case "namespaces-are-held": // by what is in them: a delete marks them
		p.here.namespaces.Held = func(object.Value) bool { return true }
	case "count-validations":
		p.here.widgets.Validate = func(context.Context, object.Value) field.ErrorList { p.ran++; return nil }
	default:
		p.Fatalf("there is no setting %s", what)
	}
}

func (p *player) server(name string) *bench {
	p.Helper()
	if name != "here" && name != "there" {
		p.Fatalf("there is no server %q", name)
	}
	if name == "there" {
		return p.there
	}
	return p.here
}

// request is one for the object of a name.
func (p *player) request(b *bench, s *scenario.Step, name string) *Request {
	p.Helper()
	namespace, base, ok := strings.Cut(name, "/")
	rq := b.request(name)
	if ok && namespace == "" {
		rq = &Request{Resource: b.namespaces, Name: base}
	} else if ok {
		rq.Namespace, rq.Name = namespace, base
	}
	if dry, _ := s.Option("dry-run"); dry != "" {
		rq.DryRun = true
	}
	if may, _ := s.Option("may"); may != "" {
		rq.Authorizer = access.AuthorizerFunc(func(context.Context, *access.Attributes) (access.Decision, string, error) {
			return access.NoOpinion, "asked whether it may create", nil
		})
	}
	return rq
}

// body is the body of a write.
func (p *player) body(s *scenario.Step, rq *Request, name string) string {
	meta := `"name":"` + rq.Name + `"`
	for _, member := range []string{"finalizers", "annotations"} {
		if value, ok := s.Option(member); ok {
			meta += `,"` + member + `":` + value
		}
	}
	if v := p.version(s, "version", name); v != nil {
		meta += fmt.Sprintf(`,"resourceVersion":"%d"`, v.Revision)
	}
	body := `{"metadata":{` + meta + `}`
	if spec, ok := s.Option("spec"); ok {
		body += `,"spec":` + spec
	}
	return body + "}"
}

// version is the version of an object whose number is an option of a step, or nil.
func (p *player) version(s *scenario.Step, option, name string) *Object {
	p.Helper()
	number, ok := s.Option(option)
	if !ok {
		return nil
	}
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || n > len(p.made[name]) {
		p.Fatalf("there is no version %q of %s", number, name)
	}
	return p.made[name][n-1]
}

// play makes a request and returns what it answers: for a write, whether it has created or changed the object, and
// whether it took another number of commits than one.
func (p *player) play(s *scenario.Step, words []string) string {
	b, verb, name := p.server(words[0]), words[1], ""
	if len(words) > 2 {
		name = words[2]
	}
	rq := p.request(b, s, name)
	body := p.body(s, rq, name)
	before := p.newest()
	var result *Result
	var err error
	switch verb {
	case "create":
		rq.Name = ""
		result, err = b.Create(b.Context(), rq, b.parse(body))
	case "update":
		result, err = b.Update(b.Context(), rq, b.parse(body))
	case "patch":
		result, err = b.Patch(b.Context(), rq, Patch{Type: MergePatch, Body: []byte(body)})
	case "apply":
		rq.FieldManager, _ = s.Option("manager")
		kind := `{"apiVersion":"` + rq.Resource.APIVersion() + `","kind":"` + rq.Resource.Kind + `",`
		result, err = b.Apply(b.Context(), rq, b.parse(kind+body[1:]))
	case "delete":
		o := DeleteOptions{}
		if v := p.version(s, "uid", name); v != nil {
			o.PreconditionUID = v.Sidecar.UID
		}
		result, err = b.Delete(b.Context(), rq, o)
	case "bind":
		ran := 0
		if err = b.bind(b.Context(), func() { ran++ }); err == nil {
			return fmt.Sprintf("bound, computed %d times", ran)
		}
	case "get":
		if result, err = b.Get(b.Context(), rq, ""); err == nil {
			return "spec=" + b.specOf(result)
		}
	default:
		return p.read(b, verb, rq, name)
	}
	if err != nil {
		return p.refusal(err)
	}
	if result.Removed {
		return "removed"
	}
	return p.written(b, result, name, before)
}

// refusal prints an error. A UID in it is that of a version that the scenario has written: <a 2> is that of the second
// version of a.
func (p *player) refusal(err error) string {
	wire := apierr.From(err)
	message := wire.Message
	for name, versions := range p.made {
		for i, v := range versions {
			message = strings.ReplaceAll(message, v.Sidecar.UID, fmt.Sprintf("<%s %d>", name, i+1))
		}
	}
	return fmt.Sprintf("%d %s: %s", wire.Code, wire.Reason, message)
}

// written prints what a write has done, and remembers the version.
func (p *player) written(b *bench, result *Result, name string, before int64) string {
	did := "unchanged"
	if result.Created {
		did = "created"
	} else if result.Object.Revision > before {
		did = "changed"
	}
	if did != "unchanged" {
		p.made[name] = append(p.made[name], result.Object)
	}
	if n := p.newest() - before; (did != "unchanged") != (n == 1 && result.Object.Revision == before+1) {
		did += fmt.Sprintf(" at revision +%d of +%d", result.Object.Revision-before, n)
	}
	if result.Object.Sidecar.Deleting {
		did += ", is being deleted"
	}
	if spec := b.specOf(result); spec != "null" {
		did += ", spec=" + spec
	}
	if p.ran > 0 {
		did += fmt.Sprintf(", validated %d times", p.ran)
	}
	return did
}

// newest is the newest revision of the store.
func (p *player) newest() int64 {
	if _, err := p.there.store.Fresh(p.Context(), store.Key{}, true); err != nil {
		p.Error(err)
	}
	return p.there.store.Revision()
}

// read plays the other verbs.
func (p *player) read(b *bench, verb string, rq *Request, name string) string {
	newest := p.newest()
	switch verb {
	case "list", "page":
		o := ListOptions{}
		if verb == "page" {
			o.Limit, o.Continue = 2, p.page
		}
		list, err := b.List(b.Context(), rq, o)
		if err != nil {
			return p.refusal(err)
		}
		p.page = list.Continue
		var names []string
		for o := range list.Items {
			names = append(names, o.Key.Name)
		}
		return fmt.Sprintf("%s at revision %+d", strings.Join(names, " "), list.Revision-newest)
	case "watch":
		w, err := b.Watch(b.Context(), rq, WatchOptions{})
		if err != nil {
			return p.refusal(err)
		}
		defer w.Close()
		return fmt.Sprintf("begins at revision %+d", w.start-newest)
	case "spoil", "restore":
		data := []byte(`{"metadata":`)
		if verb == "restore" {
			data = p.made[name][len(p.made[name])-1].Data()
		}
		if _, err := b.store.Commit(p.Context(), nil, []store.Change{{Key: rq.key(), Data: data}}); err != nil {
			return err.Error()
		}
		return "done"
	}
	p.Errorf("there is no verb %s", verb)
	return ""
}

// specOf is the spec of a result as JSON, or null.
func (b *bench) specOf(r *Result) string {
	return string(object.AppendJSON(nil, b.value(r).At("spec")))
}
