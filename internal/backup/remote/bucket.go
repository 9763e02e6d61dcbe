package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"
)

// Options says how a helper is started.
type Options struct {
	Program string   // an absolute path
	Args    []string // the URL of the bucket
	// Said gets each line that the helper writes to its standard error, and how it ended if nobody has asked for it.
	// Several helpers may call it at one time.
	Said func(line string)
}

// Bucket is a bucket that a helper serves, in a process that is started when it is needed, and anew after it has ended.
type Bucket struct {
	client    http.Client
	transport *http.Transport
}

const (
	idleTime = 2 * time.Minute // a server that writes nothing looks each minute whether the bucket is still its own
	maxError = 16 << 10
	maxList  = 256 << 20
)

// Open returns the bucket of a helper. Nothing is started yet.
func Open(o Options) *Bucket {
	b := &Bucket{transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			p, err := start(ctx, &o)
			if err != nil {
				return nil, err // and no *process that is nil
			}
			return p, nil
		},
		DisableCompression: true, MaxIdleConnsPerHost: 1, IdleConnTimeout: idleTime}}
	b.client.Transport = b.transport
	return b
}

// Close ends the processes that are idle. The bucket can be used again.
func (b *Bucket) Close() error {
	b.transport.CloseIdleConnections()
	return nil
}

// do sends a request, and returns the answer if it has a status.
func (b *Bucket) do(ctx context.Context, method, name, query string, content io.Reader, status int,
	header ...string) (*http.Response, error) {
	u := url.URL{Scheme: "http", Host: Program, Path: "/" + name, RawQuery: query}
	request, err := http.NewRequestWithContext(ctx, method, u.String(), content)
	if err != nil {
		return nil, err
	}
	if section, ok := content.(*io.SectionReader); ok {
		request.ContentLength = section.Size()
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := b.client.Do(request)
	if err != nil {
		return nil, failure(ctx, err)
	}
	if response.StatusCode == status {
		return response, nil
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxError))
	if err != nil {
		return nil, failure(ctx, err)
	}
	switch said := strings.TrimSpace(string(text)); response.StatusCode {
	case http.StatusNotFound:
		return nil, fmt.Errorf("%s: %w", said, fs.ErrNotExist)
	case http.StatusPreconditionFailed:
		return nil, fmt.Errorf("%s: %w", said, fs.ErrExist)
	default:
		return nil, errors.New(said)
	}
}

// failure is the error of a request that has no answer, without the address that HTTP needs.
func failure(ctx context.Context, err error) error {
	if u := (*url.Error)(nil); errors.As(err, &u) {
		err = u.Err
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	for _, broken := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.EPIPE} {
		if errors.Is(err, broken) {
			return fmt.Errorf("%s has ended before it has answered: %w", Program, err)
		}
	}
	return err
}

// Put writes an object. With create it is an error (fs.ErrExist) if there is one of the name, as far as the storage
// has conditional writes. If content ends with an error, there is no object. A read of content has to return before Put
// does, also when the context has ended; content may be read from for a moment after an error was returned.
func (b *Bucket) Put(ctx context.Context, name string, content io.Reader, create bool) error {
	var header []string
	if create {
		header = []string{"If-None-Match", "*"}
	}
	response, err := b.do(ctx, http.MethodPut, name, "", content, http.StatusNoContent, header...)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

// Get reads an object; fs.ErrNotExist: there is none. A content that is not whole ends with an error.
func (b *Bucket) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	response, err := b.do(ctx, http.MethodGet, name, "", nil, http.StatusOK)
	if err != nil {
		return nil, err
	}
	return &content{ctx, response}, nil
}

// content is what is read of an object.
type content struct {
	ctx      context.Context // of Get
	response *http.Response
}

// Read implements io.Reader.
func (c *content) Read(b []byte) (int, error) {
	n, err := c.response.Body.Read(b)
	if err == nil {
		return n, nil
	}
	if !errors.Is(err, io.EOF) {
		return n, failure(c.ctx, err)
	}
	result, err := url.PathUnescape(c.response.Trailer.Get(resultTrailer))
	switch {
	case err != nil || result == "":
		return n, fmt.Errorf("%s does not say whether this is all", Program)
	case result != resultOK:
		return n, errors.New(result)
	}
	return n, io.EOF
}

// Close implements io.Closer.
func (c *content) Close() error { return c.response.Body.Close() }

// List returns the objects whose names begin with a prefix, in order.
func (b *Bucket) List(ctx context.Context, prefix string) ([]Item, error) {
	response, err := b.do(ctx, http.MethodGet, "", url.Values{"prefix": {prefix}}.Encode(), nil, http.StatusOK)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxList))
	if err != nil {
		return nil, failure(ctx, err)
	}
	var items []Item
	if err := json.Unmarshal(text, &items); err != nil {
		return nil, fmt.Errorf("%s: the list of objects: %w", Program, err)
	}
	return items, nil
}

// Delete removes an object. One that is not there is no error.
func (b *Bucket) Delete(ctx context.Context, name string) error {
	response, err := b.do(ctx, http.MethodDelete, name, "", nil, http.StatusNoContent)
	if err != nil {
		return err
	}
	return response.Body.Close()
}
