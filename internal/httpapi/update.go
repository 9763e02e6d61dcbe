package httpapi

// update is a PUT to an object or a subresource (WRITE-1). Where the object is not there and its kind allows it, the engine
// creates it, for which it asks for permission (URI-4).
func (h *Handler) update(x *exchange) error {
	media, err := x.negotiate()
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
	if err := x.writeOptions("UpdateOptions", rq); err != nil {
		return err
	}
	encoding, err := x.bodyEncoding(x.offer())
	if err != nil {
		return err
	}
	parsed, err := x.parseObject(encoding, body)
	if err != nil {
		return err
	}
	result, err := h.Engine.Update(x.ctx, rq, parsed)
	x.warn(result.Told())
	if err != nil {
		return err
	}
	return x.reply(media, rq, result)
}
