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
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Objects is the bucket that a helper serves. Its methods are those of backup.Bucket. Their errors are what a user
// reads, so they have no credentials.
type Objects interface {
	Put(ctx context.Context, name string, content io.Reader, create bool) error
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	List(ctx context.Context, prefix string) ([]Item, error)
	Delete(ctx context.Context, name string) error
}

// ErrCut means that Plinth has not sent an object to its end.
var ErrCut = errors.New("the object was not sent to its end")

// Serve greets and serves the bucket that open returns over in and out, which are the standard input and output of the
// helper: until in ends, or the process that has started this one. Then the program has to end, whatever is under way.
//
// HTTP needs a connection whose reads can be interrupted, which a pipe of the operating system is not everywhere; so
// the bytes are copied through a connection in memory.
func Serve(release string, open func() (Objects, error), in io.Reader, out io.Writer) error {
	objects, err := open()
	said := "ready"
	if err != nil {
		said = "error " + strings.Join(strings.Fields(err.Error()), " ")
	}
	said = said[:min(len(said), maxLine/2)]
	if _, failed := fmt.Fprintf(out, "%s %d %s %s\n", Program, protocol, release, said); failed != nil || err != nil {
		return failed // Plinth knows err
	}
	inner, conn := net.Pipe()
	gone, served, written := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		io.Copy(inner, in) //nolint:errcheck // either way nothing follows
		inner.Close()
		close(gone)
	}()
	go func() {
		io.Copy(out, inner) //nolint:errcheck // Plinth has ended then, and so does this
		close(written)
	}()
	go func() {
		l := &listener{conn: conn, closed: make(chan struct{})}
		s := http.Server{Handler: handler{objects}, ConnState: l.state}
		s.Serve(l) //nolint:errcheck // it says that the listener has ended
		close(served)
	}()
	select {
	case <-served:
		<-written
		return nil
	case <-gone:
	case <-orphaned():
	}
	// Requests end with the connection; some have something to give up in the storage, such as parts of an object.
	select {
	case <-served:
	case <-time.After(grace):
	}
	return nil
}

// orphaned returns a channel that is closed when the process that has started this one has ended. The end of the input
// says so as well, but not while nobody reads it: a storage that hangs takes no more of an object, and what the pipe
// has is not read to its end. On Windows a process keeps the ID of its parent, and that is all there is.
func orphaned() <-chan struct{} {
	gone, parent := make(chan struct{}), os.Getppid()
	go func() {
		for os.Getppid() == parent {
			time.Sleep(time.Second)
		}
		close(gone)
	}()
	return gone
}

// listener accepts one connection, and ends when that is closed.
type listener struct {
	conn   net.Conn
	once   sync.Once
	closed chan struct{}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	if c := l.conn; c != nil {
		l.conn = nil
		return c, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return address{} }

func (l *listener) state(_ net.Conn, to http.ConnState) {
	if to == http.StateClosed {
		l.Close() //nolint:errcheck // it has no error
	}
}

// handler serves the requests.
type handler struct{ objects Objects }

// ServeHTTP implements http.Handler.
func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/")
	switch {
	case r.Method == http.MethodGet && name == "":
		items, err := h.objects.List(r.Context(), r.URL.Query().Get("prefix"))
		if err != nil {
			refuse(w, err, http.StatusInternalServerError)
			return
		}
		json.NewEncoder(w).Encode(items) //nolint:errcheck // Plinth has closed the connection
	case name == "":
		refuse(w, errors.New("an object needs a name"), http.StatusInternalServerError)
	case r.Method == http.MethodGet:
		h.get(w, r, name)
	case r.Method == http.MethodPut:
		h.put(w, r, name)
	case r.Method == http.MethodDelete:
		if err := h.objects.Delete(r.Context(), name); err != nil {
			refuse(w, err, http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	default:
		refuse(w, fmt.Errorf("%s is no request of the protocol", r.Method), http.StatusInternalServerError)
	}
}

func refuse(w http.ResponseWriter, err error, status int) {
	text := err.Error()
	w.Header().Set("Content-Length", fmt.Sprint(len(text)))
	w.WriteHeader(status)
	io.WriteString(w, text) //nolint:errcheck // Plinth has closed the connection
}

func (h handler) get(w http.ResponseWriter, r *http.Request, name string) {
	content, err := h.objects.Get(r.Context(), name)
	if errors.Is(err, fs.ErrNotExist) {
		refuse(w, err, http.StatusNotFound)
		return
	}
	if err != nil {
		refuse(w, err, http.StatusInternalServerError)
		return
	}
	w.Header().Set("Trailer", resultTrailer)
	_, err = io.Copy(w, content)
	result := resultOK
	if err = errors.Join(err, content.Close()); err != nil {
		result = err.Error()
	}
	w.Header().Set(resultTrailer, url.PathEscape(result))
}

// put writes an object. An answer of an error does not wait for the rest of the body, which may be gigabytes, and the
// connection stays open until Plinth has read the answer: a connection that breaks while it sends hides the answer.
func (h handler) put(w http.ResponseWriter, r *http.Request, name string) {
	control := http.NewResponseController(w)
	if err := control.EnableFullDuplex(); err != nil {
		panic(err) // HTTP/1.1 has it
	}
	body := &upload{body: r.Body}
	err := h.objects.Put(r.Context(), name, body, r.Header.Get("If-None-Match") == "*")
	switch {
	case err == nil && !body.whole.Load():
		err = errors.New("the storage has not read the object to its end")
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
		return
	}
	status := http.StatusInternalServerError
	if errors.Is(err, fs.ErrExist) {
		status = http.StatusPreconditionFailed
	}
	refuse(w, err, status)
	if err := control.Flush(); err == nil {
		io.Copy(io.Discard, r.Body) //nolint:errcheck // it ends when Plinth closes the connection
	}
}

// upload is the body of an object. The SDKs take more than one error for an end that is as good as any: some read by
// io.ReadFull, which says io.ErrUnexpectedEOF at the end of each last part, as net/http does of a body that was cut
// off. So the error is another one. net/http has ended the context of the request by then.
type upload struct {
	body  io.Reader
	whole atomic.Bool
}

// Read implements io.Reader.
func (u *upload) Read(b []byte) (int, error) {
	n, err := u.body.Read(b)
	if err == io.EOF {
		u.whole.Store(true)
	} else if err != nil {
		err = fmt.Errorf("%w: %s", ErrCut, err)
	}
	return n, err
}
