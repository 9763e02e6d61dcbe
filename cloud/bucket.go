package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"gocloud.dev/blob"
	_ "gocloud.dev/blob/azureblob"
	_ "gocloud.dev/blob/gcsblob"
	_ "gocloud.dev/blob/s3blob"
	"gocloud.dev/gcerrors"
	"gocloud.dev/gcp"

	"plinth/internal/backup/remote"
)

const (
	// partBytes and parts bound the memory of an upload. S3 takes 10,000 parts of an object: 160 GB.
	partBytes = 16 << 20
	parts     = 3
	// requestTime limits what answers with few bytes, and stallTime how long a storage may be silent.
	requestTime  = time.Minute
	stallTime    = time.Minute
	finishTime   = 5 * time.Minute // of an upload, after the last byte has come
	abortTime    = time.Second     // less than what plinth gives the program before it kills it
	attempts     = 5               // of a read that gets no further
	listAttempts = 3               // of a list
)

// validation is a parameter of s3:// URLs. By default the SDK compares what it reads with the checksum of the object. A
// backup has hashes of its own, and of a read that goes on in the middle of an object some servers send the checksum of
// the whole.
const validation = "response_checksum_validation"

// bucket is a bucket, or what is below a path of it.
type bucket struct {
	*blob.Bucket
	// abort is how long an upload goes on after its context has ended or its content has failed; see Put.
	abort time.Duration
}

// open opens the bucket at a URL. The storage is not asked yet.
func open(ctx context.Context, text string) (*bucket, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, err
	}
	schemes := blob.DefaultURLMux().BucketSchemes()
	if !slices.Contains(schemes, u.Scheme) {
		return nil, fmt.Errorf("%s is no URL of a backup: there are file://, and %s://", text, strings.Join(schemes, "://, "))
	}
	for _, parameter := range []string{"prefix", "key"} {
		if u.Query().Has(parameter) {
			return nil, fmt.Errorf("%s: the path is what the names of objects begin with; there is no parameter %s", text,
				parameter)
		}
	}
	if err := googleCredentials(ctx, u); err != nil {
		return nil, err
	}
	if q := u.Query(); u.Scheme == "s3" && !q.Has(validation) {
		q.Set(validation, "when_required")
		u.RawQuery = q.Encode()
	}
	path := strings.Trim(u.Path, "/")
	u.Path, u.RawPath = "", ""
	b, err := blob.DefaultURLMux().OpenBucketURL(ctx, u)
	if err != nil {
		return nil, clean(err)
	}
	if path != "" {
		b = blob.PrefixedBucket(b, path+"/")
	}
	opened := &bucket{Bucket: b}
	if u.Scheme == "s3" {
		opened.abort = abortTime
	}
	return opened, nil
}

// googleCredentials returns an error if there are none: without this check the SDK goes on with empty ones, and fails
// when it signs a request with them.
func googleCredentials(ctx context.Context, u *url.URL) error {
	if u.Scheme != "gs" || u.Query().Get("anonymous") == "true" || os.Getenv("STORAGE_EMULATOR_HOST") != "" {
		return nil
	}
	_, err := gcp.DefaultCredentials(ctx)
	return clean(err)
}

// Put implements remote.Objects. A storage without conditional writes may not notice that there is an object.
//
// The problem: there must be no object of a content that was cut off. The SDKs differ in what ends an upload:
//
//   - For Google, blob.Bucket closes the writer after an error of the content, too, and that makes the object of what
//     was read. Nothing but a context that has ended before prevents it.
//   - For S3 an error of the content ends the upload, and then its parts are removed, if there are several: which costs
//     money for ever if it is not done. It is done with the context of the upload, which must not have ended.
//
// So the context ends before the content does; that of S3 a moment later.
func (b *bucket) Put(ctx context.Context, name string, content io.Reader, create bool) error {
	uploading, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() {
		time.AfterFunc(b.abort, func() { cancel(context.Cause(ctx)) })
	})()
	from := &upload{content: content, cancel: cancel, abort: b.abort}
	defer from.stop()
	err := b.Upload(uploading, name, from, &blob.WriterOptions{ContentType: "application/octet-stream",
		BufferSize: partBytes, MaxConcurrency: parts, IfNotExist: create})
	if cause := context.Cause(uploading); err != nil && cause != nil {
		err = fmt.Errorf("%w (%w)", cause, err)
	}
	if code := gcerrors.Code(err); create && (code == gcerrors.FailedPrecondition || code == gcerrors.AlreadyExists) {
		return fmt.Errorf("%w: %w", fs.ErrExist, clean(err))
	}
	return clean(err)
}

// upload is the content of an upload, which ends the context when it fails. It limits the time after the last byte:
// before that the storage may be as slow as it is, as plinth limits the whole.
type upload struct {
	content io.Reader
	cancel  context.CancelCauseFunc
	abort   time.Duration
	timer   *time.Timer
}

// Read implements io.Reader.
func (u *upload) Read(b []byte) (int, error) {
	n, err := u.content.Read(b)
	switch {
	case err == nil || u.timer != nil:
	case err == io.EOF:
		u.timer = time.AfterFunc(finishTime, func() {
			u.cancel(fmt.Errorf("the storage has not answered within %s", finishTime))
		})
	case u.abort > 0:
		u.timer = time.AfterFunc(u.abort, func() { u.cancel(err) })
	default:
		u.cancel(err)
	}
	return n, err
}

func (u *upload) stop() {
	if u.timer != nil {
		u.timer.Stop()
	}
}

// List implements remote.Objects. A page whose connection breaks is asked for again; the SDKs do that for a request
// that has no answer alone.
func (b *bucket) List(ctx context.Context, prefix string) ([]remote.Item, error) {
	items := []remote.Item{}
	failed := 0
	for all := b.Bucket.List(&blob.ListOptions{Prefix: prefix}); ; {
		limited, cancel := context.WithTimeout(ctx, requestTime) // of a page
		o, err := all.Next(limited)
		cancel()
		switch {
		case err == io.EOF:
			slices.SortFunc(items, func(a, b remote.Item) int { return strings.Compare(a.Name, b.Name) })
			return items, nil
		case gcerrors.Code(err) == gcerrors.Unknown && failed < listAttempts-1 && ctx.Err() == nil:
			failed++
		case err != nil:
			return nil, clean(err)
		case o.Key != "": // some tools make an object for the path itself
			items = append(items, remote.Item{Name: o.Key, Size: o.Size})
		}
	}
}

// Delete implements remote.Objects.
func (b *bucket) Delete(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	err := b.Bucket.Delete(ctx, name)
	if gcerrors.Code(err) == gcerrors.NotFound {
		return nil
	}
	return clean(err)
}

// Get implements remote.Objects. A read that fails on the way goes on where it was.
func (b *bucket) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	r := &download{ctx: ctx, bucket: b.Bucket, name: name}
	err := r.open()
	if gcerrors.Code(err) == gcerrors.NotFound {
		return nil, fmt.Errorf("%w: %w", fs.ErrNotExist, clean(err))
	}
	if err != nil {
		return nil, clean(err)
	}
	r.size, r.modified = r.from.Size(), r.from.ModTime()
	return r, nil
}

// download reads an object.
//
// The problem: one of gigabytes takes long enough for a connection to break. What follows has to be of the same object:
//
//	the content that was read = the first n bytes of the object that had the size and the time of the first answer
//
// The hashes in a backup are what proves it in the end; this says what has happened.
type download struct {
	ctx      context.Context // of Get
	bucket   *blob.Bucket
	name     string
	from     *blob.Reader // nil: it is to be opened again
	cancel   context.CancelFunc
	n        int64
	size     int64
	modified time.Time
	failed   int // attempts since something was read
}

// open opens the object from where it was read to.
func (d *download) open() error {
	ctx, cancel := context.WithCancel(d.ctx)
	timer := time.AfterFunc(stallTime, cancel)
	from, err := d.bucket.NewRangeReader(ctx, d.name, d.n, -1, nil)
	timer.Stop()
	if err != nil {
		cancel()
		return err
	}
	d.from, d.cancel = from, cancel
	return nil
}

// Read implements io.Reader.
func (d *download) Read(b []byte) (int, error) {
	for {
		n, err := d.attempt(b)
		d.n += int64(n)
		switch {
		case d.n > d.size:
			return 0, fmt.Errorf("%s: the storage has sent more than its %d bytes", d.name, d.size)
		case n > 0:
			d.failed = 0
			return n, nil
		case d.n == d.size && err == io.EOF:
			return 0, io.EOF
		case d.n == d.size && err != nil || d.ctx.Err() != nil || errors.Is(err, errReplaced):
			return 0, clean(errors.Join(context.Cause(d.ctx), err))
		case err == nil:
			continue
		case err == io.EOF:
			err = io.ErrUnexpectedEOF
		}
		d.Close() //nolint:errcheck // the connection is broken anyway
		if d.failed++; d.failed == attempts {
			return 0, clean(fmt.Errorf("%s, at %d of %d bytes: %w", d.name, d.n, d.size, err))
		}
		select {
		case <-d.ctx.Done():
		case <-time.After(time.Duration(d.failed) * 100 * time.Millisecond):
		}
	}
}

var errReplaced = errors.New("the object was replaced by another one while it was read")

// attempt is a read, or the next attempt to open the object.
func (d *download) attempt(b []byte) (int, error) {
	if d.from == nil {
		if err := d.open(); err != nil {
			return 0, err
		}
		if d.from.Size() != d.size || !d.from.ModTime().Equal(d.modified) {
			return 0, errReplaced
		}
	}
	timer := time.AfterFunc(stallTime, d.cancel)
	defer timer.Stop()
	return d.from.Read(b)
}

// Close implements io.Closer.
func (d *download) Close() error {
	if d.from == nil {
		return nil
	}
	err := d.from.Close()
	d.cancel()
	d.from = nil
	return err
}
