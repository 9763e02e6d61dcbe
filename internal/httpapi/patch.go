package httpapi

import (
	"net/http"

	"plinth/internal/apierr"
	"plinth/internal/engine"
)

// The patch types by their Content-Type. Those of patchesToCome are of the API and not of this server yet.
var (
	patchTypes = []struct {
		mediaType string
		patch     engine.PatchType
	}{
		{"application/json-patch+json", engine.JSONPatch},
		{"application/merge-patch+json", engine.MergePatch},
	}
	patchesToCome = []string{
		"application/strategic-merge-patch+json", "application/apply-patch+yaml", "application/apply-patch+cbor",
	}
)

// patch is a PATCH of an object or a subresource (WRITE-2).
func (h *Handler) patch(x *exchange) error {
	typ, err := x.patchType()
	if err != nil {
		return err
	}
	media, err := x.negotiate()
	if err != nil {
		return err
	}
	body, err := x.readBody()
	if err != nil {
		return err
	}
	rq := x.request()
	if err := x.writeOptions("PatchOptions", rq); err != nil {
		return err
	}
	rq.Authorize = func(verb string) error { return h.may(x, verb) }
	result, err := h.Engine.Patch(x.ctx, rq, engine.Patch{Type: typ, Body: body})
	if err != nil {
		return err
	}
	return x.reply(media, rq, result)
}

// patchType is the language of the patch. A type that no patch could have is refused in other words than one that is not
// to be had here.
func (x *exchange) patchType() (engine.PatchType, error) {
	name := mediaName(x.r.Header.Get("Content-Type"))
	accepted := make([]string, 0, len(patchTypes))
	for _, t := range patchTypes {
		if t.mediaType == name {
			return t.patch, nil
		}
		accepted = append(accepted, t.mediaType)
	}
	for _, toCome := range patchesToCome {
		if toCome == name {
			return 0, apierr.NewUnsupportedMediaType(accepted)
		}
	}
	return 0, &apierr.Error{
		Code: http.StatusUnsupportedMediaType, Reason: apierr.UnsupportedMediaType, Details: &apierr.Details{},
		Message: "415: Unsupported Media Type",
	}
}
