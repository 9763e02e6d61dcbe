package requests

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/linediff"
)

// Runner sends the steps of one script to one server.
type Runner struct {
	base      string
	client    *http.Client
	names     *names
	variables map[string]string
	streams   map[string]*stream
	hook      *hook // nil: the script needs none
}

// NewRunner returns a runner for one script.
func NewRunner(url string, client *http.Client, script *Script) *Runner {
	h := newHook(script)
	r := &Runner{base: url, client: client, names: newNames(), variables: h.variables(),
		streams: map[string]*stream{}, hook: h}
	r.names.replace = h.replacer()
	for _, step := range script.Steps {
		for _, pattern := range []*regexp.Regexp{uuid, clusterIP} {
			for _, id := range pattern.FindAllString(step.URL+" "+step.Body, -1) {
				r.names.literal[id] = true
			}
		}
	}
	return r
}

// Close ends the watches that the script has left open.
func (r *Runner) Close() {
	for _, s := range r.streams {
		s.cancel()
	}
	r.client.CloseIdleConnections()
	r.hook.close()
}

var (
	macro     = regexp.MustCompile(`\$\(repeat (\d+) "((?:[^"\\]|\\.)*)"\)|\$\{(\w+)\}`)
	continues = regexp.MustCompile(`\$\(continue (-?\d+) ([^)]*)\)`)
)

// expand substitutes variables, then repetitions: $(repeat 100 "x"), then continue tokens: $(continue VERSION START),
// where START may have the escapes of Go's strings.
func (r *Runner) expand(text string) (string, error) {
	text, err := r.expandValues(text)
	if err != nil {
		return "", err
	}
	out := continues.ReplaceAllStringFunc(text, func(found string) string {
		m := continues.FindStringSubmatch(found)
		start, unquoteErr := strconv.Unquote(`"` + m[2] + `"`)
		if unquoteErr != nil {
			err = fmt.Errorf("%s: %w", found, unquoteErr)
			return ""
		}
		token, printErr := json.Marshal(map[string]any{"v": "meta.k8s.io/v1", "rv": json.Number(m[1]), "start": start})
		err = errors.Join(err, printErr)
		return base64.RawURLEncoding.EncodeToString(token)
	})
	return out, err
}

func (r *Runner) expandValues(text string) (string, error) {
	var failed error
	out := macro.ReplaceAllStringFunc(text, func(found string) string {
		m := macro.FindStringSubmatch(found)
		if m[3] != "" {
			value, ok := r.variables[m[3]]
			if !ok {
				failed = fmt.Errorf("${%s} was never set", m[3])
			}
			return value
		}
		times, err := strconv.Atoi(m[1])
		if err != nil {
			failed = err
			return ""
		}
		unit, err := strconv.Unquote(`"` + m[2] + `"`)
		if err != nil {
			failed = err
			return ""
		}
		return strings.Repeat(unit, times)
	})
	return out, failed
}

// requestTimeout bounds a step; some of the reference's responses take 3 s, for example "Too large resource version".
const requestTimeout = 30 * time.Second

// answer is a response before it is normalised.
type answer struct {
	status  int
	header  http.Header
	body    []byte
	note    string // state of the stream, or ""
	present bool
}

// Do sends a step and returns the normalised response. record is the recorded response, or nil; its names for uids and
// versions are reused.
func (r *Runner) Do(step *Step, record *Result) (Result, error) {
	var a answer
	var err error
	switch step.Method {
	case "READ":
		a, err = r.read(step.URL, step)
	case "ASKED":
		a.body, err = r.hook.show()
	default:
		a, err = r.send(step)
		for end := time.Now().Add(requestTimeout); err == nil && !step.hasCome(a) &&
			time.Now().Before(end); a, err = r.send(step) {
			time.Sleep(50 * time.Millisecond)
		}
	}
	if err != nil {
		return Result{}, err
	}
	return r.print(step, a, record)
}

// hasCome says whether a response has the status and the text for which the step waits (@until).
func (s *Step) hasCome(a answer) bool {
	return s.UntilStatus == 0 || a.status == s.UntilStatus && strings.Contains(string(a.body), s.UntilText)
}

// Result is a normalised response.
type Result struct {
	Head string // status, content type, headers
	Docs []any  // the body's documents
	Text string // the body, if it is not a document
	Note string
}

// String formats the response as it is recorded.
func (r Result) String() string {
	var out strings.Builder
	out.WriteString(r.Head)
	for _, doc := range r.Docs {
		out.WriteString("\n" + printValue(doc))
	}
	if r.Text != "" {
		out.WriteString("\n" + r.Text)
	}
	if r.Note != "" {
		out.WriteString("\n" + r.Note)
	}
	return strings.TrimSpace(out.String())
}

func (r *Runner) request(ctx context.Context, step *Step) (*http.Request, error) {
	target, err := r.expand(step.URL)
	if err != nil {
		return nil, err
	}
	body, err := r.expand(step.Body)
	if err != nil {
		return nil, err
	}
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	request, err := http.NewRequestWithContext(ctx, step.Method, r.base, reader)
	if err != nil {
		return nil, err
	}
	// The URL is sent as it is written, even if it is invalid.
	path, query, _ := strings.Cut(target, "?")
	request.URL.Opaque, request.URL.RawQuery = "//"+request.URL.Host+request.URL.Path+path, query
	request.Header.Set("User-Agent", "conformance/1.0")
	request.Header.Set("Accept", "application/json")
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	if !step.Anonymous {
		request.Header.Set("Authorization", "Bearer "+harness.AdminToken)
	}
	for _, h := range step.Headers {
		value, err := r.expand(h.Value)
		if err != nil {
			return nil, err
		}
		request.Header.Del(h.Name)
		if value != "" {
			request.Header.Set(h.Name, value)
		}
	}
	return request, nil
}

func (r *Runner) send(step *Step) (answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	request, err := r.request(ctx, step)
	if err != nil {
		cancel()
		return answer{}, err
	}
	response, err := r.client.Do(request)
	if err != nil {
		cancel()
		if urlError := (*url.Error)(nil); errors.As(err, &urlError) {
			err = urlError.Err // without the address, which differs in each run
		}
		return answer{}, fmt.Errorf("no answer: %w", err)
	}
	a := answer{status: response.StatusCode, header: response.Header, present: true}
	if response.Header.Get("Content-Encoding") == "gzip" {
		response.Body = &inflated{body: response.Body}
	}
	if step.Stream != "" || step.Events > 0 || step.Wait > 0 {
		s := newStream(response.Body, cancel)
		name := step.Stream
		if name == "" {
			defer cancel()
			name = "\x00"
		}
		r.streams[name] = s
		if step.Events == 0 && step.Wait == 0 {
			return a, nil
		}
		more, err := r.read(name, step)
		a.body, a.note = more.body, more.note
		return a, err
	}
	defer cancel()
	defer response.Body.Close()
	a.body, err = io.ReadAll(response.Body)
	if err != nil {
		return answer{}, fmt.Errorf("the body broke off: %w", err)
	}
	return a, nil
}

// inflated is a compressed body. A watch may have no events yet; therefore the header is not read before the first
// Read.
type inflated struct {
	body   io.ReadCloser
	reader *gzip.Reader
}

func (f *inflated) Read(b []byte) (int, error) {
	if f.reader == nil {
		reader, err := gzip.NewReader(f.body)
		if err != nil {
			return 0, err
		}
		f.reader = reader
	}
	return f.reader.Read(b)
}

func (f *inflated) Close() error { return f.body.Close() }

// byTheClock says whether an event is a bookmark that the server sends at intervals: all bookmarks except the
// one that ends a streaming list.
func byTheClock(event []byte) bool {
	return clockBookmark.Match(event) && !bytes.Contains(event, []byte("initial-events-end"))
}

var clockBookmark = regexp.MustCompile(`"type": ?"BOOKMARK"`)

// read reads events from an open watch.
func (r *Runner) read(name string, step *Step) (answer, error) {
	s, ok := r.streams[name]
	if !ok {
		return answer{}, fmt.Errorf("no watch %q is open", name)
	}
	wait := step.Wait
	if wait == 0 {
		wait = 10 * time.Second // for the number of events; reached only in a failure
	}
	var a answer
	deadline := time.After(wait)
	for n := 0; step.Events == 0 || n < step.Events; n++ {
		select {
		case event, open := <-s.events:
			if !open {
				a.note = "(the stream ends)"
				return a, nil
			}
			if byTheClock(event) {
				n--
				continue
			}
			a.body = append(a.body, event...)
		case <-deadline:
			a.note = "(the stream is silent)"
			return a, nil
		}
	}
	return a, nil
}

func (r *Runner) print(step *Step, a answer, record *Result) (Result, error) {
	var result Result
	contentType := "application/json"
	if a.present {
		contentType = a.header.Get("Content-Type")
		result.Head = strings.TrimSpace(fmt.Sprintf("%d %s", a.status, contentType))
		for _, name := range append([]string{"Warning", "Retry-After", "Location", "Www-Authenticate", "Allow"},
			step.Also...) {
			for _, value := range a.header.Values(name) {
				result.Head += "\n" + name + ": " + r.names.text(value)
			}
		}
	}
	result.Note = a.note
	docs, ok := documents(contentType, a.body)
	if len(docs) > 1 { // a watch
		docs = slices.DeleteFunc(docs, func(doc any) bool { return byTheClock([]byte(flatten(doc))) })
	}
	if !ok || step.Raw {
		result.Text = strings.TrimRight(r.names.text(string(a.body)), "\n")
		if !step.Raw {
			result.Text = short(result.Text)
		}
		if step.Raw {
			result.Text = uidName.ReplaceAllString(managedInYAML.ReplaceAllString(result.Text, "${1}${2}:"), "<uid>")
		}
	}
	if !ok {
		return result, nil
	}
	for _, set := range step.Set {
		value, found := find(docs[0], set.Value)
		if !found {
			return result, fmt.Errorf("@set %s: the answer has no value at %s:\n%s", set.Name, set.Value, printValue(docs[0]))
		}
		r.variables[set.Name] = fmt.Sprint(value)
	}
	if step.Raw {
		return result, nil
	}
	result.Docs = r.Normalise(step, docs, record)
	return result, nil
}

// Normalise replaces the values that differ in every run in the documents of a step, and reduces them to the paths that
// the step keeps.
func (r *Runner) Normalise(step *Step, docs []any, record *Result) []any {
	for i, doc := range docs {
		if record != nil && i < len(record.Docs) {
			r.names.bind(kept(doc, step.Keep), record.Docs[i])
		}
		doc = r.names.value(doc, nil)
		doc = kept(doc, step.Keep)
		for _, path := range step.Drop {
			doc = drop(doc, splitPath(path))
		}
		docs[i] = doc
	}
	return docs
}

// Compare returns what is wrong with the response to a step: the differences from the recorded one, or that it has not
// what the response of a plane is known to have instead; "": nothing.
func (s *Step) Compare(got, want *Result, plane bool) string {
	switch {
	case plane && s.InPlane != "":
		if strings.Contains(want.String(), s.InPlane) || !strings.Contains(got.String(), s.InPlane) {
			return fmt.Sprintf("in a plane the response has not %s, or the recorded one has it, too\n%s", s.InPlane, got)
		}
		return ""
	case got.String() == want.String():
		return ""
	}
	return fmt.Sprintf("%s %s\n--- recorded\n+++ here\n%s", s.Method, s.URL, linediff.Diff(want.String(), got.String()))
}

// Recorded parses the expected response: the reference's, or Plinth's where it is known to differ. Parsed, it can be
// compared without the paths of known differences.
func Recorded(step *Step) Result {
	answer := step.Answer
	if step.Differs != "" {
		answer = step.Differently
	}
	head, body, _ := strings.Cut(answer, "\n")
	if step.Method == "READ" { // later events of a watch have no head
		head, body = "", answer
	}
	result := Result{Head: head}
	for body != "" {
		line, rest, _ := strings.Cut(body, "\n")
		if !headerLine.MatchString(line) {
			break
		}
		result.Head, body = result.Head+"\n"+line, rest
	}
	for _, note := range []string{"(the stream ends)", "(the stream is silent)"} {
		if trimmed, ok := strings.CutSuffix(body, note); ok {
			body, result.Note = strings.TrimRight(trimmed, "\n"), note
		}
	}
	if step.Raw {
		result.Text = body
		return result
	}
	decoder := json.NewDecoder(bytes.NewReader([]byte(body)))
	decoder.UseNumber()
	for {
		var doc any
		if err := decoder.Decode(&doc); err != nil {
			if !errors.Is(err, io.EOF) {
				return Result{Head: result.Head, Text: body, Note: result.Note}
			}
			return result
		}
		result.Docs = append(result.Docs, doc)
	}
}

var headerLine = regexp.MustCompile(`^[A-Z][A-Za-z-]+: `)

// stream is an open watch: a goroutine reads it and passes on whole events.
type stream struct {
	events chan []byte
	cancel context.CancelFunc
}

func newStream(body io.ReadCloser, cancel context.CancelFunc) *stream {
	s := &stream{events: make(chan []byte, 1000), cancel: cancel}
	go func() {
		defer close(s.events)
		defer body.Close()
		decoder := json.NewDecoder(body)
		for {
			var event json.RawMessage
			if err := decoder.Decode(&event); err != nil {
				return
			}
			s.events <- append(event, '\n')
		}
	}()
	return s
}

// Apply removes a known difference from both responses. Its paths begin at the object, also for the items of a list and
// the events of a watch; the name of a header with a colon behind it stands for that header.
func (d *Difference) Apply(got, want *Result) {
	for _, path := range d.Paths {
		if name, ok := strings.CutSuffix(path, ":"); ok {
			d.seen = d.seen || header(got.Head, name) != header(want.Head, name)
			got.Head, want.Head = withoutHeader(got.Head, name), withoutHeader(want.Head, name)
			continue
		}
		for _, prefix := range []string{"", "items.*.", "object."} {
			path := prefix + path
			d.seen = d.seen || d.at(got, path) != d.at(want, path)
			for _, result := range []*Result{got, want} {
				for i := range result.Docs {
					delete(asMap(result.Docs[i]), path) // if the keys are kept paths
					result.Docs[i] = drop(result.Docs[i], splitPath(path))
				}
			}
		}
	}
}

// Seen says whether the difference has been observed.
func (d *Difference) Seen() bool { return d.seen }

func asMap(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

func header(head, name string) string {
	var found []string
	for line := range strings.SplitSeq(head, "\n") {
		if strings.HasPrefix(line, name+": ") {
			found = append(found, line)
		}
	}
	return strings.Join(found, "\n")
}

func withoutHeader(head, name string) string {
	var left []string
	for line := range strings.SplitSeq(head, "\n") {
		if !strings.HasPrefix(line, name+": ") {
			left = append(left, line)
		}
	}
	return strings.Join(left, "\n")
}

// at formats the value at a path of a response.
func (d *Difference) at(r *Result, path string) string {
	var out strings.Builder
	for _, doc := range r.Docs {
		out.WriteString(printValue(keep(doc, []string{path})) + flatten(asMap(doc)[path]) + "\n")
	}
	return out.String()
}
