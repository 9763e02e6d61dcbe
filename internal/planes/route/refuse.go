package route

import (
	"net/http"
	"strconv"

	"plinth/internal/apierr"
	"plinth/object"
)

// Refuse answers a request that no plane gets with an error, as a Status in JSON.
func Refuse(w http.ResponseWriter, err error) {
	refused := apierr.From(err)
	body := append(object.AppendObject(nil, refused.Status()), '\n')
	header := w.Header()
	header["Cache-Control"] = []string{"no-cache, private"}
	header["Content-Type"] = []string{"application/json"}
	header["Content-Length"] = []string{strconv.Itoa(len(body))}
	header["X-Content-Type-Options"] = []string{"nosniff"}
	w.WriteHeader(refused.Code)
	_, _ = w.Write(body) // the client has gone, if it fails
}
