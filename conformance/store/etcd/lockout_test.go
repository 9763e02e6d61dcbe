package etcd

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/reference"
)

const (
	// oldLists is how many lists wait for a frozen etcd: more than there are places on few processors.
	oldLists = 20
	ofMaps   = "/api/v1/namespaces/default/configmaps"
)

// Lists at an old revision, which wait for an etcd that is frozen, keep nobody out: requests of other users, and other
// requests of the same user, are answered meanwhile. The lists end when their time is over.
//
// SPEC: AUTH-8
func TestFrozenListsKeepNobodyOut(t *testing.T) {
	etcd := startEtcd(t, reference.EtcdOptions{})
	s := harness.Run(t, harness.Options{Kind: harness.Plinth, Etcd: etcd.URL})
	old := ""
	for i := range 5 {
		code, header, body := send(t.Context(), s, harness.AdminToken, http.MethodPost, ofMaps,
			fmt.Sprintf(`{"metadata":{"name":"c%d"}}`, i))
		if code != http.StatusCreated {
			t.Fatalf("%d %v %s", code, header, body)
		}
		if version := regexp.MustCompile(`"resourceVersion":"(\d+)"`).FindStringSubmatch(body); i == 1 && version != nil {
			old = version[1]
		}
	}
	if err := s.Restart(); err != nil { // it has no history of what was before
		t.Fatal(err)
	}
	if err := etcd.Command.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer etcd.Command.Process.Signal(syscall.SIGCONT) //nolint:errcheck // it is killed anyway
	exact := ofMaps + "?resourceVersionMatch=Exact&resourceVersion=" + old
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan int, oldLists)
	for range oldLists {
		go func() {
			code, _, _ := send(ctx, s, harness.AdminToken, http.MethodGet, exact+"&timeout=50s", "")
			ended <- code
		}()
	}
	answered := func(token, path string) string {
		t.Helper()
		within, stop := context.WithTimeout(t.Context(), 30*time.Second)
		defer stop()
		code, _, body := send(within, s, token, http.MethodGet, path, "")
		if code != http.StatusOK {
			t.Fatalf("%s: %d %s", path, code, body)
		}
		return body
	}
	inFlight := regexp.MustCompile(`apiserver_current_inflight_requests\{request_kind="readOnly"\} (\d+)`)
	eventually(t, "the lists wait", func() error {
		found := inFlight.FindStringSubmatch(answered(harness.AdminToken, "/metrics"))
		if len(found) == 2 {
			if n, err := strconv.Atoi(found[1]); err == nil && n > oldLists {
				return nil
			}
		}
		return fmt.Errorf("%v are in flight", found)
	})
	for range 3 {
		answered(harness.UserToken, "/api")
		answered(harness.ManagerToken, ofMaps+"?resourceVersion=0")
		answered(harness.AdminToken, ofMaps+"?resourceVersion=0")
	}
	select {
	case code := <-ended:
		t.Errorf("etcd does not answer, and a list has ended with %d", code)
	default:
	}
	cancel()
	for range oldLists {
		<-ended
	}
	if code, _, body := send(t.Context(), s, harness.AdminToken, http.MethodGet, exact+"&timeout=1s", ""); code !=
		http.StatusGatewayTimeout {
		t.Errorf("a list without time: %d %s", code, body)
	}
	if err := etcd.Command.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if body := answered(harness.AdminToken, exact); !strings.Contains(body, `"c1"`) || strings.Contains(body, `"c2"`) {
		t.Errorf("etcd answers again, and the list is %s", body)
	}
}

// send sends a request of a user. Without an answer, the code is 0 and the body the error.
func send(ctx context.Context, s *harness.Server, token, method, path, body string) (int, http.Header, string) {
	r, err := http.NewRequestWithContext(ctx, method, s.URL+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err.Error()
	}
	r.Header = http.Header{"Authorization": {"Bearer " + token}, "Content-Type": {"application/json"}}
	client := s.Client()
	defer client.CloseIdleConnections()
	answer, err := client.Do(r)
	if err != nil {
		return 0, nil, err.Error()
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, nil, err.Error()
	}
	return answer.StatusCode, answer.Header, string(text)
}
