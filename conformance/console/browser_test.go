package console

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"plinth/conformance/internal/harness"
)

// pictures is where the tests write a picture of each page that they see.
var pictures = flag.String("pictures", "", "the directory for pictures of the pages; none are made without it")

func TestMain(m *testing.M) { harness.Main(m) }

// tooLong bounds every wait. It is generous: a browser beside other tests takes many times as long as alone.
const tooLong = time.Minute

// chromium is the browser. In a container of Debian, where tests run as root, it is installed if it is not there.
func chromium(t testing.TB) string {
	t.Helper()
	path := findChromium()
	if path == "" && os.Geteuid() == 0 {
		install(t)
		path = findChromium()
	}
	if path == "" {
		t.Fatal("there is no Chromium in the PATH. Debian: apt-get install chromium; macOS: brew install --cask chromium")
	}
	return path
}

func findChromium() string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

var installing sync.Once

// install installs the browser of Debian, once for all tests.
func install(t testing.TB) {
	t.Helper()
	installing.Do(func() {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		for _, args := range [][]string{{"update"}, {"install", "-y", "--no-install-recommends", "chromium"}} {
			if out, err := exec.CommandContext(ctx, "apt-get", args...).CombinedOutput(); err != nil {
				t.Logf("apt-get %s: %v\n%s", strings.Join(args, " "), err, out)
				return
			}
		}
	})
}

// tab is a tab of a browser of its own, and what went wrong in it.
type tab struct {
	t      testing.TB
	ctx    context.Context
	server *harness.Server

	mu      sync.Mutex
	wrong   []string // errors in the browser's console, exceptions, dialogs
	numbers int      // the last one of next
}

// open starts a browser for a test. When the test ends it fails if anything has gone wrong in the page.
func open(t testing.TB, server *harness.Server) *tab {
	t.Helper()
	// The sandbox of the browser does not work for root, as which tests run in containers.
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium(t)), chromedp.NoSandbox,
		chromedp.IgnoreCertErrors, chromedp.Flag("enable-precise-memory-info", true),
		chromedp.WindowSize(1440, 900),
		chromedp.WSURLReadTimeout(tooLong), chromedp.UserDataDir(t.TempDir()))
	allocated, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, stop := chromedp.NewContext(allocated)
	b := &tab{t: t, ctx: ctx, server: server}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the page shows:\n%s", b.text())
		}
		if err := chromedp.Cancel(ctx); err != nil {
			t.Error(err)
		}
		stop()
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, w := range b.wrong {
			t.Errorf("in the browser: %s", w)
		}
	})
	// The browser lives as long as the context that starts it, which has no timeout.
	if err := chromedp.Listen(ctx, b.listen); err != nil {
		t.Fatal(err)
	}
	return b
}

// listen notes what goes wrong. The browser says of every answer of 4xx that a resource has not been loaded, which the
// page shows: those are left out.
func (b *tab) listen(event any) {
	var what string
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		what = "an exception: " + e.ExceptionDetails.Text
		if x := e.ExceptionDetails.Exception; x != nil {
			what += " " + x.Description
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			what = fmt.Sprintf("console.%s", e.Type)
			for _, a := range e.Args {
				what += " " + fmt.Sprint(a.Value) + a.Description
			}
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError && e.Entry.Source != log.EntrySourceNetwork {
			what = e.Entry.Text
		}
	case *page.EventJavascriptDialogOpening:
		what = "a dialog: " + e.Message
	}
	if what != "" {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.wrong = append(b.wrong, what)
	}
}

// run does something in the tab.
func (b *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, tooLong)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// result is what an action returns.
func result[T any](b *tab, action chromedp.Action[T]) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, tooLong)
	defer cancel()
	value, err := chromedp.Run(ctx, action)
	if err != nil {
		b.t.Fatal(err)
	}
	return value
}

// visit opens an address below /console/.
func (b *tab) visit(path string) {
	b.t.Helper()
	b.run(chromedp.Navigate(b.server.URL + "/console/" + path))
}

// navigate opens another address of a server.
func navigate(server *harness.Server, path string) chromedp.Action[chromedp.Void] {
	return chromedp.Navigate(server.URL + path)
}

// signIn visits the page and signs in as the administrator.
func (b *tab) signIn() {
	b.t.Helper()
	b.visit("")
	b.typeToken(harness.AdminToken)
	b.sees("Sign out")
}

// typeToken signs in by keys.
func (b *tab) typeToken(token string) {
	b.t.Helper()
	b.wait(`document.querySelector("#token")`)
	b.wait(`document.querySelector("#token").focus(), document.querySelector("#token").select(),
		document.activeElement.id === "token"`)
	b.keys(token + kb.Enter)
}

// wait waits until an expression in JavaScript is true. One that throws is not: a page that the browser is about to
// show has no body yet. chromedp.Poll makes a function of a string in the page, which the page's
// Content-Security-Policy refuses.
func (b *tab) wait(expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, tooLong)
	defer cancel()
	for {
		is, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
		if err == nil && is {
			return
		}
		if ctx.Err() != nil {
			b.t.Fatalf("not true within %s: %s (%v)", tooLong, expression, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// sees waits until the page has a text, seen or further down: what is not seen yet is not in innerText.
func (b *tab) sees(text string) {
	b.t.Helper()
	b.wait(fmt.Sprintf("document.body.innerText.includes(%[1]q) || document.body.textContent.includes(%[1]q)", text))
}

// misses waits until the page does not show a text.
func (b *tab) misses(text string) {
	b.t.Helper()
	b.wait(fmt.Sprintf("!document.body.textContent.includes(%q)", text))
}

// keys presses keys, wherever the focus is, as a keyboard does: a page that handles a key keeps it from being typed,
// which the browser knows only for a raw event.
func (b *tab) keys(keys string) {
	b.t.Helper()
	b.run(chromedp.KeyEvent(keys, func(key *input.DispatchKeyEventParams) {
		if key.Type == input.DispatchKeyEventTypeKeyDown {
			key.Type = input.DispatchKeyEventTypeRawKeyDown
		}
	}))
}

// click clicks with the mouse into the middle of the first element of a CSS selector that has a text.
func (b *tab) click(selector, text string) {
	b.t.Helper()
	find := fmt.Sprintf(`[...document.querySelectorAll(%q)].find((e) => e.textContent.includes(%q))`, selector, text)
	b.wait(find)
	at := result(b, chromedp.Evaluate[struct{ X, Y float64 }](fmt.Sprintf(`(() => {
		const e = %s;
		e.scrollIntoView({ block: "center" });
		const r = e.getBoundingClientRect();
		return { X: r.x + r.width / 2, Y: r.y + r.height / 2 };
	})()`, find)))
	b.run(chromedp.MouseClickXY(at.X, at.Y))
}

// text is what the page shows.
func (b *tab) text() string {
	ctx, cancel := context.WithTimeout(b.ctx, 10*time.Second)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](`location.href + "\n" + document.body.innerText`))
	if err != nil {
		return err.Error()
	}
	return text[:min(len(text), 1200)]
}

// picture writes pictures of the page if the flag says so: light and dark, large and small.
func (b *tab) picture(name string) {
	b.t.Helper()
	if *pictures == "" {
		return
	}
	if err := os.MkdirAll(*pictures, 0o755); err != nil {
		b.t.Fatal(err)
	}
	b.forms(func(theme string, width int64) {
		png := result(b, chromedp.CaptureScreenshot())
		file := filepath.Join(*pictures, fmt.Sprintf("%s-%s-%d.png", name, theme, width))
		if err := os.WriteFile(file, png, 0o644); err != nil {
			b.t.Fatal(err)
		}
	})
}

// api sends a request to the API, as the administrator, and returns the body of the answer.
func api(t testing.TB, server *harness.Server, method, path, contentType, body string) string {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	rq, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	rq.Header.Set("Authorization", "Bearer "+harness.AdminToken)
	rq.Header.Set("Content-Type", contentType)
	answer, err := client.Do(rq)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode >= 300 {
		t.Fatalf("%s %s: %s %v\n%s", method, path, answer.Status, err, data)
	}
	return string(data)
}

// create creates an object of JSON.
func create(t testing.TB, server *harness.Server, path, body string) string {
	t.Helper()
	return api(t, server, http.MethodPost, path, "application/json", body)
}

// apply applies an object as a manager.
func apply(t testing.TB, server *harness.Server, path, manager, body string) {
	t.Helper()
	api(t, server, http.MethodPatch, path+"?fieldManager="+manager, "application/apply-patch+yaml", body)
}

// uidOf is the UID of an object of JSON.
func uidOf(t testing.TB, text string) string {
	t.Helper()
	var object struct{ Metadata struct{ UID string } }
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		t.Fatal(err)
	}
	return object.Metadata.UID
}
