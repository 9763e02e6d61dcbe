package httpapi

import (
	"net/http"
	"strconv"
	"strings"

	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/internal/wire"
)

// Preconditions by header (WRITE-5, RFC 9110, 13). The reference does not support them. The entity tag of an object is
//
//	"REVISION.VARIANT.REPRESENTATION"
//
// REVISION is its resourceVersion. VARIANT stands for everything else that decides the content of the answer
// (engine.Result.Variant). REPRESENTATION is the media type, and whether the answer may be compressed. The tag is a
// strong one: equal tags of a URL stand for equal bytes.
//
// If-None-Match of a read compares the whole tag. A write depends on the version of the object and not on the
// representation in which the client read it, so it compares only the part before the first dot, and also accepts a
// plain resourceVersion in place of a tag.

// conditional returns the request with the preconditions of its headers. The engine checks them in each attempt of the
// verb, except If-None-Match of a read, which unmodified compares with the answer.
func (rs *requestState) conditional() (*engine.Request, error) {
	rq := rs.request()
	var err error
	if rq.IfMatch, err = rs.versions("If-Match"); err != nil {
		return nil, err
	}
	if rq.IfNoneMatch, err = rs.versions("If-None-Match"); err != nil {
		return nil, err
	}
	if rs.info.verb == "get" {
		rq.IfNoneMatch = nil // the VARIANT is known only with the answer, see unmodified
	}
	return rq, nil
}

// versions returns the revisions that a header names, or nil if there is no such header. If-Match compares strongly
// (RFC 9110, 13.1.1), so weak tags in it match nothing.
func (rs *requestState) versions(header string) (*engine.Versions, error) {
	lines := rs.r.Header[header]
	if len(lines) == 0 {
		return nil, nil
	}
	v := &engine.Versions{}
	var ok bool
	v.Any, ok = readTags(lines, func(weak bool, opaque string) {
		if revision := versionOf(opaque); revision != 0 && !(weak && header == "If-Match") {
			v.Of = append(v.Of, revision)
		}
	})
	if !ok {
		return nil, apierr.NewBadRequest("the header " + header +
			` is neither "*" nor a list of entity tags or resourceVersions`)
	}
	return v, nil
}

// versionOf returns the resourceVersion with which an entity tag begins, or 0 if it does not begin with one. Other
// spellings of a number ("007") are not accepted: no tag of this server has them.
func versionOf(opaque string) int64 {
	text, _, _ := strings.Cut(opaque, ".")
	revision, err := strconv.ParseInt(text, 10, 64)
	if err != nil || revision <= 0 || strconv.FormatInt(revision, 10) != text {
		return 0
	}
	return revision
}

// readTags parses the lines of a header, which is either "*" or a list of entity tags. A number without quotes counts
// as a tag. ok is false for anything else, and for an empty list.
func readTags(lines []string, each func(weak bool, opaque string)) (star, ok bool) {
	tags := 0
	for _, rest := range lines {
		for afterTag := false; ; {
			if rest = strings.TrimLeft(rest, " \t"); rest == "" {
				break
			}
			if rest[0] == ',' {
				rest, afterTag = rest[1:], false
				continue
			}
			if afterTag || star {
				return false, false
			}
			afterTag = true
			if rest[0] == '*' {
				star, rest = true, rest[1:]
				continue
			}
			weak, opaque, after, ok := cutTag(rest)
			if !ok {
				return false, false
			}
			each(weak, opaque)
			tags++
			rest = after
		}
	}
	return star, star != (tags > 0)
}

// cutTag cuts an entity tag off the beginning of a text, which must not be empty.
func cutTag(text string) (weak bool, opaque, rest string, ok bool) {
	if text, weak = strings.CutPrefix(text, "W/"); !weak && text[0] != '"' {
		n := 0
		for n < len(text) && '0' <= text[n] && text[n] <= '9' {
			n++
		}
		return false, text[:n], text[n:], n > 0
	}
	if text == "" || text[0] != '"' {
		return false, "", "", false
	}
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return weak, text[1:i], text[i+1:], true
		case c <= ' ' || c == 0x7f:
			return false, "", "", false
		}
	}
	return false, "", "", false
}

// names says whether If-None-Match contains an entity tag, given without its quotes.
func (rs *requestState) names(tag string) bool {
	lines := rs.r.Header["If-None-Match"]
	if len(lines) == 0 {
		return false
	}
	found := false
	star, ok := readTags(lines, func(_ bool, opaque string) { found = found || opaque == tag })
	return ok && (found || star)
}

// validator returns the entity tag of an answer with its quotes, or "" if it has none: the ages in a Table depend on
// the time of the request, and an object that is not stored (a dry run) has no revision.
func (rs *requestState) validator(media wire.Media, result *engine.Result) string {
	if result.Variant == 0 || media.Form == wire.AsTable || media.Form == wire.AsPartials {
		return ""
	}
	var buffer [64]byte
	tag := append(strconv.AppendInt(append(buffer[:0], '"'), result.Object.Revision, 10), '.')
	tag = append(strconv.AppendUint(tag, result.Variant, 36), '.')
	tag = media.AppendTag(tag)
	if rs.compresses() { // whatever the size of the answer, which is not known yet
		tag = append(tag, 'z')
	}
	return string(append(tag, '"'))
}

// varies lists the request headers that decide the representation of an answer with a validator.
var varies = []string{"Accept, Accept-Encoding"}

// validated adds the validator to the headers of the answer.
func (rs *requestState) validated(tag string) {
	if tag != "" {
		header := rs.w.Header()
		header["Etag"], header["Vary"] = []string{tag}, varies
	}
}

// unmodified answers 304 if the tag of the result is in If-None-Match. It returns false if the answer is still to be
// sent.
func (rs *requestState) unmodified(media wire.Media, result *engine.Result) bool {
	if len(rs.r.Header["If-None-Match"]) == 0 {
		return false
	}
	tag := rs.validator(media, result)
	if tag == "" || !rs.names(tag[1:len(tag)-1]) {
		return false
	}
	rs.validated(tag)
	rs.WriteHeader(http.StatusNotModified)
	return true
}
