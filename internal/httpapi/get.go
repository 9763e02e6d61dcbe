package httpapi

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"plinth/internal/apierr"
	"plinth/internal/engine"
)

// get is a GET of one object or of a subresource (LIST-2). If-None-Match is compared last: the entity
// tag is known only with the answer, and 304 must not hide a 404.
func (h *Handler) get(rs *requestState) error {
	if form := first(rs.query(), "ownership"); form != "" && rs.subresource == nil {
		return h.ownership(rs, form)
	}
	if rs.subresource == nil && !rs.resource.Virtual() {
		switch {
		case rs.query().Has("history"):
			return h.recorded(rs)
		case rs.query().Has("undo"):
			return h.undo(rs)
		}
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

// recorded is a GET with ?history: the record of the object, instead of the object, or the object with what has set
// each line (BEY-4).
func (h *Handler) recorded(rs *requestState) error {
	switch form := first(rs.query(), "history"); form {
	case "", "document":
	case "lines", "yaml":
		return h.blame(rs, form)
	default:
		return apierr.NewBadRequest(fmt.Sprintf("history: Invalid value: %q: must be 'document', 'lines' or 'yaml'",
			form))
	}
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

// blame answers with an object and what has set each line.
func (h *Handler) blame(rs *requestState, form string) error {
	version, err := rs.exactly()
	if err != nil {
		return err
	}
	blame, err := h.Engine.Blame(rs.ctx, rs.request(), version)
	if err != nil {
		return err
	}
	if form == "yaml" {
		return rs.sendYAML(blame.YAML())
	}
	return rs.sendDocument(http.StatusOK, blame.LinesDocument())
}

// undo is a GET with ?undo: how a change of the object is taken back. The parameter is the resourceVersion that the
// change has made, and to one, or a time, as of which the object shall be again.
func (h *Handler) undo(rs *requestState) error {
	values := rs.query()
	o := engine.UndoOptions{Change: first(values, "undo"), To: first(values, "to"), Force: isTrue(values, "force")}
	if o.Change != "" && o.To != "" {
		return apierr.NewBadRequest("undo: Forbidden: it names one change, and to takes back all since")
	}
	if moment, err := time.Parse(time.RFC3339Nano, o.To); err == nil {
		revision, err := h.Engine.RevisionAt(rs.ctx, rs.resource, moment)
		if err != nil {
			return err
		}
		o.To = strconv.FormatInt(revision, 10)
	}
	undo, err := h.Engine.Undo(rs.ctx, rs.request(), o)
	if err != nil {
		return err
	}
	return rs.sendDocument(http.StatusOK, undo)
}

// exactly is the resourceVersion as of which a document is asked for; "": as it is.
func (rs *requestState) exactly() (string, error) {
	version, match, err := rs.asOf(first(rs.query(), "resourceVersion"), first(rs.query(), "resourceVersionMatch"))
	if match != "Exact" {
		version = ""
	}
	return version, err
}

// ownership is a GET with ?ownership=: who owns each field, instead of the object (BEY-1, docs/decisions/0003).
func (h *Handler) ownership(rs *requestState, form string) error {
	if err := ownershipForm(form, ownershipForms); err != nil {
		return err
	}
	version, err := rs.exactly()
	if err != nil {
		return err
	}
	owned, err := h.Engine.Ownership(rs.ctx, rs.request(), version)
	if err != nil {
		return err
	}
	return rs.sendOwnership(http.StatusOK, form, owned)
}
