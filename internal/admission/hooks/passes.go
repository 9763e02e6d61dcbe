package hooks

import "plinth/object"

// Passes is the state of the mutating plugins in one attempt of a write.
//
// The problem: plugins run in an order, and a later one may add what an earlier one would have wanted to see: a webhook
// adds a container, and the plugin that sets the image policy of all containers has run. So a change by a webhook or
// by a policy causes one second pass. All built-in plugins run again in it, which must be idempotent. A hook is called
// again only if it says that it may be (reinvocationPolicy), and if the object has changed since:
//
//	called in the second pass  ⇔  called in the first, and reinvocable,
//	                             and the object was changed after it by a hook of its plugin, or after its plugin
//
// There is no third pass: two hooks that undo each other would go on for ever.
type Passes struct {
	// Second says that this is the second pass, Wanted that there is to be one.
	Second, Wanted bool
	calls          map[string]*Calls
}

// Calls are the hooks that one plugin has called.
type Calls struct {
	// called are the reinvocable hooks that were called since the object last changed, and again those that are to be
	// called again, both by id. last is the object after the hooks of the first pass.
	called, again map[string]bool
	last          object.Value
}

// Begin returns the calls of a plugin for a pass that it begins with an object.
func (p *Passes) Begin(plugin string, obj object.Value) *Calls {
	c := p.calls[plugin]
	if c == nil {
		c = &Calls{}
		if p.calls == nil {
			p.calls = map[string]*Calls{}
		}
		p.calls[plugin] = c
	}
	if p.Second && !object.Equal(c.last, obj) {
		c.Changed()
	}
	return c
}

// Changed notes that the object has changed: what was called before is to be called again.
func (c *Calls) Changed() {
	if c.again == nil {
		c.again = map[string]bool{}
	}
	for id := range c.called {
		c.again[id] = true
	}
	clear(c.called)
}

// Again says whether a hook is to be called in the second pass.
func (c *Calls) Again(id string) bool { return c.again[id] }

// Called notes that a reinvocable hook was called.
func (c *Calls) Called(id string) {
	if c.called == nil {
		c.called = map[string]bool{}
	}
	c.called[id] = true
}

// End notes the object that the plugin leaves.
func (c *Calls) End(obj object.Value) { c.last = obj }
