package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"plinth/internal/backup/remote"
)

// FromURL is the store at a URL, which is that of an archive, or of a continuous backup: what is there decides. said is
// as in OpenBucket.
func FromURL(ctx context.Context, text string, said func(line string), show Show) (Source, error) {
	b, name, err := openObject(text, said)
	if err != nil {
		return nil, err
	}
	if name == "" {
		return FromBucket(b, show), nil
	}
	items, err := b.List(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", text, err)
	}
	archive, size, err := atURL(items, name)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", text, err)
	case archive:
		return fromObject(b, name, size, show), nil
	}
	if b, err = OpenBucket(text, said); err != nil {
		return nil, err
	}
	return FromBucket(b, show), nil
}

// atURL says what of the objects in a list has a name: an archive of a size, or else a continuous backup. An object
// storage can have both.
func atURL(items []remote.Item, name string) (archive bool, size int64, err error) {
	continuous := false
	for _, item := range items {
		switch item.Name {
		case name:
			archive, size = true, item.Size
		case name + "/" + documentName:
			continuous = true
		}
	}
	switch {
	case archive && continuous:
		err = errors.New("it is an archive, and there is a continuous backup below it; the latter is the URL with a / at its end")
	case !archive && !continuous:
		err = fmt.Errorf("there is no backup: it is no archive of plinth backup, and no --backup-url of a server, which has a %s",
			documentName)
	}
	return archive, size, err
}

// fromObject is the store in an archive that is an object.
func fromObject(b Bucket, name string, size int64, show Show) Source {
	return func(ctx context.Context, dir string, at Moment) (*Document, []byte, error) {
		content, err := b.Get(ctx, name)
		if err != nil {
			return nil, nil, err
		}
		defer content.Close()
		return FromArchive(io.TeeReader(content, show.of(size)))(ctx, dir, at)
	}
}

// ToURL writes an archive as the object at a URL. There is a new object if write, which gets its writer, and this
// return nil, and else none. said is as in OpenBucket.
func ToURL(ctx context.Context, text string, said func(line string), write func(io.Writer) error) error {
	b, name, err := openObject(text, said)
	if err != nil {
		return err
	}
	if name == "" {
		return fmt.Errorf("%s names no object, such as %s/plinth.tar", text, strings.TrimSuffix(text, "/"))
	}
	document := name + "/" + documentName
	items, err := b.List(ctx, document)
	if err != nil {
		return fmt.Errorf("%s: %w", text, err)
	}
	if len(items) > 0 && items[0].Name == document {
		return fmt.Errorf("%s is the --backup-url of a server; name another object, such as %s.tar", text, text)
	}
	from, to := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := write(to)
		to.CloseWithError(err) //nolint:errcheck // it has no error
		done <- err
	}()
	err = b.Put(ctx, name, from, false)
	from.CloseWithError(err) //nolint:errcheck // as above
	// One is the cause of the other. A writer whose reader has gone knows of a closed pipe, and no more.
	if wrote := <-done; err == nil || wrote != nil && !errors.Is(wrote, io.ErrClosedPipe) {
		err = wrote
	}
	if err != nil {
		return fmt.Errorf("%s: %w", text, err)
	}
	return nil
}
