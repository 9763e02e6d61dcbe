package gotypes

import (
	"fmt"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Query decodes the query of a URL into options of k8s.io/api, such as PodLogOptions: each parameter into the field of
// its JSON name. As in the reference, parameters without a field are ignored, and what a parameter may be depends on
// the Go type of its field.
func Query(query map[string][]string, into any) error {
	options := reflect.ValueOf(into).Elem()
	for i := range options.NumField() {
		name, _, _ := strings.Cut(options.Type().Field(i).Tag.Get("json"), ",")
		given := query[name]
		if name == "" || len(given) == 0 {
			continue
		}
		if err := parameter(given, options.Field(i).Addr().Interface()); err != nil {
			return err
		}
	}
	return nil
}

// parameter decodes the values of one parameter into a field.
func parameter(given []string, field any) error {
	switch field := field.(type) {
	case *string:
		return runtime.Convert_Slice_string_To_string(&given, field, nil)
	case **string:
		*field = &given[0]
		return nil
	case *bool:
		return runtime.Convert_Slice_string_To_bool(&given, field, nil)
	case **int64:
		return runtime.Convert_Slice_string_To_Pointer_int64(&given, field, nil)
	case *[]string:
		*field = given
		return nil
	case *[]int32:
		return metav1.Convert_Slice_string_To_Slice_int32(&given, field, nil)
	case **metav1.Time:
		return metav1.Convert_Slice_string_To_Pointer_v1_Time(&given, field, nil)
	}
	panic(fmt.Sprintf("gotypes: a parameter of type %T", field)) // TestQuery decodes into every field of every option
}
