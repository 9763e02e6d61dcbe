package httpapi

import (
	"net/http"

	"plinth/internal/apierr"
)

// get is a GET of one object or of a subresource (LIST-2). If-None-Match is compared last: the entity
// tag is known only with the answer, and 304 must not hide a 404.
func (h *Handler) get(rs *requestState) error {
	if form := first(rs.query(), "ownership"); form != "" && rs.subresource == nil {
		return h.ownership(rs, form)
	}
	if rs.query().Has("history") && rs.subresource == nil && !rs.resource.Virtual() {
		return h.recorded(rs)
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
	version, match, err := rs.asOf(first(rs.query(), "resourceVersion"), first(rs.query(), "resourceVersionMatch"))
	if err != nil {
		return err
	}
	get := h.Engine.Get
	if match == "Exact" && !rs.resource.Virtual() {
		get = h.Engine.GetAsOf
	}
	result, err := get(rs.ctx, rq, version)
	if err != nil {
		return err
	}
	if rs.unmodified(media, result) {
		return nil
	}
	return rs.reply(media, rq, result)
}

// recorded is a GET with ?history: the record of the object, instead of the object (BEY-4).
func (h *Handler) recorded(rs *requestState) error {
	limit, err := integer(rs.query(), "limit")
	if err != nil {
		return err
	}
	if limit == nil {
		limit = new(int64)
	}
	past, err := h.Engine.Record(rs.ctx, rs.request(), *limit, first(rs.query(), "continue"))
	if err != nil {
		return err
	}
	return rs.sendDocument(http.StatusOK, past)
}

// ownership is a GET with ?ownership=: who owns each field, instead of the object (BEY-1, docs/decisions/0003).
func (h *Handler) ownership(rs *requestState, form string) error {
	if err := ownershipForm(form, ownershipForms); err != nil {
		return err
	}
	version, match, err := rs.asOf(first(rs.query(), "resourceVersion"), first(rs.query(), "resourceVersionMatch"))
	if err != nil {
		return err
	}
	if match != "Exact" {
		version = ""
	}
	owned, err := h.Engine.Ownership(rs.ctx, rs.request(), version)
	if err != nil {
		return err
	}
	return rs.sendOwnership(http.StatusOK, form, owned)
}
