package schema

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"plinth/object"
)

// microLayout is how a MicroTime is written.
const microLayout = "2006-01-02T15:04:05.000000Z07:00"

// special decodes the types that bring their own decoding along in Go. What they refuse ends the walk, as it does there.
func (w *walker) special(v object.Value, t *Type) object.Value {
	switch t.Kind {
	case Quantity:
		return w.quantity(v, t)
	case IntOrString:
		return w.intOrString(v, t)
	case Time:
		return w.time(v, t, time.RFC3339)
	case MicroTime:
		return w.time(v, t, microLayout)
	default:
		return w.duration(v)
	}
}

// quantity accepts text and bare numbers.
func (w *walker) quantity(v object.Value, t *Type) object.Value {
	if v.IsNull() {
		return t.zero
	}
	text := v.Str()
	switch v.Kind() {
	case object.String:
		if isCanonicalQuantity(text) {
			return v
		}
	default:
		text = string(object.AppendJSON(nil, v))
	}
	q, err := resource.ParseQuantity(strings.TrimSpace(text))
	if err != nil {
		w.end(err)
		return object.Nil
	}
	canonical := q.String()
	if v.Kind() == object.String && canonical == v.Str() {
		return v
	}
	return object.StringOf(canonical)
}

// isCanonicalQuantity recognises the usual quantities that are in canonical form already: a few digits whose suffix can
// not be a bigger one. Everything else is left to the library.
func isCanonicalQuantity(text string) bool {
	n, i := 0, 0
	for ; i < len(text) && i < 9 && text[i] >= '0' && text[i] <= '9'; i++ {
		n = n*10 + int(text[i]-'0')
	}
	if i == 0 || text[0] == '0' {
		return text == "0"
	}
	switch text[i:] {
	case "", "m", "k", "M", "G":
		return n%1000 != 0
	case "Ki", "Mi", "Gi":
		return n%1024 != 0
	}
	return false
}

func (w *walker) intOrString(v object.Value, t *Type) object.Value {
	switch {
	case v.Kind() == object.String, v.Kind() == object.Int && fits(v.Int(), 32):
		return v
	case v.IsNull():
		return t.zero
	}
	w.fatal = w.wrong(describe(v, true), "int32")
	return object.Nil
}

// text is the string that a special type is read from.
func (w *walker) text(v object.Value) (string, bool) {
	if v.Kind() != object.String && !v.IsNull() {
		w.fatal = w.wrong(describe(v, false), "string")
		return "", false
	}
	return v.Str(), true
}

func (w *walker) time(v object.Value, t *Type, layout string) object.Value {
	if v.IsNull() {
		return v
	}
	text, ok := w.text(v)
	if !ok {
		return object.Nil
	}
	at, err := time.Parse(layout, text)
	if err != nil {
		w.end(err)
		return object.Nil
	}
	if at.IsZero() {
		return object.Nil
	}
	var room [len(microLayout)]byte
	printed := at.UTC().AppendFormat(room[:0], layout)
	if string(printed) == text {
		return v
	}
	return object.StringOf(string(printed))
}

func (w *walker) duration(v object.Value) object.Value {
	text, ok := w.text(v)
	if !ok {
		return object.Nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		w.end(err)
		return object.Nil
	}
	if printed := d.String(); v.IsNull() || printed != text {
		return object.StringOf(printed)
	}
	return v
}
