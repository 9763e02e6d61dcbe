package clientgo

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plinth/conformance/internal/harness"
)

// SPEC: STORE-1 WATCH-6: SIGTERM ends watches and the server, cleanly and soon; a restarted server has everything that
// was written and accepts the same credentials.
func TestStop(t *testing.T) {
	server := harness.RunTarget(t)
	if server.Kind == harness.Reference {
		return // it restarts on another port
	}
	client := typed(t, server)
	ns := namespace(t, client, "stopped")
	w, err := client.CoreV1().Pods(ns).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Pods(ns).Create(t.Context(), pod("a"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := server.Stop(); err != nil {
		t.Errorf("the server ends with %v:\n%s", err, server.LogTail(10))
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it takes %s to stop", took)
	}
	events := 0
	for range w.ResultChan() {
		events++
	}
	if events == 0 {
		t.Error("the watch has lost the event from before the end")
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Pods(ns).Get(t.Context(), "a", metav1.GetOptions{}); err != nil {
		t.Errorf("after a restart, with the client of before: %v", err)
	}
}
