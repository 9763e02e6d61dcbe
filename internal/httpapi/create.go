package httpapi

// create is a POST to a collection or to a subresource (URI-4).
//
// All verbs with a body have the same shape: negotiate the answer, read the options and the body, call the engine,
// write the result. The order of the checks is that of the reference, because it decides which of several errors the
// client gets.
func (h *Handler) create(rs *requestState) error {
	media, err := rs.negotiate()
	if err != nil {
		return err
	}
	encoding, err := rs.bodyEncoding(rs.offer())
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
	if err := rs.writeOptions("CreateOptions", rq); err != nil {
		return err
	}
	parsed, err := rs.parseObject(encoding, body)
	if err != nil {
		return err
	}
	result, err := h.Engine.Create(rs.ctx, rq, parsed)
	rs.warn(result.GetWarnings())
	if err != nil {
		return err
	}
	return rs.reply(media, rq, result)
}
