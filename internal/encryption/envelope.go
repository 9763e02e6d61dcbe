package encryption

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// envelope is the EncryptedObject of Kubernetes, in protobuf: what is stored for a value that was encrypted by a key
// which a plugin (KMS v2) has encrypted. Fields are in the order of their numbers.
type envelope struct {
	data        []byte // field 1; the encrypted value
	keyID       string // the plugin's name for the key that encrypts source
	source      []byte // what the plugin has made of the DEK, or of the seed from which DEKs are derived
	annotations map[string][]byte
	kind        sourceKind
}

// sourceKind says what the plugin has encrypted.
type sourceKind int32

const (
	sourceKey  sourceKind = iota // the DEK; AES_GCM_KEY
	sourceSeed                   // HKDF_SHA256_XNONCE_AES_GCM_SEED
)

// Bounds, as in the reference.
const (
	maxAnnotations = 32 << 10
	maxKeyID       = 1 << 10
	maxSource      = 1 << 10
)

// appendHead appends all fields after data. It is the same for all values of a DEK.
func (e *envelope) appendHead(b []byte) []byte {
	b = protowire.AppendTag(b, 2, protowire.BytesType)
	b = protowire.AppendString(b, e.keyID)
	b = protowire.AppendTag(b, 3, protowire.BytesType)
	b = protowire.AppendBytes(b, e.source)
	for _, name := range slices.Sorted(maps.Keys(e.annotations)) {
		entry := protowire.AppendTag(nil, 1, protowire.BytesType)
		entry = protowire.AppendString(entry, name)
		entry = protowire.AppendTag(entry, 2, protowire.BytesType)
		entry = protowire.AppendBytes(entry, e.annotations[name])
		b = protowire.AppendTag(b, 4, protowire.BytesType)
		b = protowire.AppendBytes(b, entry)
	}
	if e.kind != 0 {
		b = protowire.AppendTag(b, 5, protowire.VarintType)
		b = protowire.AppendVarint(b, uint64(e.kind))
	}
	return b
}

var errProto = errors.New("proto: cannot parse invalid wire-format data")

// parseEnvelope parses an envelope; its parts point into b.
func parseEnvelope(b []byte) (*envelope, error) {
	e := &envelope{}
	err := eachField(b, func(number protowire.Number, bytes []byte, varint uint64, current protowire.Type) error {
		switch {
		case number == 1 && current == protowire.BytesType:
			e.data = bytes
		case number == 2 && current == protowire.BytesType:
			e.keyID = string(bytes)
			return utf8Of("keyID", bytes)
		case number == 3 && current == protowire.BytesType:
			e.source = bytes
		case number == 4 && current == protowire.BytesType:
			return e.parseAnnotation(bytes)
		case number == 5 && current == protowire.VarintType:
			e.kind = sourceKind(varint)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return e, e.validate()
}

// cloneHead returns a copy of all fields but data that shares no bytes with e.
func (e *envelope) cloneHead() *envelope {
	c := &envelope{keyID: e.keyID, source: bytes.Clone(e.source), kind: e.kind}
	for name, value := range e.annotations {
		if c.annotations == nil {
			c.annotations = map[string][]byte{}
		}
		c.annotations[name] = bytes.Clone(value)
	}
	return c
}

// eachField calls f for each field of a message.
func eachField(b []byte, f func(n protowire.Number, bytes []byte, varint uint64, current protowire.Type) error) error {
	for len(b) > 0 {
		number, current, n := protowire.ConsumeTag(b)
		if n < 0 || number > protowire.MaxValidNumber {
			return errProto
		}
		b = b[n:]
		var bytes []byte
		var varint uint64
		switch current {
		case protowire.BytesType:
			bytes, n = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			varint, n = protowire.ConsumeVarint(b)
		default:
			n = protowire.ConsumeFieldValue(number, current, b)
		}
		if n < 0 {
			return errProto
		}
		b = b[n:]
		if err := f(number, bytes, varint, current); err != nil {
			return err
		}
	}
	return nil
}

func utf8Of(name string, text []byte) error {
	if !utf8.Valid(text) {
		return fmt.Errorf("string field v2.EncryptedObject.%s contains invalid UTF-8", name)
	}
	return nil
}

// parseAnnotation parses an entry of the map of annotations.
func (e *envelope) parseAnnotation(entry []byte) error {
	name, value := "", []byte{}
	err := eachField(entry, func(number protowire.Number, bytes []byte, _ uint64, current protowire.Type) error {
		switch {
		case number == 1 && current == protowire.BytesType:
			name = string(bytes)
			return utf8Of("AnnotationsEntry.key", bytes)
		case number == 2 && current == protowire.BytesType:
			value = bytes
		}
		return nil
	})
	if err != nil {
		return err
	}
	if e.annotations == nil {
		e.annotations = map[string][]byte{}
	}
	e.annotations[name] = value
	return nil
}

// validate returns the errors of the reference for an envelope.
func (e *envelope) validate() error {
	if e.kind != sourceKey && e.kind != sourceSeed {
		return fmt.Errorf("unknown encryptedDEKSourceType: %d", e.kind)
	}
	if len(e.data) == 0 {
		return errors.New("encrypted data is empty")
	}
	return e.validateHead()
}

// validateHead is validate for all fields but data.
func (e *envelope) validateHead() error {
	switch n := len(e.source); {
	case n == 0:
		return errors.New("failed to validate encrypted DEK source: encrypted DEK source is empty")
	case n > maxSource:
		return fmt.Errorf("failed to validate encrypted DEK source: encrypted DEK source is %d bytes, which exceeds the "+
			"max size of %d", n, maxSource)
	}
	if _, err := validateKeyID(e.keyID); err != nil {
		return fmt.Errorf("failed to validate key id: %w", err)
	}
	if err := validateAnnotations(e.annotations); err != nil {
		return fmt.Errorf("failed to validate annotations: %w", err)
	}
	return nil
}

// validateKeyID also returns the code of the error in metrics.
func validateKeyID(id string) (code string, err error) {
	switch n := len(id); {
	case n == 0:
		return "empty", errors.New("keyID is empty")
	case n > maxKeyID:
		return "too_long", fmt.Errorf("keyID is %d bytes, which exceeds the max size of %d", n, maxKeyID)
	}
	return "ok", nil
}

func validateAnnotations(annotations map[string][]byte) error {
	var errs []error
	size := 0
	for _, name := range slices.Sorted(maps.Keys(annotations)) {
		if bad := validation.IsFullyQualifiedDomainName(field.NewPath("annotations"), name); bad != nil {
			errs = append(errs, bad.ToAggregate())
		}
		size += len(name) + len(annotations[name])
	}
	if size > maxAnnotations {
		errs = append(errs, fmt.Errorf("total size of annotations is %d, which exceeds the max size of %d",
			size, maxAnnotations))
	}
	return utilerrors.NewAggregate(errs)
}

// sourceHash identifies the DEK of an envelope, or its seed: a hash of all that the plugin gets to decrypt it.
type sourceHash [sha256.Size]byte

func (e *envelope) hash() sourceHash {
	b := binary.BigEndian.AppendUint32(nil, uint32(e.kind))
	add := func(text []byte) {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(text))), text...)
	}
	add(e.source)
	add([]byte(e.keyID))
	for _, name := range slices.Sorted(maps.Keys(e.annotations)) {
		add([]byte(name))
		add(e.annotations[name])
	}
	return sha256.Sum256(b)
}

// hashOf is the hash of a key's name, as errors and metrics have it.
func hashOf(text string) string {
	if text == "" {
		return ""
	}
	return Hash([]byte(text))
}
