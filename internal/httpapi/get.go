package httpapi

import (
	"strconv"

	"plinth/internal/apierr"
	"plinth/internal/wire"
	"plinth/object"
)

// get is a GET of one object or of a subresource (LIST-2). If-None-Match is compared last: the entity
// tag is known only with the answer, and 304 must not hide a 404.
func (h *Handler) get(rs *requestState) error {
	if form := first(rs.query(), "ownership"); form != "" && rs.subresource == nil {
		return h.ownership(rs, form)
	}
	media, err := rs.negotiate()
	if err != nil {
		return err
	}
	if isTrue(rs.query(), "export") {
		return apierr.NewBadRequest("the export parameter, deprecated since v1.14, is no longer supported")
	}
	rq, err := rs.conditional()
	if err != nil {
		return err
	}
	result, err := h.Engine.Get(rs.ctx, rq, first(rs.query(), "resourceVersion"))
	if err != nil {
		return err
	}
	if rs.unmodified(media, result) {
		return nil
	}
	return rs.reply(media, rq, result)
}

// ownership is a GET with ?ownership=: who owns each field, instead of the object (BEY-1, docs/decisions/0003).
// "document" and "lines" are JSON documents, by fields and by lines, "yaml" the object with the owners of each line in
// a comment.
func (h *Handler) ownership(rs *requestState, form string) error {
	if form != "document" && form != "lines" && form != "yaml" {
		return apierr.NewBadRequest("ownership: Invalid value: " + strconv.Quote(form) +
			": must be 'document', 'lines' or 'yaml'")
	}
	owned, err := h.Engine.Ownership(rs.ctx, rs.request())
	if err != nil {
		return err
	}
	document := owned.Document
	switch form {
	case "yaml":
		text := owned.YAML()
		rs.w.Header()["Content-Type"] = contentTypes[wire.YAML]
		return rs.wholeOf([]byte(text), len(text))
	case "lines":
		document = owned.LinesDocument
	}
	return rs.send(200, wire.Media{Encoding: wire.JSON, Pretty: rs.pretty()},
		append(object.AppendObject(nil, document()), '\n'))
}
