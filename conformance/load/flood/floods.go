package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/load"
)

const (
	probeCommand = "probe"
	loadCommand  = "load"

	few       = 400      // objects of a short list
	bodySize  = 29 << 16 // bytes of a large body; it is decoded, and then refused, as no object may be so large
	bodyPiece = 32 << 10
	bodyPause = 20 * time.Millisecond // between two pieces
)

// row is a flood.
type row struct {
	name        string
	connections int
	ask         func(ctx context.Context, c *load.Client, token string, i int64) error
	neighbour   bool   // another server is flooded
	backend     string // the state of the aggregated API server that is asked; "": there is none
}

var floods = []row{
	{name: "alone"},
	{"100 list 400 of a neighbour", 100, lists("few"), true, ""},
	{"100 list 16,000 of a neighbour", 100, lists("many"), true, ""},
	{"100 list 400", 100, lists("few"), false, ""},
	{"100 list 16,000", 100, lists("many"), false, ""},
	{"50 write", 50, write, false, ""},
	{"500 start watches", 500, startWatch, false, ""},
	{"1,000 start watches", 1000, startWatch, false, ""},
	{"20 send 3 MB slowly", 20, sendSlowly, false, ""},
	{"a backend works", askers, askBackend, false, works},
	{"a backend is killed", askers, askBackend, false, killed},
	{"a backend is stopped", askers, askBackend, false, stopped},
	{"a backend answers garbage", askers, askBackend, false, garbage},
	{"a backend answers forever", askers, askBackend, false, forever},
	{"a backend's certificate is wrong", askers, askBackend, false, wrong},
}

func configMaps(namespace string) string { return "/api/v1/namespaces/" + namespace + "/configmaps" }

func lists(namespace string) func(context.Context, *load.Client, string, int64) error {
	return func(ctx context.Context, c *load.Client, token string, _ int64) error {
		_, err := c.Discard(ctx, load.Request{Method: http.MethodGet, Path: configMaps(namespace), Token: token})
		return err
	}
}

func write(ctx context.Context, c *load.Client, token string, i int64) error {
	_, err := c.Discard(ctx, load.Request{Method: http.MethodPost, Path: configMaps("written"), Token: token,
		Body: fmt.Appendf(nil, `{"metadata":{"generateName":"w-%d-"}}`, i)})
	return err
}

// startWatch starts a watch, reads its initial events to their end, and ends it.
func startWatch(ctx context.Context, c *load.Client, token string, _ int64) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	answer, err := c.Start(ctx, load.Request{Method: http.MethodGet, Token: token, Path: configMaps("few") +
		"?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"})
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	events := bufio.NewReaderSize(answer.Body, 64<<10)
	for {
		line, err := events.ReadSlice('\n')
		if err != nil {
			return err
		}
		if bytes.Contains(line, []byte("k8s.io/initial-events-end")) {
			return nil
		}
	}
}

// slowly is a body that comes in pieces.
type slowly struct{ rest []byte }

func (s *slowly) Read(b []byte) (int, error) {
	if len(s.rest) == 0 {
		return 0, io.EOF
	}
	time.Sleep(bodyPause)
	n := copy(b, s.rest[:min(len(s.rest), bodyPiece)])
	s.rest = s.rest[n:]
	return n, nil
}

func sendSlowly(ctx context.Context, c *load.Client, token string, i int64) error {
	body := `{"metadata":{"name":"large"},"data":{"k":"` + strings.Repeat("x", bodySize) + `"}}`
	_, err := c.Discard(ctx, load.Request{Method: http.MethodPost, Path: configMaps("written"), Token: token,
		Stream: &slowly{rest: []byte(body)}})
	var status *load.StatusError
	if errors.As(err, &status) && status.Code == http.StatusUnprocessableEntity {
		return nil
	}
	return err
}

// flood is the process of the flooding user: URL, TOKEN, and the name of the row. It runs until its standard input
// ends, and then prints how many requests were answered in a second.
func flood(args []string) error {
	url, token, name := args[0], args[1], args[2]
	ctx := context.Background()
	var done, refused atomic.Int64
	for _, f := range floods {
		if f.name != name {
			continue
		}
		for i := range f.connections {
			go func() {
				c := load.New(&harness.Server{URL: url}, 1)
				for {
					err := f.ask(ctx, c, token, int64(i))
					if err == nil {
						done.Add(1)
						continue
					}
					if refused.Add(1) == 1 {
						fmt.Fprintln(os.Stderr, "the first request of the flood that failed:", err)
					}
					var status *load.StatusError
					if errors.As(err, &status) {
						time.Sleep(status.RetryAfter) // as client-go does
					}
				}
			}()
		}
	}
	time.Sleep(2 * time.Second) // until all are connected
	before, began := done.Load(), time.Now()
	fmt.Println("ready")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	n, took := done.Load()-before, time.Since(began)
	fmt.Printf("%.1f %d %d\n", float64(n)/took.Seconds(), refused.Load(), n)
	return nil
}

// pace is what the other user leaves between two GETs.
const pace = 2 * time.Millisecond

// probed is what the other user's GETs took.
type probed struct {
	N        int
	P50, P99 time.Duration
}

// probe is the process of the other user: URL, TOKEN and how long. It prints a probed.
func probe(args []string) error {
	url, token := args[0], args[1]
	lasts, err := time.ParseDuration(args[2])
	if err != nil {
		return err
	}
	c := load.New(&harness.Server{URL: url}, 1)
	get := load.Request{Method: http.MethodGet, Path: configMaps("other") + "/one", Token: token}
	if _, err := c.Discard(context.Background(), get); err != nil { // it connects
		return err
	}
	var took []time.Duration
	for end := time.Now().Add(lasts); time.Now().Before(end); time.Sleep(pace) {
		began := time.Now()
		if _, err := c.Discard(context.Background(), get); err != nil {
			return err
		}
		took = append(took, time.Since(began))
	}
	return json.NewEncoder(os.Stdout).Encode(summary(took))
}
