package object

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/fxamacker/cbor/v2"
)

// This file reads and prints CBOR (RFC 8949). Reading uses a library and Go's types: few clients send CBOR, and the
// input that Kubernetes accepts is defined by a long list of the library's options. Printing converts the canonical
// JSON of the store in one pass and without values: {"a":[1,"b"]} becomes
//
//	bf          a map of indefinite length
//	   41 61    the bytes "a"
//	   9f       a list of indefinite length
//	      01    1
//	      41 62 the bytes "b"
//	   ff ff    the ends of both

// selfDescribed is the head of the tag that marks its content as CBOR (RFC 8949, 3.4.6).
const selfDescribed = "\xd9\xd9\xf7"

// cborReader reads CBOR as Kubernetes does (modes.Decode of apimachinery's package cbor): strings of either type, maps
// without duplicates, numbers that JSON can express, and base64 text for bytes that are tagged so. It is made on first
// use, and shared.
var cborReader = sync.OnceValue(func() cbor.DecMode {
	var simple []func(*cbor.SimpleValueRegistry) error
	for value := range 256 {
		if value < 20 || value == 23 || value > 31 { // all but false, true and null; 24 to 31 cannot be written
			simple = append(simple, cbor.WithRejectedSimpleValue(cbor.SimpleValue(value)))
		}
	}
	values, err := cbor.NewSimpleValueRegistryFromDefaults(simple...)
	if err != nil {
		panic("object: " + err.Error()) // the values are constants
	}
	mode, err := cbor.DecOptions{
		DupMapKey:             cbor.DupMapKeyEnforcedAPF,
		TimeTag:               cbor.DecTagOptional,
		MaxNestedLevels:       MaxDepth,
		MaxArrayElements:      math.MaxInt32, // the size of the body is bounded, and an element takes a byte
		MaxMapPairs:           1 << 21,
		IntDec:                cbor.IntDecConvertSignedOrFail,
		DefaultMapType:        reflect.TypeFor[map[string]any](),
		DefaultByteStringType: reflect.TypeFor[string](),
		ByteStringToString:    cbor.ByteStringToStringAllowedWithExpectedLaterEncoding,
		UnrecognizedTagToAny:  cbor.UnrecognizedTagContentToAny,
		TimeTagToAny:          cbor.TimeTagToRFC3339Nano,
		NaN:                   cbor.NaNDecodeForbidden,
		Inf:                   cbor.InfDecodeForbidden,
		BignumTag:             cbor.BignumTagForbidden,
		SimpleValues:          values,
	}.DecMode()
	if err != nil {
		panic("object: " + err.Error()) // so are the options
	}
	return mode
})

// ParseCBOR reads one item of CBOR as the value of the same content in JSON (MED-4). Unlike in JSON, duplicate keys are
// an error, so Duplicates is empty. The result does not point into data.
func ParseCBOR(data []byte) (Parsed, error) {
	var read any
	if err := cborReader().Unmarshal(data, &read); err != nil {
		return Parsed{}, err
	}
	v, err := fromGo(read)
	return Parsed{Value: v}, err
}

// fromGo converts the result of the CBOR library to a value.
func fromGo(read any) (Value, error) {
	switch read := read.(type) {
	case nil:
		return Nil, nil
	case bool:
		return BoolOf(read), nil
	case int64:
		return IntOf(read), nil
	case float64:
		return floatLiteral(read), nil
	case string:
		return StringOf(validText(read)), nil
	case []any:
		items := make([]Value, len(read))
		for i := range read {
			var err error
			if items[i], err = fromGo(read[i]); err != nil {
				return Nil, err
			}
		}
		return ListOf(items...), nil
	case map[string]any:
		members := make([]Member, 0, len(read))
		for _, key := range slices.Sorted(maps.Keys(read)) {
			value, err := fromGo(read[key])
			if err != nil {
				return Nil, err
			}
			members = append(members, Member{Key: validText(key), Value: value})
		}
		return MapOf(members...), nil
	}
	return Nil, fmt.Errorf("cbor: a %T has no place in an object", read)
}

// floatLiteral returns a float as a JSON literal. A whole number keeps its point, so that it is not an integer (VAL-1):
// the float 3 of CBOR is 3.0, which is invalid for the replicas of a Deployment.
func floatLiteral(f float64) Value {
	text := string(appendFloat(nil, f))
	if !strings.ContainsAny(text, ".e") {
		text += ".0"
	}
	return NumberOf(text)
}

// validText replaces what is not UTF-8, as the parser of JSON does.
func validText(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return string(appendValid(nil, s))
}

// AppendCBOR converts JSON text, which this package has printed, to CBOR (MED-4). The text may be any part of a
// document that begins and ends between tokens: lists and maps are of indefinite length, so that a collection can be
// printed while it is read. Strings are byte strings, as Kubernetes writes them.
func AppendCBOR(dst []byte, text []byte) []byte {
	for i := 0; i < len(text); {
		switch c := text[i]; c {
		case '{':
			dst, i = append(dst, cborMap), i+1
		case '[':
			dst, i = append(dst, cborList), i+1
		case '}', ']':
			dst, i = append(dst, cborBreak), i+1
		case '"':
			end := endOfString(text, i)
			dst, i = appendCBORString(dst, text[i:end]), end
		case 't':
			dst, i = append(dst, cborTrue), i+len("true")
		case 'f':
			dst, i = append(dst, cborFalse), i+len("false")
		case 'n':
			dst, i = append(dst, cborNull), i+len("null")
		case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			end := i + 1
			for end < len(text) && strings.IndexByte("0123456789+-.eE", text[end]) >= 0 {
				end++
			}
			dst, i = appendCBORNumber(dst, string(text[i:end])), end
		default: // a comma, a colon, or space between tokens
			i++
		}
	}
	return dst
}

// AppendCBORStart begins a document with the tag that marks it as CBOR.
func AppendCBORStart(dst []byte) []byte { return append(dst, selfDescribed...) }

// CBOR converts a whole document of JSON text, which this package has printed, to CBOR.
func CBOR(text []byte) []byte {
	return AppendCBOR(AppendCBORStart(make([]byte, 0, len(text))), text)
}

// The heads of items (RFC 8949, appendix B).
const (
	cborBytes = 0x40
	cborList  = 0x9f
	cborMap   = 0xbf
	cborFalse = 0xf4
	cborTrue  = 0xf5
	cborNull  = 0xf6
	cborFloat = 0xfb
	cborBreak = 0xff

	cborNegative = 0x20
)

// appendCBORHead prints the head of an item whose type is in the upper three bits of major.
func appendCBORHead(dst []byte, major byte, n uint64) []byte {
	switch {
	case n < 24:
		return append(dst, major|byte(n))
	case n <= math.MaxUint8:
		return append(dst, major|24, byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(dst, major|25), uint16(n))
	case n <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(dst, major|26), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(dst, major|27), n)
}

// endOfString returns the offset behind the string whose quote is at pos.
func endOfString(text []byte, pos int) int {
	for pos++; text[pos] != '"'; pos++ {
		if text[pos] == '\\' {
			pos++
		}
	}
	return pos + 1
}

// appendCBORString prints a JSON string, given with its quotes, as bytes. It unescapes only strings with escapes.
func appendCBORString(dst, quoted []byte) []byte {
	inner := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return append(appendCBORHead(dst, cborBytes, uint64(len(inner))), inner...)
	}
	var s string
	if err := json.Unmarshal(quoted, &s); err != nil {
		panic("object: not a JSON string: " + err.Error())
	}
	return append(appendCBORHead(dst, cborBytes, uint64(len(s))), s...)
}

// appendCBORNumber prints a JSON number: an integer of 64 bits with the shortest head, any other number as a float of
// 64 bits.
func appendCBORNumber(dst []byte, literal string) []byte {
	if n, err := strconv.ParseInt(literal, 10, 64); err == nil {
		if n < 0 {
			return appendCBORHead(dst, cborNegative, uint64(-1-n))
		}
		return appendCBORHead(dst, 0, uint64(n))
	}
	f, err := strconv.ParseFloat(literal, 64)
	if err != nil {
		panic("object: not a JSON number: " + err.Error())
	}
	return binary.BigEndian.AppendUint64(append(dst, cborFloat), math.Float64bits(f))
}
