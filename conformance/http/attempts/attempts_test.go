package attempts

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"plinth/conformance/internal/authority"
	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/reference"
)

var rewrite = flag.Bool("rewrite", false, "ask the reference and record its answers in testdata")

func TestMain(m *testing.M) { harness.Main(m) }

const recordFile = "testdata/attempts.txt"

// least is the minimum number of rows, and leastTricks that of credentials besides none and the team's.
const (
	least       = 6000
	leastTricks = 80
)

// differs lists, by the beginning of URL and method and with the reason, the rows to which Plinth's response is known
// to differ. None of them grants access.
var differs = map[string]string{
	"/console\t":  "the page of the console is the same for everybody; its sessions are tried by internal/console",
	"/console/\t": "the page of the console is the same for everybody; its sessions are tried by internal/console",
}

// wrong is a credential that nobody knows.
const wrong = "a wrong token"

// unknownInPlanes are the credentials that planes refuse as they refuse a wrong one: the process's keys sign tokens of
// the first plane, and each plane has a front proxy, beside which the reference, too, refuses a certificate of
// somebody else that names no user.
var unknownInPlanes = []string{"a service account's token", "a token for no audience", "a token that says two accounts",
	"a certificate without a name"}

// row is one attempt.
type row struct {
	credential  *credential
	method, url string
}

func (r row) String() string { return rowName(r.credential.name, r.method, r.url) }

// target is a server with the objects that the rows need: two namespaces, a user with a role in one of them, and a
// service account.
type target struct {
	*harness.Server
	dir     string
	own     *authority.Authority
	clients sync.Map // for credentials with certificates
	plain   *http.Client
}

func start(t *testing.T, o harness.Options) *target {
	t.Helper()
	s := &target{dir: t.TempDir()}
	var err error
	if s.own, err = authority.New("the authority", time.Hour); err != nil {
		t.Fatal(err)
	}
	trusted := filepath.Join(s.dir, "ca.crt")
	if err := os.WriteFile(trusted, s.own.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := reference.ServiceAccountKeys(s.dir); err != nil {
		t.Fatal(err)
	}
	o.Flags = append(o.Flags, "--client-ca-file", trusted)
	if o.Kind == harness.Plinth {
		o.Flags = append(o.Flags, "--service-account-key-file", filepath.Join(s.dir, "sa.pub"),
			"--service-account-signing-key-file", filepath.Join(s.dir, "sa.key"), "--service-account-issuer", issuer)
	}
	o.Dir = s.dir
	s.Server = harness.Run(t, o)
	s.plain = s.OldClient()
	s.plain.Timeout = 30 * time.Second
	s.plain.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	t.Cleanup(s.plain.CloseIdleConnections)
	s.create(t, "/api/v1/namespaces", `{"metadata":{"name":"team"}}`)
	s.create(t, "/api/v1/namespaces", `{"metadata":{"name":"other"}}`)
	s.create(t, "/apis/rbac.authorization.k8s.io/v1/namespaces/team/roles",
		`{"metadata":{"name":"maps"},"rules":[{"apiGroups":[""],"resources":["configmaps"],"verbs":["*"]}]}`)
	s.create(t, "/apis/rbac.authorization.k8s.io/v1/namespaces/team/rolebindings",
		`{"metadata":{"name":"maps"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"maps"},`+
			`"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"`+team+`"}]}`)
	s.create(t, "/api/v1/namespaces/other/secrets", `{"metadata":{"name":"x"},"stringData":{"a":"b"}}`)
	s.create(t, "/api/v1/namespaces/other/configmaps", `{"metadata":{"name":"x"}}`)
	return s
}

func (s *target) create(t *testing.T, path, body string) (uid string) {
	t.Helper()
	request, err := http.NewRequest("POST", s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+harness.AdminToken)
	request.Header.Set("Content-Type", "application/json")
	response, err := s.plain.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	var made struct{ Metadata struct{ UID string } }
	if err := json.Unmarshal(text, &made); err != nil || response.StatusCode != 201 {
		t.Fatalf("POST %s: %s %s", path, response.Status, text)
	}
	if err != nil {
		t.Fatal(err)
	}
	return made.Metadata.UID
}

// get is a GET of the administrator.
func (s *target) get(path string) ([]byte, error) {
	request, err := http.NewRequest("GET", s.URL+path, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+harness.AdminToken)
	response, err := s.plain.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != 200 {
		return nil, fmt.Errorf("GET %s: %s", path, response.Status)
	}
	return io.ReadAll(response.Body)
}

// client returns a client that sends the certificate of a credential, even if the server does not name its authority.
func (s *target) client(c *credential) *http.Client {
	if c.cert == nil {
		return s.plain
	}
	if kept, ok := s.clients.Load(c.name); ok {
		return kept.(*http.Client)
	}
	client := s.OldClient()
	client.Timeout, client.CheckRedirect = s.plain.Timeout, s.plain.CheckRedirect
	client.Transport.(*http.Transport).TLSClientConfig.GetClientCertificate = func(
		*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return c.cert, nil
	}
	kept, _ := s.clients.LoadOrStore(c.name, client)
	return kept.(*http.Client)
}

// ask sends the request of a row and returns the status.
func (s *target) ask(r row) (int, error) {
	method, url := r.method, r.url
	if method == "WATCH" {
		method = "GET"
		joint := "?"
		if strings.Contains(url, "?") {
			joint = "&"
		}
		url += joint + "watch=1&timeoutSeconds=1"
	}
	var body io.Reader
	if slices.Contains([]string{"POST", "PUT", "PATCH"}, method) {
		body = strings.NewReader("{}")
	}
	request, err := http.NewRequest(method, s.URL, body)
	if err != nil {
		return 0, err
	}
	path, query, _ := strings.Cut(url, "?")
	// As it is written, even if it is invalid.
	request.URL.Opaque, request.URL.RawQuery = "//"+request.URL.Host+request.URL.Path+path, query
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
		if method == "PATCH" {
			request.Header.Set("Content-Type", "application/merge-patch+json")
		}
	}
	for i := 0; i < len(r.credential.headers); i += 2 {
		request.Header.Add(r.credential.headers[i], r.credential.headers[i+1])
	}
	response, err := s.client(r.credential).Do(request)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", r, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusSwitchingProtocols {
		_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<20)) // only the status matters
	}
	return response.StatusCode, nil
}

// rows returns all attempts on a server, in the order in which they are recorded.
func (s *target) rows(t *testing.T) (all []row, tricks int) {
	t.Helper()
	uid := s.create(t, "/api/v1/namespaces/team/serviceaccounts", `{"metadata":{"name":"robot"}}`)
	credentials := []credential{{name: "nobody", all: true},
		{name: "the team", is: team, headers: bearer(harness.UserToken), all: true}}
	credentials = append(append(credentials, headerTricks()...), teamTricks()...)
	certs, err := certificates(s.own)
	if err != nil {
		t.Fatal(err)
	}
	key, public, err := signingKey(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	jwts, err := tokens(key, public, uid)
	if err != nil {
		t.Fatal(err)
	}
	credentials = append(append(credentials, certs...), jwts...)
	urls, err := resourceURLs(s.get)
	if err != nil {
		t.Fatal(err)
	}
	if !*rewrite { // all URLs of the reference are requested, also those that Plinth does not serve
		urls = append(urls, recordedURLs(t)...)
		slices.Sort(urls)
		urls = slices.Compact(urls)
	}
	urls = append(slices.Clone(paths), slices.DeleteFunc(urls,
		func(url string) bool { return slices.Contains(paths, url) })...)
	for i := range credentials {
		c := &credentials[i]
		if !c.all {
			tricks++
			for _, text := range telling {
				method, url, _ := strings.Cut(text, " ")
				all = append(all, row{c, method, url})
			}
			continue
		}
		for _, url := range urls {
			for _, method := range methods {
				all = append(all, row{c, method, url})
			}
		}
	}
	return all, tricks
}

// askAll sends all rows, several at a time.
func (s *target) askAll(t *testing.T, rows []row) []int {
	t.Helper()
	codes := make([]int, len(rows))
	next := make(chan int)
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for i := range next {
				var err error
				if codes[i], err = s.ask(rows[i]); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range rows {
		next <- i
	}
	close(next)
	workers.Wait()
	return codes
}

// TestPlinth compares Plinth with the records.
//
// SPEC: AUTH-1 AUTH-2
func TestPlinth(t *testing.T) {
	if *rewrite {
		return
	}
	t.Run("alone", func(t *testing.T) { tryAll(t, "") })
	if harness.Target() == harness.Plinth {
		t.Run("in a plane", func(t *testing.T) { tryAll(t, "tested") })
	}
}

func tryAll(t *testing.T, plane string) {
	s := start(t, harness.Options{Kind: harness.Target(), Plane: plane})
	rows, tricks := s.rows(t)
	recorded := readRecords(t)
	if plane != "" {
		for _, r := range rows {
			if slices.Contains(unknownInPlanes, r.credential.name) {
				code, ok := recorded[rowName(wrong, r.method, r.url)]
				if name := r.String(); !ok || recorded[name] == code && code != 401 {
					t.Errorf("%s: there is no record of what a wrong token gets, or it is the same", name)
				}
				recorded[r.String()] = code
			}
		}
	}
	compare(t, rows, s.askAll(t, rows), recorded, true)
	if len(rows) < least || tricks < leastTricks {
		t.Errorf("only %d rows were compared, of %d credentials", len(rows), tricks)
	}
}

// TestRecords compares the records with the reference, or makes them.
func TestRecords(t *testing.T) {
	if !*rewrite && !harness.WantReference() {
		return
	}
	s := start(t, harness.Options{Kind: harness.Reference})
	rows, _ := s.rows(t)
	codes := s.askAll(t, rows)
	if !*rewrite {
		compare(t, rows, codes, readRecords(t), false)
		return
	}
	for i, r := range rows {
		if gotIn(r.credential.is, r.method, r.url, codes[i]) {
			t.Errorf("the reference answers %d: %s", codes[i], r)
		}
	}
	if err := os.WriteFile(recordFile, printRows(rows, codes), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestTheTestFails checks that the test detects a server that authorizes every request.
func TestTheTestFails(t *testing.T) {
	if *rewrite || harness.Target() != harness.Plinth {
		return
	}
	s := start(t, harness.Options{Kind: harness.Plinth, Flags: []string{"--authorization-mode=AlwaysAllow"}})
	rows, _ := s.rows(t)
	rows = slices.DeleteFunc(rows, func(r row) bool { return r.credential.name != "the team" || r.method != "GET" })
	codes := s.askAll(t, rows)
	recorded := readRecords(t)
	in, other := 0, 0
	for i, r := range rows {
		if gotIn(r.credential.is, r.method, r.url, codes[i]) {
			in++
		}
		if recorded[r.String()] != codes[i] {
			other++
		}
	}
	if in < 100 || other < 300 {
		t.Errorf("of %d rows %d are reported as granted access, and %d as different from the record", len(rows), in, other)
	}
}

// compare compares the responses with the records, in both directions, and with the rule.
func compare(t *testing.T, rows []row, codes []int, recorded map[string]int, known bool) {
	t.Helper()
	seen := map[string]bool{}
	for i, r := range rows {
		name := r.String()
		if gotIn(r.credential.is, r.method, r.url, codes[i]) {
			t.Errorf("%s is answered %d", name, codes[i])
		}
		want, ok := recorded[name]
		delete(recorded, name)
		if want == codes[i] && ok {
			continue
		}
		if reason := knownDifference(name); known && reason != "" {
			seen[reason] = true
			continue
		}
		t.Errorf("%s: answered %d, recorded is %d", name, codes[i], want)
	}
	for name := range recorded {
		t.Errorf("%s is recorded, but was not sent", name)
	}
	for prefix, reason := range differs {
		if known && !seen[reason] {
			t.Errorf("the known difference %q no longer occurs: %s", prefix, reason)
		}
	}
}

func knownDifference(name string) string {
	_, attempt, _ := strings.Cut(name, "\t")
	for prefix, reason := range differs {
		if strings.HasPrefix(attempt, prefix) {
			return reason
		}
	}
	return ""
}

// printRows writes a line for each URL: the code of all methods, or of each where they differ.
func printRows(rows []row, codes []int) []byte {
	var out bytes.Buffer
	out.WriteString("# What the reference answers. Made by: go test ./http/attempts -rewrite -run Records\n")
	for i := 0; i < len(rows); {
		r := rows[i]
		if i == 0 || rows[i-1].credential != r.credential {
			fmt.Fprintf(&out, "\n=== %s\n", r.credential.name)
		}
		end := i + 1
		for end < len(rows) && rows[end].credential == r.credential && rows[end].url == r.url {
			end++
		}
		var parts []string
		for k := i; k < end; k++ {
			parts = append(parts, rows[k].method+" "+strconv.Itoa(codes[k]))
		}
		if same := slices.Compact(slices.Clone(codes[i:end])); len(same) == 1 && end-i == len(methods) {
			parts = []string{strconv.Itoa(same[0])}
		}
		fmt.Fprintf(&out, "%s\t%s\n", r.url, strings.Join(parts, ", "))
		i = end
	}
	return out.Bytes()
}

// recordedURLs returns the recorded URLs that every credential requests.
func recordedURLs(t *testing.T) (urls []string) {
	t.Helper()
	for name := range readRecords(t) {
		if parts := strings.Split(name, "\t"); parts[0] == "nobody" {
			urls = append(urls, parts[1])
		}
	}
	return urls
}

func readRecords(t *testing.T) map[string]int {
	t.Helper()
	text, err := os.ReadFile(recordFile)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]int{}
	name := ""
	for line := range strings.SplitSeq(string(text), "\n") {
		if title, ok := strings.CutPrefix(line, "=== "); ok {
			name = title
			continue
		}
		url, codes, ok := strings.Cut(line, "\t")
		if !ok {
			continue
		}
		if code, err := strconv.Atoi(codes); err == nil {
			for _, method := range methods {
				all[rowName(name, method, url)] = code
			}
			continue
		}
		for part := range strings.SplitSeq(codes, ", ") {
			method, code, _ := strings.Cut(part, " ")
			if all[rowName(name, method, url)], err = strconv.Atoi(code); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
		}
	}
	return all
}
