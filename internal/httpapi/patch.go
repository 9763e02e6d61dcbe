package httpapi

import (
	"bytes"
	"net/http"

	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/internal/wire"
	"plinth/object"
)

// patch is a PATCH of an object or a subresource (WRITE-2).
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
	var result *engine.Result
	if format.Type == engine.ApplyPatch {
		var intent object.Parsed
		if intent, err = parseIntent(format.Encoding, body); err != nil {
			return err
		}
		rs.recordIntent(intent)
		result, err = h.Engine.Apply(rs.ctx, rq, intent)
	} else {
		rs.recordPatch(body)
		result, err = h.Engine.Patch(rs.ctx, rq, engine.Patch{Type: format.Type, Body: body})
	}
	rs.warn(result.Told())
	if err != nil {
		return err
	}
	return rs.reply(media, rq, result)
}

// parseIntent reads the body of an apply. It is YAML, which most clients send as JSON; that is read much faster.
func parseIntent(encoding wire.Encoding, body []byte) (object.Parsed, error) {
	if encoding == wire.CBOR {
		parsed, err := object.ParseCBOR(body)
		if err != nil {
			return object.Parsed{}, apierr.NewBadRequest("error decoding patch: " + err.Error())
		}
		return parsed, nil
	}
	if len(body) > 0 && body[0] == '{' {
		// The parser takes its input over, and YAML may have to have another look.
		// which are told in YAML's words
		if parsed, err := object.ParseJSON(bytes.Clone(body)); err == nil && len(parsed.Duplicates) == 0 {
			return parsed, nil
		}
	}
	parsed, err := parseYAML(body)
	if apierr.Is(err, apierr.RequestEntityTooLarge) {
		return parsed, err
	}
	if err != nil {
		// What begins as JSON is not rewritten as JSON first, and fails a step later.
		failed := "error encoding patch: "
		if trimmed := bytes.TrimSpace(body); len(trimmed) > 0 && trimmed[0] == '{' {
			failed = "error decoding patch: error converting YAML to JSON: "
		}
		return object.Parsed{}, apierr.NewBadRequest(failed + yamlWords(err))
	}
	return parsed, nil
}

// patchFormat is the language of the patch. A type that no patch could have is refused in other words than one that
// is not to be had here.
func (rs *requestState) patchFormat(name string) (wire.PatchFormat, error) {
	offer := rs.offer()
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
