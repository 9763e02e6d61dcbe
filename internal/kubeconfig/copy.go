package kubeconfig

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"plinth/object"
)

// Copy is a context that is made from another one: it has a cluster of its own, in which something differs, and the
// user of the other context.
type Copy struct {
	Name    string       // of the context and of the cluster
	Cluster object.Value // what the item of the cluster has
	User    string
	// Credentials are what the item of the user has; null: the user is there already, in this file or in another one, and
	// belongs to other contexts, too.
	Credentials object.Value
}

// Errors of a Copy whose names are those of something else, and of one that was changed since it was added.
var (
	ErrTaken   = errors.New("the name is that of something else")
	ErrChanged = errors.New("it was changed")
)

func (c *Copy) lists() []list {
	text := object.StringOf
	all := []list{
		{"clusters", object.Fields("name", text(c.Name), "cluster", c.Cluster)},
		{"contexts", object.Fields("name", text(c.Name), "context", object.Fields(
			"cluster", text(c.Name), "user", text(c.User)))},
	}
	if !c.Credentials.IsNull() {
		all = append(all, list{"users", object.Fields("name", text(c.User), "user", c.Credentials)})
	}
	return all
}

// Text is a kubeconfig that has the copy alone, with the user, as its current context.
func (c *Copy) Text() ([]byte, error) { return c.in(nil) }

// in returns a kubeconfig with the copy. If the context is there already, with the same user and the URL of the same
// server, the rest is brought up to date; it is [ErrTaken] if one of the names is that of something else.
func (c *Copy) in(text []byte) ([]byte, error) {
	if len(text) > 0 {
		old, err := parsed(text)
		if err != nil {
			return nil, err
		}
		if err := c.taken(old); err != nil {
			return nil, err
		}
	}
	return merged(text, &addition{lists: c.lists(), context: c.Name})
}

// taken returns ErrTaken if a kubeconfig has something else by one of the names.
func (c *Copy) taken(old object.Value) error {
	context := itemOf(old.At("contexts"), c.Name).At("context")
	server := itemOf(old.At("clusters"), c.Name).At("cluster", "server").Str()
	if context.At("cluster").Str() == c.Name && context.At("user").Str() == c.User &&
		server == c.Cluster.At("server").Str() {
		return nil
	}
	for _, l := range c.lists() {
		name := l.item.At("name").Str()
		if item := itemOf(old.At(l.name), name); !item.IsNull() && !object.Equal(item, l.item) {
			return fmt.Errorf("%w: there is another %s in %s", ErrTaken, name, l.name)
		}
	}
	return nil
}

// out returns a kubeconfig without the copy. If it has the context, it has to have all of the copy as it was added,
// else it is [ErrChanged]; without the context, the result is the text. What other contexts use stays.
func (c *Copy) out(text []byte) ([]byte, error) {
	old, err := parsed(text)
	if err != nil {
		return nil, err
	}
	if itemOf(old.At("contexts"), c.Name).IsNull() {
		return text, nil
	}
	gone := map[string]string{}
	for _, l := range c.lists() {
		name := l.item.At("name").Str()
		if !object.Equal(itemOf(old.At(l.name), name), l.item) {
			return nil, fmt.Errorf("%w: %s of %s", ErrChanged, name, l.name)
		}
		gone[l.name] = name
	}
	for _, other := range old.At("contexts").Items() {
		if other.At("name").Str() == c.Name {
			continue
		}
		if other.At("context", "cluster").Str() == c.Name {
			delete(gone, "clusters")
		}
		if other.At("context", "user").Str() == c.User {
			delete(gone, "users")
		}
	}
	return without(text, old, gone)
}

// Add adds a copy to a file, in the way of [Write]. It is [ErrTaken] if one of its names is that of something else
// there.
func Add(ctx context.Context, path string, c *Copy) error { return write(ctx, path, c.in) }

// Drop removes from a file what [Add] has added, unless it was changed since ([ErrChanged]). A file that does not exist
// is not created.
func Drop(ctx context.Context, path string, c *Copy) error {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return write(ctx, path, c.out)
}
