package httpapi

import "net/http"

// delete is a DELETE of one object (DEL-1).
func (h *Handler) delete(x *exchange) error {
	media, err := x.negotiate()
	if err != nil {
		return err
	}
	options, err := x.deleteOptions()
	if err != nil {
		return err
	}
	rq, err := x.conditional()
	if err != nil {
		return err
	}
	if options.IgnoreReadError {
		x.record.Annotate("apiserver.k8s.io/unsafe-delete-ignore-read-error", "")
	}
	result, err := h.Engine.Delete(x.ctx, rq, options)
	x.warn(result.Told())
	if err != nil {
		return err
	}
	if !result.Removed && options.OrphanDependents != nil && !*options.OrphanDependents {
		return x.replyWith(http.StatusAccepted, media, rq, result) // DEL-3
	}
	return x.reply(media, rq, result)
}
