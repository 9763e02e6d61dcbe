package httpapi

// deleteCollection is a DELETE of a collection (DEL-4). It answers what it has deleted as a list.
func (h *Handler) deleteCollection(x *exchange) error {
	media, err := x.negotiate()
	if err != nil {
		return err
	}
	params, err := x.listOptions()
	if err != nil {
		return err
	}
	options, err := x.deleteOptions()
	if err != nil {
		return err
	}
	if err := forCollection(options); err != nil {
		return err
	}
	rq, err := x.conditional()
	if err != nil {
		return err
	}
	deleted, err := h.Engine.DeleteCollection(x.ctx, rq, params.ListOptions, options)
	if deleted != nil {
		x.warn(deleted.Warnings)
	}
	if err != nil {
		return err
	}
	return x.writeList(media, rq, deleted)
}
