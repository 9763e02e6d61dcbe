package httpapi

import (
	"net/http"
	"time"

	"github.com/gorilla/websocket"

	"plinth/internal/apierr"
	"plinth/internal/wire"
)

// A watch may use a WebSocket (RFC 6455) instead of a body, which browsers and the clients of some languages need: each
// event is a message, a text message for JSON and otherwise a binary one.

// closeTimeout is how long the close message of a watch may take to be sent.
const closeTimeout = time.Second

// overSocket says whether the client requests a WebSocket, which HTTP/2 does not support.
func (rs *requestState) overSocket() bool {
	return rs.r.ProtoMajor == 1 && websocket.IsWebSocketUpgrade(rs.r)
}

// upgrade answers with a WebSocket. errWatchOver means that the connection is broken; every other error becomes the
// answer of the request.
func (rs *requestState) upgrade() (*websocket.Conn, error) {
	status, why := 0, ""
	protocols := websocket.Subprotocols(rs.r)
	if len(protocols) > 1 { // a watch does not define what several protocols would mean
		return nil, apierr.NewBadRequest("a watch over a WebSocket has one subprotocol at most")
	}
	u := websocket.Upgrader{
		Subprotocols: protocols,
		Error: func(_ http.ResponseWriter, _ *http.Request, code int, reason error) {
			status, why = code, reason.Error()
		},
		CheckOrigin: func(r *http.Request) bool { return !ofAnotherPage(r) },
	}
	socket, err := u.Upgrade(rs, rs.r, nil)
	switch {
	case err == nil:
		return socket, nil
	case status == 0: // the connection broke after the Upgrader took it over
		return nil, errWatchOver
	case status == http.StatusForbidden:
		return nil, &apierr.Error{Code: status, Reason: apierr.Forbidden, Message: why}
	}
	return nil, apierr.NewBadRequest(why)
}

// listen reads from the WebSocket: it answers pings, and ends the watch when the client closes the connection. Its
// goroutine ends when closeSocket closes the connection.
func (w *openWatch) listen() {
	for {
		if _, _, err := w.socket.NextReader(); err != nil {
			w.close()
			return
		}
	}
}

// message sends one event as a message. Events in protobuf begin with their length, which a message does not need.
func (w *openWatch) message(event []byte) error {
	kind := websocket.BinaryMessage
	switch w.media.Encoding {
	case wire.JSON:
		kind = websocket.TextMessage
	case wire.Protobuf:
		event = event[wire.EventPrefix:] // a message knows its length
	}
	w.rs.bytes += int64(len(event))
	return w.socket.WriteMessage(kind, event)
}

// closeSocket ends the connection with a close message.
func (w *openWatch) closeSocket() {
	message := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
	_ = w.socket.WriteControl(websocket.CloseMessage, message, time.Now().Add(closeTimeout)) // fails if the client is gone
	_ = w.socket.Close()
}
