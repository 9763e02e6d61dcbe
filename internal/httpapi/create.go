package httpapi

// create is a POST to a collection or to a subresource (URI-4).
func (h *Handler) create(x *exchange) error {
	media, err := x.negotiate()
	if err != nil {
		return err
	}
	encoding, err := x.bodyEncoding(x.offer())
	if err != nil {
		return err
	}
	body, err := x.readBody()
	if err != nil {
		return err
	}
	rq, err := x.conditional()
	if err != nil {
		return err
	}
	if err := x.writeOptions("CreateOptions", rq); err != nil {
		return err
	}
	parsed, err := x.parseObject(encoding, body)
	if err != nil {
		return err
	}
	result, err := h.Engine.Create(x.ctx, rq, parsed)
	x.warn(result.Told())
	if err != nil {
		return err
	}
	return x.reply(media, rq, result)
}
