package httpapi

// update is a PUT to an object or a subresource (WRITE-1). If the object does not exist and its kind allows it, the
// engine creates it, after it has checked the permission to create (URI-4). Unlike create, update reads the body before
// it checks the format, as in the reference: for a body that is too large and in an unknown format, PUT answers 413 and
// POST 415.
func (h *Handler) update(rs *requestState) error {
	media, err := rs.negotiate()
	if err != nil {
		return err
	}
	body, err := rs.readBody()
	if err != nil {
		return err
	}
	rq, err := rs.conditional()
	if err != nil {
		return err
	}
	if err := rs.writeOptions("UpdateOptions", rq); err != nil {
		return err
	}
	form, err := rs.ownershipOfWrite()
	if err != nil {
		return err
	}
	encoding, err := rs.bodyEncoding(rs.offer())
	if err != nil {
		return err
	}
	parsed, err := rs.parseObject(encoding, body)
	if err != nil {
		return err
	}
	result, err := h.Engine.Update(rs.ctx, rq, parsed)
	rs.warn(result.GetWarnings())
	if err != nil {
		return err
	}
	return h.replyOwnership(rs, form, media, rq, result)
}
