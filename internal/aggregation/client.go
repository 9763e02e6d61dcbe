package aggregation

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"plinth/internal/access"
	"plinth/internal/apierr"
	"plinth/internal/execution"
	"plinth/internal/forward"
	"plinth/object"
)

// Connect returns by which transport, and at which address HOST:PORT, another server is reached now.
type Connect func(ctx context.Context) (transport http.RoundTripper, address string, err error)

// client sends requests of this server itself to one that serves a group version in its place.
type client struct {
	groupVersion
	connect Connect
	header  http.Header // of all requests
}

// errStatus is the code of an answer that is no success, with the reason and message of its Status. If it is none,
// these are what the reference's clients make of the code.
type errStatus struct {
	path    string
	code    int
	reason  apierr.Reason
	message string
}

func (e errStatus) Error() string { return fmt.Sprintf("%s: status code %d", e.path, e.code) }

// get asks the server for a document.
func (k *client) get(ctx context.Context, path, accept string, user *access.User, limit time.Duration) (body []byte,
	mediaType string, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return k.exchange(ctx, call{method: http.MethodGet, path: path, accept: accept, user: user})
}

// call is a request of this server itself.
type call struct {
	method, path, accept string
	content              []byte // nil: there is none
	contentType          string // "": JSON
	user                 *access.User
	limit                int // of the size of the answer; 0: maxDocument
}

// exchange sends a request to the server, and returns the body of its answer. Redirects are not followed.
func (k *client) exchange(ctx context.Context, c call) (body []byte, mediaType string, err error) {
	answer, err := k.open(ctx, c)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = answer.Body.Close() }()
	limit := cmp.Or(c.limit, maxDocument)
	body, err = io.ReadAll(io.LimitReader(answer.Body, int64(limit)+1))
	if err == nil && len(body) > limit {
		path, _, _ := strings.Cut(c.path, "?")
		err = fmt.Errorf("%s: more than %d bytes", path, limit)
	}
	return body, answer.Header.Get("Content-Type"), err
}

// open sends a request to the server, and returns its answer if that is a success.
func (k *client) open(ctx context.Context, c call) (*http.Response, error) {
	transport, address, err := k.connect(ctx)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, c.method, "https://"+address+c.path, bytes.NewReader(c.content))
	if err != nil {
		return nil, err
	}
	maps.Copy(request.Header, k.header)
	request.Header.Set("Accept", c.accept)
	if c.content != nil {
		request.Header.Set("Content-Type", cmp.Or(c.contentType, mediaJSON))
	}
	forward.Identify(request.Header, c.user)
	execution.AssertOutside(ctx, "another server")
	answer, err := transport.RoundTrip(request)
	if err != nil || answer.StatusCode >= http.StatusOK && answer.StatusCode < http.StatusMultipleChoices {
		return answer, err
	}
	defer func() { _ = answer.Body.Close() }()
	path, _, _ := strings.Cut(c.path, "?")
	return nil, refusal(answer, c.method, path)
}

// refusal reads an answer that is no success.
func refusal(answer *http.Response, method, path string) errStatus {
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxStatus))
	if err != nil {
		text = nil
	}
	if parsed, err := object.ParseJSON(text); err == nil && parsed.Value.At("kind").Str() == "Status" &&
		parsed.Value.At("reason").Str() != "" {
		return errStatus{path, answer.StatusCode, apierr.Reason(strings.Clone(parsed.Value.At("reason").Str())),
			strings.Clone(parsed.Value.At("message").Str())}
	}
	said := "unknown"
	if kind := answer.Header.Get("Content-Type"); kind == "" || strings.HasPrefix(kind, "text/") {
		said = strings.TrimSpace(string(text))
	}
	status := apierrors.NewGenericServerResponse(answer.StatusCode, method, schema.GroupResource{}, "", said, 0, true).
		Status()
	return errStatus{path, answer.StatusCode, apierr.Reason(status.Reason), status.Message}
}

// maxStatus is how much is read of an answer that is no success.
const maxStatus = 64 << 10
