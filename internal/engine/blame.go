package engine

import (
	"cmp"
	"context"
	"strconv"
	"strings"

	"plinth/internal/store"
	"plinth/merge"
	"plinth/object"
)

// Blame is an object with the change that has given each field the value that it has (BEY-4).
type Blame struct {
	subject object.Value
	lines   []merge.Line
	// changes are those that have set something, the newest first, and by has the index of one for each path.
	changes []object.Value
	by      map[string]int
	// since is the revision of the oldest change that is known, unless it has created the object. What was before it was
	// purged, or is not kept.
	since  int64
	purged bool
}

// Limits of a blame: the changes that are read, and the bytes of their versions. What is older counts as unknown.
const (
	maxBlamed     = 10_000
	maxBlameBytes = 64 << 20
)

// Blame returns which change has set each field of an object, as it was at a resourceVersion; "": as it is.
func (e *Engine) Blame(ctx context.Context, rq *Request, resourceVersion string) (*Blame, error) {
	e = e.of(rq.Resource)
	v, err := e.versionOf(ctx, rq, resourceVersion)
	if err != nil {
		return nil, err
	}
	shown, err := rq.pastObject(ctx, v)
	if err != nil {
		return nil, err
	}
	owned, err := merge.Owners(shown, rq.Resource.Schema())
	if err != nil {
		return nil, err
	}
	fields, err := merge.NewBlame(shown, rq.Resource.Schema())
	if err != nil {
		return nil, err
	}
	b := &Blame{subject: subjectOf(shown, v.Revision), lines: owned.Lines(), by: map[string]int{}}
	read, bytes := 0, 0
	var failed error
	err = e.store.Changes(ctx, rq.key(), v.Revision+1, func(p *store.PastChange) bool {
		if b.purged = p.Purged; p.Purged {
			b.since = cmp.Or(b.since, p.Revision+1)
			return false
		}
		var before object.Value
		if before, failed = rq.pastObject(ctx, p.Old); failed != nil {
			return false
		}
		var set merge.Set
		if set, failed = fields.Before(before); failed != nil {
			return false
		}
		b.since = p.Revision
		if !set.Empty() {
			set.Each(func(path merge.Path) { b.by[path.String()] = len(b.changes) })
			b.changes = append(b.changes, object.MapOf(attributionOf(p)...))
		}
		if read++; p.Old != nil {
			bytes += p.Old.Len()
		}
		return !fields.Left().Empty() && read < maxBlamed && bytes < maxBlameBytes
	})
	if err = cmp.Or(err, failed); err != nil {
		return nil, pastFailed(err)
	}
	return b, nil
}

// subjectOf names an object in a document.
func subjectOf(obj object.Value, revision int64) object.Value {
	meta := obj.At("metadata")
	subject := []object.Member{
		{Key: "apiVersion", Value: obj.At("apiVersion")}, {Key: "kind", Value: obj.At("kind")},
		{Key: "name", Value: meta.At("name")},
	}
	for _, key := range []string{"namespace", "uid"} {
		if value, ok := meta.Get(key); ok {
			subject = append(subject, object.Member{Key: key, Value: value})
		}
	}
	return object.MapOf(append(subject, object.Member{
		Key: "resourceVersion", Value: object.StringOf(strconv.FormatInt(revision, 10)),
	})...)
}

// change is the index of the change that has set what is on a line; false: the line has no value of its own, or what
// has set it is not known any more. Within a value that is set as a whole, it is what has set that.
func (b *Blame) change(l merge.Line) (index int, ok bool) {
	if !l.At.Leaf {
		return 0, false
	}
	for n := len(l.At.Path); n > 0; n-- {
		if index, ok = b.by[l.At.Path[:n].String()]; ok {
			return index, true
		}
	}
	return 0, false
}

// YAML prints the object, with what has set it behind each line.
func (b *Blame) YAML() string {
	texts := make([]string, len(b.changes))
	for i, c := range b.changes {
		text := c.At("resourceVersion").Str()
		if at := c.At("time").Str(); at != "" { // without the fraction of a second, which is in the other form
			at, _, _ = strings.Cut(at, ".")
			text += " at " + strings.TrimSuffix(at, "Z") + "Z"
		}
		if user := c.At("user").Str(); user != "" {
			text += " by " + user
		}
		if as := c.At("impersonator").Str(); as != "" {
			text += " (" + as + ")"
		}
		if with := cmp.Or(c.At("manager").Str(), c.At("verb").Str()); with != "" {
			text += " with " + with
		}
		texts[i] = text
	}
	return merge.Annotated(b.lines, func(l merge.Line) string {
		i, ok := b.change(l)
		switch {
		case ok:
			return texts[i]
		case l.At.Leaf && b.since > 0:
			if b.purged {
				return "before " + strconv.FormatInt(b.since, 10) + " (purged)"
			}
			return "before " + strconv.FormatInt(b.since, 10)
		}
		return ""
	})
}

// LinesDocument lists the changes, and each line of the object's YAML with the one that has set it, as an index. A line
// of a value without it was set before the change of since, and if purged is true, that was purged; a structural one
// has no value of its own.
func (b *Blame) LinesDocument() object.Value {
	lines := make([]object.Value, len(b.lines))
	for i, l := range b.lines {
		members := []object.Member{
			{Key: "text", Value: object.StringOf(l.Text)}, {Key: "path", Value: object.StringOf(l.At.Path.String())},
		}
		if by, ok := b.change(l); ok {
			members = append(members, object.Member{Key: "change", Value: object.IntOf(int64(by))})
		} else if !l.At.Leaf {
			members = append(members, object.Member{Key: "structural", Value: object.BoolOf(true)})
		}
		lines[i] = object.MapOf(members...)
	}
	document := object.Fields("apiVersion", object.StringOf("plinth/v1"), "kind", object.StringOf("HistoryLines"),
		"object", b.subject, "since", object.StringOf(strconv.FormatInt(b.since, 10)),
		"changes", object.ListOf(b.changes...), "lines", object.ListOf(lines...))
	if b.purged {
		document = document.With("purged", object.BoolOf(true))
	}
	return document
}
