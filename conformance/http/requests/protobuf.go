package requests

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// known has the types of responses in protobuf.
var known = func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(scheme.AddToScheme(s))
	utilruntime.Must(metav1.AddMetaToScheme(s))
	utilruntime.Must(metav1beta1.AddMetaToScheme(s))
	return s
}()

// protobufJSON turns a body in protobuf into JSON: one object, or the frames of a watch one after the other.
func protobufJSON(body []byte) ([]byte, error) {
	if bytes.HasPrefix(body, []byte("k8s\x00")) {
		return objectJSON(body)
	}
	var out []byte
	for len(body) >= 4 {
		size := binary.BigEndian.Uint32(body)
		if uint64(len(body)) < 4+uint64(size) {
			return nil, errors.New("a frame ends too early")
		}
		var event metav1.WatchEvent
		if err := event.Unmarshal(body[4 : 4+size]); err != nil {
			return nil, err
		}
		object, err := objectJSON(event.Object.Raw)
		if err != nil {
			return nil, err
		}
		text, err := json.Marshal(map[string]any{"type": event.Type, "object": json.RawMessage(object)})
		if err != nil {
			return nil, err
		}
		out, body = append(out, text...), body[4+size:]
	}
	return out, nil
}

func objectJSON(body []byte) ([]byte, error) {
	object, kind, err := protobuf.NewSerializer(known, known).Decode(body, nil, nil)
	if err != nil {
		return nil, err
	}
	object.GetObjectKind().SetGroupVersionKind(*kind)
	return json.Marshal(object)
}
