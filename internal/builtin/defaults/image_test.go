package defaults

import (
	"os"
	"strings"
	"testing"

	"plinth/object"
)

func TestImages(t *testing.T) {
	text, err := os.ReadFile("testdata/images.txt")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")[1:]
	if len(lines) < 35 {
		t.Errorf("only %d images", len(lines))
	}
	for _, line := range lines {
		want, image, _ := strings.Cut(line, " ")
		pod := object.Fields("spec", object.Fields("containers",
			object.ListOf(object.Fields("image", object.StringOf(image)))))
		if got := Pod(pod).At("spec", "containers").Items()[0].At("imagePullPolicy").Str(); got != want {
			t.Errorf("%q: %s, want %s", image, got, want)
		}
	}
}

// Traced is called once for each change.
func TestTraced(t *testing.T) {
	calls := 0
	Traced = func() { calls++ }
	defer func() { Traced = nil }()
	statefulSetRollingUpdate(object.Fields())
	statefulSetRollingUpdate(object.Fields("maxUnavailable", object.IntOf(2), "partition", object.IntOf(1)))
	if calls != 2 {
		t.Errorf("%d calls for two changes", calls)
	}
}
