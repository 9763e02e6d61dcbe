package httpapi

import (
	"strconv"

	"plinth/internal/apierr"
	"plinth/internal/wire"
	"plinth/object"
)

// get is a GET of one object (LIST-2).
func (h *Handler) get(x *exchange) error {
	if form := first(x.query(), "ownership"); form != "" && x.subresource == nil {
		return h.ownership(x, form)
	}
	media, err := x.negotiate()
	if err != nil {
		return err
	}
	if isTrue(x.query(), "export") {
		return apierr.NewBadRequest("the export parameter, deprecated since v1.14, is no longer supported")
	}
	rq, err := x.conditional()
	if err != nil {
		return err
	}
	result, err := h.Engine.Get(x.ctx, rq, first(x.query(), "resourceVersion"))
	if err != nil {
		return err
	}
	if x.unmodified(media, result) {
		return nil
	}
	return x.reply(media, rq, result)
}

// ownership is a GET with ?ownership=: who owns each field, instead of the object (BEY-1, docs/decisions/0003). "document" is
// a JSON document, "yaml" the object with its owners behind each line.
func (h *Handler) ownership(x *exchange, form string) error {
	if form != "document" && form != "yaml" {
		return apierr.NewBadRequest("ownership: Invalid value: " + strconv.Quote(form) + ": must be 'document' or 'yaml'")
	}
	document, text, err := h.Engine.Ownership(x.ctx, x.request())
	if err != nil {
		return err
	}
	if form == "yaml" {
		x.w.Header()["Content-Type"] = contentTypes[wire.YAML]
		_, err := x.Write([]byte(text))
		return err
	}
	return x.send(200, wire.Media{Encoding: wire.JSON, Pretty: x.pretty()}, append(object.AppendObject(nil, document), '\n'))
}
