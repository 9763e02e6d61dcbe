package httpapi

import (
	"encoding/hex"
	"errors"
	"fmt"
	"mime"
	"strings"

	"plinth/internal/apierr"
	"plinth/internal/proto"
	"plinth/internal/wire"
	"plinth/object"
)

// bodyEncoding returns the format of the body by its Content-Type, if the offer includes it; without the header it is
// JSON. The content does not matter: guessing YAML under the media type of JSON would accept what the reference
// refuses.
func (rs *requestState) bodyEncoding(offer wire.Offer) (wire.Encoding, error) {
	header := rs.r.Header.Get("Content-Type")
	if header == "" || header == wire.JSON.String() {
		return wire.JSON, nil
	}
	if name, _, err := mime.ParseMediaType(header); err == nil {
		if encoding, ok := offer.Reads(name); ok {
			return encoding, nil
		}
	}
	return 0, apierr.NewUnsupportedMediaType(rs.h.offer.MediaTypes())
}

// parse parses a body as a value. typ is the type of a protobuf body, whose field numbers mean nothing without it. The
// parser may keep the bytes: strings of the value point into them.
func parse(encoding wire.Encoding, body []byte, typ wire.Type) (object.Parsed, error) {
	switch encoding {
	case wire.Protobuf:
		value, err := proto.Parse(typ, body)
		return object.Parsed{Value: value}, err
	case wire.CBOR:
		parsed, err := object.ParseCBOR(body)
		if err != nil {
			err = fmt.Errorf("unable to determine group/version/kind: %w", err)
		}
		return parsed, err
	case wire.YAML:
		return parseYAML(body)
	}
	return object.ParseJSON(body)
}

// parseYAML parses a YAML body. Aliases may expand to much more than the body: nine lists, each of ten aliases of the
// one before it, are 400 bytes of text and a billion items. An expansion beyond the limit gets the error of a body of
// that size.
func parseYAML(body []byte) (object.Parsed, error) {
	parsed, err := object.ParseYAML(body)
	var syntax *object.SyntaxError
	switch {
	case errors.Is(err, object.ErrExpansion): // counts as if the client had sent it expanded
		err = apierr.NewTooLarge(fmt.Sprintf("limit is %d", object.MaxExpansion))
	case err != nil && !errors.As(err, &syntax):
		err = errors.New(yamlWords(err))
	}
	return parsed, err
}

// yamlWords returns the message of the YAML library with a single prefix "yaml: ".
func yamlWords(err error) string {
	return "yaml: " + strings.TrimPrefix(strings.TrimPrefix(err.Error(), "error converting YAML to JSON: "), "yaml: ")
}

// parseObject parses the body of a request as an object. Its errors have the texts of the reference.
func (rs *requestState) parseObject(encoding wire.Encoding, body []byte) (object.Parsed, error) {
	summary := summarize(body) // before the parser takes ownership of the bytes
	kind, typ := rs.resource.Kind, rs.resource.Schema
	if rs.subresource != nil && rs.subresource.Schema != nil {
		kind, typ = rs.subresource.Kind, rs.subresource.Schema
	}
	parsed, err := parse(encoding, body, typ())
	var message *proto.MessageError
	switch {
	case err == nil:
		return parsed, nil
	case apierr.Is(err, apierr.RequestEntityTooLarge):
		return parsed, err
	case errors.As(err, &message):
		return parsed, apierr.NewBadRequest(unhandled(message, kind))
	}
	return parsed, apierr.NewBadRequest(fmt.Sprintf("the object provided is unrecognized (must be of type %s): %s (%s)",
		kind, words(err), summary))
}

// unhandled is the error text for a protobuf message that cannot be parsed.
func unhandled(e *proto.MessageError, want string) string {
	kind, version := e.Kind, e.APIVersion
	if kind == "" {
		kind = want
	}
	if _, after, ok := strings.Cut(version, "/"); ok {
		version = after
	}
	return fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", kind, version, want, e.Err)
}

// words returns the error text of a parser, with the reference's prefix for syntax errors of JSON.
func words(err error) string {
	var syntax *object.SyntaxError
	if errors.As(err, &syntax) {
		return "couldn't get version/kind; json parse error: " + syntax.Message
	}
	return err.Error()
}

// summarize shows the beginning of a body: as text if it looks like JSON, else as hexadecimal digits.
func summarize(body []byte) string {
	const shown = 30
	more := ""
	if len(body) > shown {
		body, more = body[:shown], " ..."
	}
	switch {
	case len(body) == 0:
		return "<empty>"
	case body[0] == '{':
		return string(body) + more
	}
	return hex.EncodeToString(body) + more
}
