package apiregistration

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	upstream "k8s.io/kube-aggregator/pkg/apis/apiregistration"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/install"
	v1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/validation"

	"plinth/internal/builtin"
	"plinth/object"
)

// pick returns one of several values.
func pick[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }

// generate makes an APIService; most have an error or two.
func generate(r *rand.Rand) *v1.APIService {
	s := &v1.APIService{}
	s.Spec.Group = pick(r, "", "a", "a.example.com", "a.example.com", "A_b", strings.Repeat("a.", 130)+"a")
	s.Spec.Version = pick(r, "v1", "v1", "v2beta1", "", "V1", "1v")
	s.Name = s.Spec.Version + "." + s.Spec.Group
	if r.IntN(4) == 0 {
		s.Name = pick(r, "a", "v1.", "v1.a", "v1.a.example.com", "v1/a", "v1%a", ".")
	}
	if r.IntN(4) == 0 {
		s.GenerateName = pick(r, s.Name, "v1.a.example.com", "v1.", "b", "v1/b")
	}
	s.Spec.GroupPriorityMinimum = pick[int32](r, 1, 1000, 20000, 0, -1, 20001)
	s.Spec.VersionPriority = pick[int32](r, 1, 15, 1000, 0, -1, 1001)
	s.Spec.CABundle = pick(r, nil, nil, []byte("abc"), []byte{})
	s.Spec.InsecureSkipTLSVerify = r.IntN(3) == 0
	if r.IntN(3) > 0 {
		s.Spec.Service = &v1.ServiceReference{Namespace: pick(r, "default", "default", ""), Name: pick(r, "a", "a", "")}
		if r.IntN(2) == 0 {
			port := pick[int32](r, 1, 443, 65535, 0, -1, 65536)
			s.Spec.Service.Port = &port
		}
	}
	for range r.IntN(3) {
		s.Status.Conditions = append(s.Status.Conditions, v1.APIServiceCondition{
			Type: pick[v1.APIServiceConditionType](r, "Available", "A"), Status: pick[v1.ConditionStatus](r, "True", "False",
				"Unknown", "", "true")})
	}
	return s
}

// value is an object as Plinth has it.
func value(t *testing.T, s any) object.Value {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := object.ParseJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed.Value
}

func sorted(list field.ErrorList) string {
	var texts []string
	for _, err := range list {
		if strings.HasPrefix(err.Detail, "may not contain ") || strings.HasPrefix(err.Detail, "may not be '") {
			continue // that a name is a segment of a path is a rule of the engine
		}
		texts = append(texts, err.Error())
	}
	slices.Sort(texts)
	return strings.Join(texts, "\n")
}

// SPEC: EXT-2, VAL-1, VAL-4
func TestAPIServices(t *testing.T) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	ours := builtin.FunctionsOf("apiregistration.k8s.io", "v1", "APIService")
	r := rand.New(rand.NewPCG(1, 2))
	valid, invalid := 0, 0
	for range 5000 {
		given := generate(r)
		wanted := given.DeepCopy()
		scheme.Default(wanted)
		filled := ours.Defaults(value(t, given), time.Now())
		if want := value(t, wanted); !object.Equal(filled, want) {
			t.Fatalf("defaults of %s:\n%s\nwant\n%s", object.AppendJSON(nil, value(t, given)),
				object.AppendJSON(nil, filled), object.AppendJSON(nil, want))
		}
		internal := &upstream.APIService{}
		if err := scheme.Convert(wanted, internal, nil); err != nil {
			t.Fatal(err)
		}
		old := internal.DeepCopy()
		internal.ResourceVersion, old.ResourceVersion = "1", "1"
		ctx := context.Background()
		want := sorted(validation.ValidateAPIService(ctx, internal))
		if got := sorted(ours.Rules.Create(filled)); got != want {
			t.Fatalf("%s:\n%s\nwant\n%s", object.AppendJSON(nil, filled), got, want)
		}
		if got, want := sorted(ours.Rules.Update(filled, filled)),
			sorted(validation.ValidateAPIServiceUpdate(ctx, internal, old)); got != want {
			t.Fatalf("update of %s:\n%s\nwant\n%s", object.AppendJSON(nil, filled), got, want)
		}
		if got, want := sorted(ours.Rules.Status(filled, filled)),
			sorted(validation.ValidateAPIServiceStatusUpdate(ctx, internal, old)); got != want {
			t.Fatalf("status of %s:\n%s\nwant\n%s", object.AppendJSON(nil, filled), got, want)
		}
		if want == "" {
			valid++
		} else {
			invalid++
		}
	}
	if valid < 50 || invalid < 50 {
		t.Errorf("%d APIServices are valid, %d are not", valid, invalid)
	}
}
