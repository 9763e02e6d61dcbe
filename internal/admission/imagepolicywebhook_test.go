package admission

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// How long an answer of the webhook counts, and how long it is waited between tries, follow from the configuration.
//
// SPEC: AUTH-3
func TestTimesOfImagePolicies(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: "+
		"'https://127.0.0.1:1'}}]\ncontexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text                 string
		backoff, allow, deny time.Duration
	}{
		{"", 500 * time.Millisecond, 5 * time.Minute, 30 * time.Second},
		{", allowTTL: 0, denyTTL: 0, retryBackoff: 0", 500 * time.Millisecond, 5 * time.Minute, 30 * time.Second},
		{", allowTTL: -1, denyTTL: -1, retryBackoff: -1", 0, 0, 0},
		{", allowTTL: 7, denyTTL: 8, retryBackoff: 9", 9 * time.Millisecond, 7 * time.Second, 8 * time.Second},
	} {
		p, err := imagePolicyOf(fmt.Appendf(nil, "imagePolicy: {kubeConfigFile: %q%s}\n", file, c.text))
		if err != nil {
			t.Fatal(err)
		}
		if p.backoff != c.backoff || p.allowTTL != c.allow || p.denyTTL != c.deny || p.answers.Limit != 1024 {
			t.Errorf("%q: %v, %v, %v, %d answers", c.text, p.backoff, p.allowTTL, p.denyTTL, p.answers.Limit)
		}
	}
}
