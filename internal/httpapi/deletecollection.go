package httpapi

// deleteCollection is a DELETE of a collection (DEL-4). It answers with a list of the deleted objects. The query has
// the selectors, as for a list; the body has the options of each delete. Warnings are sent with an error, too, because
// some objects may have been deleted before it.
func (h *Handler) deleteCollection(rs *requestState) error {
	media, err := rs.negotiate()
	if err != nil {
		return err
	}
	params, err := rs.listOptions()
	if err != nil {
		return err
	}
	options, err := rs.deleteOptions()
	if err != nil {
		return err
	}
	if err := forCollection(options); err != nil {
		return err
	}
	rq, err := rs.conditional()
	if err != nil {
		return err
	}
	deleted, err := h.Engine.DeleteCollection(rs.ctx, rq, params.ListOptions, options)
	if deleted != nil {
		rs.warn(deleted.Warnings)
	}
	if err != nil {
		return err
	}
	return rs.writeList(media, rq, deleted)
}
