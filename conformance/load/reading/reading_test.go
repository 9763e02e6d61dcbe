package reading

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/load"
)

var full = flag.Bool("full", false, "as much as the requirements say: minutes")

func TestMain(m *testing.M) {
	// client-go reads its gates when the first client is made. Without this one it does not support CBOR.
	if err := os.Setenv("KUBE_FEATURE_ClientsAllowCBOR", "true"); err != nil {
		panic(err)
	}
	harness.Main(m)
}

// scale picks the short or the full size of something.
func scale[T any](short, all T) T {
	if *full {
		return all
	}
	return short
}

// encodings are the media types that informers request.
var encodings = []struct{ name, contentType string }{
	{"JSON", "application/json"},
	{"protobuf", "application/vnd.kubernetes.protobuf"},
	{"CBOR", "application/cbor"},
}

// network is the connection to a server, which can be cut and closed; it counts the requests.
type network struct {
	mu    sync.Mutex
	conns map[net.Conn]bool
	down  bool

	lists   atomic.Int64 // requests for whole collections, by list or streaming list
	resumes atomic.Int64 // watches that resume from a version
}

// errDown is the error of a client when no server listens: informers then wait and resume where they were.
var errDown = &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}

func (n *network) dial(ctx context.Context, network, address string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down {
		return nil, errDown
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, network, address)
	if err == nil {
		n.conns[conn] = true
	}
	return conn, err
}

// cut ends every connection; set takes the network down or up.
func (n *network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for conn := range n.conns {
		conn.Close() // it may be closed already
	}
	clear(n.conns)
}

func (n *network) set(up bool) {
	n.mu.Lock()
	n.down = !up
	n.mu.Unlock()
	if !up {
		n.cut()
	}
}

// counted counts requests and passes them on.
type counted struct {
	network *network
	next    http.RoundTripper
}

func (c *counted) RoundTrip(request *http.Request) (*http.Response, error) {
	query := request.URL.Query()
	watch := query.Get("watch") != ""
	switch {
	case request.Method != http.MethodGet:
	case !watch || query.Get("sendInitialEvents") == "true":
		c.network.lists.Add(1)
	default:
		c.network.resumes.Add(1)
	}
	return c.next.RoundTrip(request)
}

// client returns a typed client on a separate network.
func client(t *testing.T, s *harness.Server, contentType string) (*kubernetes.Clientset, *network) {
	t.Helper()
	config, err := s.Config()
	if err != nil {
		t.Fatal(err)
	}
	n := &network{conns: map[net.Conn]bool{}}
	config = rest.CopyConfig(config)
	config.Dial = n.dial
	config.ContentType, config.AcceptContentTypes = contentType, contentType
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &counted{n, next} })
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c, n
}

func namespace(t *testing.T, c kubernetes.Interface, name string) {
	t.Helper()
	_, err := c.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// world holds the objects that the tests change: ConfigMaps of one namespace.
type world struct {
	client kubernetes.Interface
	name   string
	serial atomic.Int64
}

func (w *world) configMap(i int) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("m-%05d", i), Labels: map[string]string{"part": fmt.Sprint(i % 10)}},
		Data:       map[string]string{"n": fmt.Sprint(w.serial.Add(1))},
	}
}

// fill creates objects.
func (w *world) fill(t *testing.T, objects int) {
	t.Helper()
	err := load.Each(16, objects, func(i int) error {
		_, err := w.client.CoreV1().ConfigMaps(w.name).Create(t.Context(), w.configMap(i), metav1.CreateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// change changes objects all over the namespace: mostly updates, and some deletions and creations.
func (w *world) change(t *testing.T, changes, objects int) {
	t.Helper()
	maps := w.client.CoreV1().ConfigMaps(w.name)
	err := load.Each(8, changes, func(i int) error {
		m := w.configMap((i * 7919) % objects)
		if i%5 == 0 {
			err := maps.Delete(t.Context(), m.Name, metav1.DeleteOptions{})
			if apierrors.IsNotFound(err) {
				_, err = maps.Create(t.Context(), m, metav1.CreateOptions{})
			}
			if apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) {
				return nil // another writer was faster
			}
			return err
		}
		_, err := maps.Update(t.Context(), m, metav1.UpdateOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
