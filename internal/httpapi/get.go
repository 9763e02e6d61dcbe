package httpapi

// get is a GET of one object (LIST-2).
func (h *Handler) get(x *exchange) error {
	media, err := x.negotiate()
	if err != nil {
		return err
	}
	rq := x.request()
	result, err := h.Engine.Get(x.ctx, rq, first(x.query(), "resourceVersion"))
	if err != nil {
		return err
	}
	return x.reply(media, rq, result)
}
