package patches

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"plinth/conformance/internal/native"
	"plinth/object"
	"plinth/patch"
)

// outcome is the result of a patch.
type outcome struct {
	status  int    // 200, or the API server's status for the error
	text    string // the object or the error message
	crashed bool
}

func (o outcome) String() string { return fmt.Sprintf("%d %s", o.status, o.text) }

// strategic is one case of a strategic merge patch.
type strategic struct {
	kind        *kind
	live, patch object.Value
}

// upstream applies the patch as the API server does. The maps are filled in another order for each source of random
// numbers.
func (c strategic) upstream(rng *rand.Rand) (o outcome) {
	live, _ := native.Of(c.live, rng).(map[string]any)
	patch, _ := native.Of(c.patch, rng).(map[string]any)
	defer func() {
		if p := recover(); p != nil {
			o = outcome{status: 500, text: fmt.Sprint(p), crashed: true}
		}
	}()
	made, err := strategicpatch.StrategicMergeMapPatch(live, patch, reflect.New(c.kind.golang).Interface())
	switch err {
	case nil:
		return outcome{status: 200, text: string(jsonOf(map[string]any(made)))}
	case mergepatch.ErrBadJSONDoc, mergepatch.ErrBadPatchFormatForPrimitiveList, mergepatch.ErrBadPatchFormatForRetainKeys,
		mergepatch.ErrBadPatchFormatForSetElementOrderList, mergepatch.ErrUnsupportedStrategicMergePatchFormat:
		return outcome{status: 400, text: err.Error()}
	case mergepatch.ErrNoListOfLists, mergepatch.ErrPatchContentNotMatchRetainKeys:
		return outcome{status: 422, text: err.Error()}
	}
	return outcome{status: 500, text: err.Error()}
}

func (c strategic) plinth() outcome {
	made, err := patch.Strategic(c.live, c.patch, c.kind.typ)
	switch {
	case err == nil:
		return outcome{status: 200, text: string(object.AppendJSON(nil, made))}
	case errors.Is(err, patch.ErrMalformed):
		return outcome{status: 400, text: err.Error()}
	case errors.Is(err, patch.ErrUnprocessable):
		return outcome{status: 422, text: err.Error()}
	case errors.Is(err, patch.ErrMisfit):
		return outcome{status: 500, text: err.Error()}
	}
	return outcome{text: "an error of no kind: " + err.Error()}
}

func valueOf(v any) object.Value {
	switch v := v.(type) {
	case nil:
		return object.Nil
	case bool:
		return object.BoolOf(v)
	case int64:
		return object.IntOf(v)
	case float64:
		return object.FloatOf(v)
	case string:
		return object.StringOf(v)
	case []any:
		if v == nil {
			return object.Nil
		}
		items := make([]object.Value, len(v))
		for i, item := range v {
			items[i] = valueOf(item)
		}
		return object.ListOf(items...)
	case map[string]any:
		members := make([]object.Member, 0, len(v))
		for _, key := range keysOf(v) {
			members = append(members, object.Member{Key: key, Value: valueOf(v[key])})
		}
		return object.MapOf(members...)
	}
	panic(fmt.Sprintf("%T is no JSON", v))
}

func keysOf[K cmp.Ordered, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
