package httpapi

import (
	"bytes"
	"net/http"

	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/internal/wire"
	"plinth/object"
)

// patch is a PATCH of an object or a subresource (WRITE-2). The Content-Type names the patch format; for an apply the
// engine has a separate verb.
func (h *Handler) patch(rs *requestState) error {
	format, err := rs.patchFormat(mediaName(rs.r.Header.Get("Content-Type")))
	if err != nil {
		return err
	}
	media, err := rs.negotiate()
	if err != nil {
		return err
	}
	body, err := rs.readBody()
	if err != nil {
		return err
	}
	rq, err := rs.conditional()
	if err != nil {
		return err
	}
	if err := rs.patchOptions(rq, format.Type == engine.ApplyPatch); err != nil {
		return err
	}
	var forms []string
	if format.Type == engine.ApplyPatch {
		forms = []string{intentForm}
	}
	form, err := rs.ownershipOfWrite(forms...)
	if err != nil {
		return err
	}
	var result *engine.Result
	if format.Type == engine.ApplyPatch {
		var intent object.Parsed
		if intent, err = parseIntent(format.Encoding, body); err != nil {
			return err
		}
		rs.recordIntent(intent)
		if form == intentForm {
			return h.intent(rs, rq, intent)
		}
		result, err = h.Engine.Apply(rs.ctx, rq, intent)
	} else {
		rs.recordPatch(body)
		result, err = h.Engine.Patch(rs.ctx, rq, engine.Patch{Type: format.Type, Body: body})
	}
	rs.warn(result.GetWarnings())
	if err != nil {
		return err
	}
	return h.replyOwnership(rs, form, media, rq, result)
}

// parseIntent parses the body of an apply. The format is YAML, of which JSON is a subset; most clients send JSON, which
// is parsed much faster. A body that is not valid JSON, or has duplicate keys, is parsed as YAML, so that the messages
// are those of the YAML parser.
func parseIntent(encoding wire.Encoding, body []byte) (object.Parsed, error) {
	if encoding == wire.CBOR {
		parsed, err := object.ParseCBOR(body)
		if err != nil {
			return object.Parsed{}, apierr.NewBadRequest("error decoding patch: " + err.Error())
		}
		return parsed, nil
	}
	if len(body) > 0 && body[0] == '{' {
		// A copy: the parser keeps its input, and the YAML parser may need the bytes, too.
		if parsed, err := object.ParseJSON(bytes.Clone(body)); err == nil && len(parsed.Duplicates) == 0 {
			return parsed, nil
		}
	}
	parsed, err := parseYAML(body)
	if apierr.Is(err, apierr.RequestEntityTooLarge) {
		return parsed, err
	}
	if err != nil {
		// The reference converts YAML to JSON first, unless it looks like JSON; that fails in a later step, with another
		// text.
		failed := "error encoding patch: "
		if trimmed := bytes.TrimSpace(body); len(trimmed) > 0 && trimmed[0] == '{' {
			failed = "error decoding patch: error converting YAML to JSON: "
		}
		return object.Parsed{}, apierr.NewBadRequest(failed + yamlWords(err))
	}
	return parsed, nil
}

// patchFormat returns the format of the patch. The reference has one error for media types that no patch has, and
// another one for formats that this type does not support. A custom type supports the same formats on all of its
// subresources, also on its scale, whose body is of a built-in kind.
func (rs *requestState) patchFormat(name string) (wire.PatchFormat, error) {
	offer := rs.offer()
	offer.NoMessages = rs.resource.Stored != nil && rs.resource.Stored.Custom
	format, known, offered := offer.ReadsPatch(name)
	switch {
	case offered:
		return format, nil
	case known, offer.NoMessages:
		return format, apierr.NewUnsupportedMediaType(offer.PatchTypes())
	}
	return format, &apierr.Error{
		Code: http.StatusUnsupportedMediaType, Reason: apierr.UnsupportedMediaType, Details: &apierr.Details{},
		Message: "415: Unsupported Media Type",
	}
}
