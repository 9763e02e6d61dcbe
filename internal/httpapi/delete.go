package httpapi

import "net/http"

// delete is a DELETE of one object (DEL-1). The code of the answer is 200, whether the object was removed or only
// marked as deleted, with an exception from the reference: 202 for a marked object if the client has set
// orphanDependents to false.
func (h *Handler) delete(rs *requestState) error {
	media, err := rs.negotiate()
	if err != nil {
		return err
	}
	options, err := rs.deleteOptions()
	if err != nil {
		return err
	}
	rq, err := rs.conditional()
	if err != nil {
		return err
	}
	if options.IgnoreReadError {
		rs.record.Annotate("apiserver.k8s.io/unsafe-delete-ignore-read-error", "")
	}
	result, err := h.Engine.Delete(rs.ctx, rq, options)
	rs.warn(result.GetWarnings())
	if err != nil {
		return err
	}
	if !result.Removed && options.OrphanDependents != nil && !*options.OrphanDependents {
		return rs.replyWith(http.StatusAccepted, media, rq, result) // DEL-3
	}
	return rs.reply(media, rq, result)
}
