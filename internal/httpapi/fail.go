package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"

	"plinth/internal/access"
	"plinth/internal/apierr"
	"plinth/internal/samplelog"
	"plinth/internal/wire"
	"plinth/object"
)

// errNotAPath is the error for a URL at which nothing is served. The reference answers it in plain text, but with a
// Status below the groups that it serves (noSuchPath).
var errNotAPath = errors.New("404 page not found")

// errBodyLate is the error for a body that did not arrive before the deadline of the request.
var errBodyLate = apierr.NewTimeout("the request body did not arrive within the allotted timeout")

// plainError is an error that is sent in plain text.
type plainError struct {
	code int
	text string
}

func (e *plainError) Error() string { return e.text }

// fail answers with an error, in the negotiated media type. Once the header of the answer has been sent, it cannot
// become an error any more: fail closes the connection, so that the client does not take a part for the whole.
//
//	error                          answer
//	*apierr.Error                  its Status; Retry-After if it says after how many seconds to try again
//	*plainError, errNotAPath       plain text, as in the reference
//	*tooMany                       plain text with Retry-After, as in the reference
//	the end of the context         504
//	anything else                  500 InternalError; logged as an error of the server
//
// After the deadline of the request every error is 504, as in the reference, whose filter for time-outs is around
// authentication and all that follows: also a refusal of the user. Whatever was waited for, the text is the same,
// but for a body that did not arrive; and whatever the client accepts, the form is the same (failLate).
//
// The text of an error may have been chosen by a client (a name, a part of its body), so what is logged is cut
// (samplelog.Clip) and sampled (report), and what is sent as plain text is escaped.
//
// It is the only place that writes errors, so every server error is logged, and no error is answered twice. Only the
// reports of failed health checks are written elsewhere (health). A panic here ends in requestState.end.
func (h *Handler) fail(rs *requestState, err error) {
	if rs.code != 0 {
		h.report(&h.logs.refusals, rs, slog.LevelDebug, "an answer broke off", "error", samplelog.Clip(err.Error()))
		panic(http.ErrAbortHandler)
	}
	rs.leaveBody()
	if errors.Is(err, errBodyLate) || rs.limit != nil && rs.limit.Err() == context.DeadlineExceeded {
		h.failLate(rs, err)
		return
	}
	if ending, ok := err.(errEnding); ok {
		rs.refuseEnding(ending)
		return
	}
	if errors.Is(err, errNotAPath) {
		http.Error(rs, err.Error(), http.StatusNotFound)
		return
	}
	if plain := (*plainError)(nil); errors.As(err, &plain) {
		h.report(&h.logs.failures, rs, slog.LevelError, "a request has failed", "code", plain.code,
			"error", samplelog.Clip(plain.text))
		http.Error(rs, access.EscapeHTML(plain.text), plain.code)
		return
	}
	if many := (*tooMany)(nil); errors.As(err, &many) {
		many.send(rs)
		return
	}
	status := wireError(err)
	if status.Code >= http.StatusInternalServerError {
		level, sort := slog.LevelError, &h.logs.failures
		if status.Code != http.StatusInternalServerError { // not implemented or timed out: the server is not at fault
			level, sort = slog.LevelInfo, &h.logs.refusals
		}
		h.report(sort, rs, level, "a request has failed", "code", status.Code, "error", samplelog.Clip(err.Error()))
	}
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		rs.w.Header().Set("Retry-After", strconv.Itoa(status.Details.RetryAfterSeconds))
	}
	media, ok := h.offer.NegotiateError(rs.r.Header.Get("Accept"))
	media.Pretty = media.Pretty || rs.pretty()
	if !ok { // the server has no type that the client accepts: it sends the error as indented JSON
		err = rs.send(status.Code, wire.Media{Pretty: true}, object.AppendObject(nil, status.Status()))
	} else {
		err = rs.sendStatus(status.Code, media, status.Status())
	}
	if err != nil {
		h.report(&h.logs.refusals, rs, slog.LevelDebug, "an error could not be sent", "error", samplelog.Clip(err.Error()))
	}
}

// failLate answers a request whose time is over. As in the reference, whose filter for time-outs knows neither media
// types nor what was decided within it, the answer is a Status in plain text, without the type of the object and the
// headers of priority and fairness. Clients that go by the media type (client-go) therefore do not read the Status, and
// have a text of their own for 504: "the server was unable to return a response in the time allotted". The audit log
// has what a handler within that filter says when there is no time.
func (h *Handler) failLate(rs *requestState, err error) {
	status, within := apierr.NewTimeout("request did not complete within the allotted timeout"),
		wireError(context.DeadlineExceeded)
	if errors.Is(err, errBodyLate) {
		status, within = errBodyLate, errBodyLate
	}
	rs.recordValue(within.Status())
	h.report(&h.logs.refusals, rs, slog.LevelInfo, "a request has failed", "code", status.Code,
		"error", samplelog.Clip(status.Message))
	text, err := json.Marshal(struct {
		Metadata struct{} `json:"metadata"`
		Status   string   `json:"status"`
		Message  string   `json:"message"`
		Reason   string   `json:"reason"`
		Details  struct{} `json:"details"`
		Code     int      `json:"code"`
	}{Status: "Failure", Message: status.Message, Reason: string(status.Reason), Code: status.Code})
	if err == nil {
		header := rs.w.Header()
		delete(header, flowSchemaHeader)
		delete(header, levelHeader)
		header["Content-Type"] = plainText
		rs.WriteHeader(status.Code)
		_, err = rs.Write(append(text, '\n'))
	}
	if err != nil {
		h.report(&h.logs.refusals, rs, slog.LevelDebug, "an error could not be sent", "error", samplelog.Clip(err.Error()))
	}
}

var plainText = []string{"text/plain; charset=utf-8"}

// wireError converts an error to a Status.
func wireError(err error) *apierr.Error {
	var known *apierr.Error
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return apierr.NewTimeout("request did not complete within requested timeout - " + err.Error())
	}
	return apierr.NewInternal(err)
}
