package httpapi

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	netutils "k8s.io/utils/net"

	"plinth/internal/audit"
	"plinth/internal/discovery"
	"plinth/internal/engine"
	"plinth/internal/planes/route"
	"plinth/internal/wire"
	"plinth/object"
)

// What the audit log records of a request (AUTH-4). Each function here does nothing if the level of the record does not
// include its part.

// The annotations that authorization adds.
const (
	decisionAnnotation = "authorization.k8s.io/decision"
	reasonAnnotation   = "authorization.k8s.io/reason"
)

// audit begins the record of a request after authentication. In the mode blocking-strict, a request fails if its record
// cannot be written.
func (h *Handler) audit(rs *requestState) error {
	if h.Auditor == nil {
		return nil
	}
	rs.ask()
	var ok bool
	if rs.record, ok = h.Auditor.Begin(rs.askedOf(true)); !ok {
		rs.record = nil // as in the reference, the refusal itself is not recorded
		return &plainError{http.StatusInternalServerError, "Internal Server Error: " + strconv.Quote(rs.r.RequestURI) +
			": failed to store audit event"}
	}
	for key, value := range rs.noted {
		rs.record.Annotate(key, value)
	}
	return nil
}

// auditRefusal begins the record of a request that is refused before its sender is known.
func (rs *requestState) auditRefusal(why string) {
	if rs.h.Auditor != nil {
		rs.ask()
		rs.record = rs.h.Auditor.Refuse(rs.askedOf(false), why)
	}
}

// askedOf collects the values with which a record begins.
func (rs *requestState) askedOf(known bool) *audit.Asked {
	at := route.Of(rs.ctx)
	return &audit.Asked{
		ID: rs.auditID, URI: at.URI(rs.r.URL), Plane: at.Plane, Attributes: rs.asked, Known: known,
		SourceIPs: sourceIPs(rs.r), UserAgent: rs.r.UserAgent(), At: rs.began, Long: rs.class == LongRunning,
	}
}

// sourceIPs returns the addresses that a request comes from: first those that proxies report in headers, then that of
// the connection. Clients can forge the headers; only the last address is certain.
func sourceIPs(r *http.Request) (ips []string) {
	add := func(text string, known []string) {
		if ip := netutils.ParseIPSloppy(text); ip != nil && !slices.Contains(known, ip.String()) {
			ips = append(ips, ip.String())
		}
	}
	if forwarded := r.Header["X-Forwarded-For"]; len(forwarded) > 0 {
		for part := range strings.SplitSeq(forwarded[0], ",") {
			add(strings.TrimSpace(part), nil)
		}
	}
	if real := r.Header["X-Real-Ip"]; len(real) > 0 {
		add(real[0], ips)
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	add(host, ips[max(0, len(ips)-1):])
	return ips
}

// attempted names the sorts of credentials with which authentication has failed.
func (rs *requestState) attempted() string {
	var ways []string
	if _, _, ok := rs.r.BasicAuth(); ok {
		ways = append(ways, "basic")
	}
	if scheme, _, ok := strings.Cut(strings.TrimSpace(rs.r.Header.Get("Authorization")), " "); ok &&
		strings.EqualFold(scheme, "bearer") {
		ways = append(ways, "bearer")
	}
	if strings.TrimSpace(first(rs.query(), "access_token")) != "" {
		ways = append(ways, "access_token")
	}
	if rs.r.TLS != nil && len(rs.r.TLS.PeerCertificates) > 0 {
		ways = append(ways, "x509")
	}
	if len(ways) == 0 {
		return "Authentication failed, no credentials provided"
	}
	return "Authentication failed, attempted: " + strings.Join(ways, ", ")
}

func (rs *requestState) auditDecision(decision, reason string) {
	rs.record.Annotate(decisionAnnotation, decision)
	rs.record.Annotate(reasonAnnotation, reason)
}

// recordAnswer records that the answer begins.
func (rs *requestState) recordAnswer(code int) {
	rs.recordCalls()
	rs.record.Answers(code)
}

// recordCalls annotates the record with what was noted so far of calls of other servers.
func (rs *requestState) recordCalls() {
	if rs.record == nil {
		return
	}
	for key, value := range rs.calls.All() {
		rs.record.Annotate(key, value)
	}
}

// endRecord completes the record when the answer is complete.
func (rs *requestState) endRecord() {
	if rs.record == nil {
		return
	}
	if rs.resource != nil && rs.resource.Deprecated != "" {
		rs.record.Annotate("k8s.io/deprecated", "true")
	}
	rs.recordCalls()
	if r := rs.received; r != nil && !r.Object.IsNull() {
		rs.recordReceived(r)
	}
	rs.record.End()
}

// recordBody makes the engine keep the decoded body for the record.
func (rs *requestState) recordBody(rq *engine.Request) {
	if rs.record != nil {
		rs.received = &engine.Received{Whole: rs.record.Wants(audit.Request)}
		rq.Received = rs.received
	}
}

func (rs *requestState) recordReceived(r *engine.Received) {
	meta := r.Object.At("metadata")
	rs.record.Object(meta.At("namespace").Str(), meta.At("name").Str(), meta.At("uid").Str(),
		meta.At("resourceVersion").Str())
	if !r.Whole {
		return
	}
	obj := r.Object
	if rs.record.OmitsManagedFields() {
		obj = obj.WithoutAt("metadata", "managedFields")
	}
	rs.record.Request(object.AppendObject(nil, obj))
}

// recordIntent keeps the body of an apply.
func (rs *requestState) recordIntent(intent object.Parsed) {
	if rs.record.Wants(audit.Request) {
		rs.record.Request(object.AppendJSON(nil, intent.Value))
	}
}

// recordPatch keeps the body of another patch, if it is JSON.
func (rs *requestState) recordPatch(body []byte) {
	var line bytes.Buffer
	if rs.record.Wants(audit.Request) && json.Compact(&line, body) == nil {
		rs.record.Request(line.Bytes())
	}
}

// recordOptions keeps the body of a delete. The reference records it in its internal version, so its apiVersion is
// meta.k8s.io/__internal.
func (rs *requestState) recordOptions(options object.Value) {
	if !rs.record.Wants(audit.Request) {
		return
	}
	decoded, err := wire.DeleteOptions().Decode(options)
	if err != nil {
		return
	}
	shown := wire.DeleteOptions().Settle(decoded.Value).Edit([]object.Member{
		{Key: "apiVersion", Value: object.StringOf("meta.k8s.io/__internal")},
		{Key: "kind", Value: object.StringOf("DeleteOptions")},
	})
	rs.record.Request(object.AppendObject(nil, shown))
}

// recordValue keeps an answer that is not a stored object. If it is a Status, it is also the result of the request.
func (rs *requestState) recordValue(v object.Value) {
	if rs.record == nil {
		return
	}
	if v.At("kind").Str() == "Status" {
		s := audit.Status{
			Status: v.At("status").Str(), Message: v.At("message").Str(), Reason: v.At("reason").Str(),
			Code: int(v.At("code").Int()),
		}
		// after a blank line, the message of a conflict shows values of fields, which are body and not metadata
		if s.Code == http.StatusConflict {
			s.Message, _, _ = strings.Cut(s.Message, "\n\n")
		}
		if details := v.At("details"); !details.IsNull() {
			s.Details = object.AppendJSON(nil, details)
		}
		rs.record.Ends(s)
	}
	if rs.record.Wants(audit.RequestResponse) {
		rs.record.Response(object.AppendObject(nil, v))
	}
}

// recorded returns the media type in which an answer is recorded: JSON of the same form.
func (rs *requestState) recorded(media wire.Media) wire.Media {
	media.Encoding, media.Pretty = wire.JSON, false
	media.Lean = media.Lean || rs.record.OmitsManagedFields()
	return media
}

// recordObject keeps an answer of one object.
func (rs *requestState) recordObject(media wire.Media, rq *engine.Request, o *engine.Object) error {
	if !rs.record.Wants(audit.RequestResponse) {
		return nil
	}
	media = rs.recorded(media)
	table, err := rs.table(media, rq)
	if err != nil {
		return err
	}
	var text []byte
	switch media.Form {
	case wire.AsTable:
		text, err = wire.AppendTable(nil, o, table)
	case wire.AsPartial:
		text = wire.AppendPartial(nil, o, media.Version, media.Lean)
	default:
		text = wire.AppendObject(nil, o, media.Lean)
	}
	rs.record.Response(text)
	return err
}

// recordList keeps an answer of many objects.
func (rs *requestState) recordList(media wire.Media, rq *engine.Request, c *engine.Collection,
	meta wire.ListMeta) error {
	if !rs.record.Wants(audit.RequestResponse) {
		return nil
	}
	media = rs.recorded(media)
	table, err := rs.table(media, rq)
	if err != nil {
		return err
	}
	printer := wire.NewList(rq.Resource, media, table)
	text := printer.Head(nil, meta)
	for item := range c.Items {
		if text, err = printer.Item(text, item); err != nil {
			return err
		}
	}
	rs.record.Response(bytes.TrimSuffix(printer.Tail(text), []byte("\n")))
	return c.Err()
}

// recordDocument keeps a discovery document. OpenAPI documents and /version are not API objects, and are not recorded.
func (rs *requestState) recordDocument(path string, d *discovery.Document) error {
	if !rs.record.Wants(audit.RequestResponse) || !strings.HasPrefix(path, "/api") {
		return nil
	}
	if !strings.HasPrefix(d.MediaType, wire.JSON.String()) {
		accept := wire.JSON.String()
		if _, parameters, ok := strings.Cut(d.MediaType, ";"); ok {
			accept += ";" + parameters
		}
		var err error
		if d, _, err = rs.h.Documents.Get(path, accept); err != nil {
			return err
		}
	}
	text, err := d.Plain()
	var line bytes.Buffer
	if err == nil {
		err = json.Compact(&line, text)
	}
	rs.record.Response(line.Bytes())
	return err
}
