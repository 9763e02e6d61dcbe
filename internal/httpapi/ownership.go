package httpapi

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/internal/wire"
	"plinth/object"
)

// The parameter ownership asks for who owns each field in place of an object (BEY-1, BEY-16, docs/decisions/0003):
//
//	GET                            of the object
//	PUT, PATCH                     of the object that the write has made, or would make (dryRun)
//	an apply, dryRun, "intent"     the intent of an edit: the body is the whole object as somebody has edited it
//
// "document" and "lines" are JSON documents, by fields and by lines, "yaml" the object with the owners of each line in
// a comment.

// intentForm is the value of the parameter by which an apply asks for an intent.
const intentForm = "intent"

// ownershipForms are the values of the parameter for all requests.
var ownershipForms = []string{"document", "lines", "yaml"}

// ownershipForm returns an error if a value of the parameter is none of those that are allowed.
func ownershipForm(form string, allowed []string) error {
	if slices.Contains(allowed, form) {
		return nil
	}
	last := len(allowed) - 1
	return apierr.NewBadRequest(fmt.Sprintf("ownership: Invalid value: %q: must be '%s' or '%s'", form,
		strings.Join(allowed[:last], "', '"), allowed[last]))
}

// ownershipOfWrite reads the parameter of a write: "" if it has none. The answers to writes at subresources are objects
// always.
func (rs *requestState) ownershipOfWrite(allowed ...string) (string, error) {
	form := first(rs.query(), "ownership")
	if form == "" || rs.subresource != nil || rs.resource.Virtual() {
		return "", nil
	}
	return form, ownershipForm(form, append(slices.Clip(ownershipForms), allowed...))
}

// replyOwnership answers a write with who owns each field, if the request asks for it, and with the object otherwise.
func (h *Handler) replyOwnership(rs *requestState, form string, media wire.Media, rq *engine.Request,
	result *engine.Result) error {
	if form == "" || result.Object == nil {
		return rs.reply(media, rq, result)
	}
	owned, err := h.Engine.OwnershipOf(rs.ctx, rq, result)
	if err != nil {
		return err
	}
	code := http.StatusOK
	if result.Created {
		code = http.StatusCreated
	}
	return rs.sendOwnership(code, form, owned)
}

// intent answers an apply with the intent of its body, which is an object as somebody has edited it.
func (h *Handler) intent(rs *requestState, rq *engine.Request, edited object.Parsed) error {
	if !rq.DryRun {
		return apierr.NewBadRequest("ownership: Invalid value: \"intent\": needs dryRun=All, as nothing is written")
	}
	intent, err := h.Engine.Intent(rs.ctx, rq, edited)
	if err != nil {
		return err
	}
	return rs.sendDocument(http.StatusOK, intent)
}

// sendOwnership sends who owns each field, in one of the forms.
func (rs *requestState) sendOwnership(code int, form string, owned *engine.Ownership) error {
	switch form {
	case "yaml":
		return rs.sendYAML(owned.YAML())
	case "lines":
		return rs.sendDocument(code, owned.LinesDocument())
	}
	return rs.sendDocument(code, owned.Document())
}

// sendYAML sends a text of ours.
func (rs *requestState) sendYAML(text string) error {
	rs.w.Header()["Content-Type"] = contentTypes[wire.YAML]
	return rs.wholeOf([]byte(text), len(text))
}

// sendDocument sends a document of ours, as JSON.
func (rs *requestState) sendDocument(code int, document object.Value) error {
	return rs.send(code, wire.Media{Encoding: wire.JSON, Pretty: rs.pretty()},
		append(object.AppendObject(nil, document), '\n'))
}
