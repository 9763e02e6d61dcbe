package defaults

import (
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"k8s.io/kubernetes/pkg/util/parsers"

	"plinth/internal/builtin/defaults"
	"plinth/object"
)

// imageParts are concatenated at random: most of the names are invalid in one way or another, some are just valid.
var imageParts = []string{"a", "nginx", "library", "docker.io", "index.docker.io", "localhost", "example.com",
	"EXAMPLE", "Nginx",
	"1", "0", "A", "z9", "zz", "Z", "g", "`", "{", "[fF:9]", "[G]", ".", "_", "__", "___", "-", "--", "/", "/", "/", ":",
	":", "@", "[", "]", "[::1]", ":5000", ":80", ":latest",
	":latest", ":1.2", "latest", "é", " ", "@sha256:", "@sha384:", "@sha512:", "@md5:",
	strings.Repeat("0123456789abcdef", 4), strings.Repeat("0123456789ABCDEF", 4), strings.Repeat("a", 64),
	strings.Repeat("b1", 48), strings.Repeat("c", 128), strings.Repeat("g", 64), strings.Repeat("y", 248), strings.Repeat("a/", 60), strings.Repeat("x", 120),
	"@sha256:" + strings.Repeat("f", 64)}

func imageName(rng *rand.Rand) string {
	var b strings.Builder
	for range 1 + rng.IntN(7) {
		b.WriteString(imageParts[rng.IntN(len(imageParts))])
	}
	return b.String()
}

// SPEC: VAL-4
func TestPullPolicyOfImageNames(t *testing.T) {
	rng := rand.New(rand.NewPCG(*seed, 1))
	always := 0
	for range 100_000 {
		image := imageName(rng)
		want := "IfNotPresent"
		if _, tag, _, _ := parsers.ParseImageName(image); tag == "latest" {
			want = "Always"
			always++
		}
		pod := object.Fields("spec",
			object.Fields("containers", object.ListOf(object.Fields("image", object.StringOf(image)))))
		got := defaults.Pod(pod).At("spec", "containers").Items()[0].At("imagePullPolicy").Str()
		if got != want {
			t.Fatalf("%q: %s, want %s", image, got, want)
		}
	}
	if always < 4_000 {
		t.Errorf("only %d names mean latest", always)
	}
	t.Logf("%d of 100000 names mean latest", always)
}

// The pull policies of images in the product's tests are those of upstream.
func TestRecordedImages(t *testing.T) {
	text, err := os.ReadFile("../../../internal/builtin/defaults/testdata/images.txt")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")[1:]
	if len(lines) < 35 {
		t.Errorf("only %d images", len(lines))
	}
	for _, line := range lines {
		policy, image, _ := strings.Cut(line, " ")
		want := "IfNotPresent"
		if _, tag, _, _ := parsers.ParseImageName(image); tag == "latest" {
			want = "Always"
		}
		if policy != want {
			t.Errorf("%q: %s, want %s", image, policy, want)
		}
	}
}
