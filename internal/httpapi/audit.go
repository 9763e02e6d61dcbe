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
	"plinth/internal/wire"
	"plinth/object"
)

// What is written down of a request (AUTH-4). Each function here does nothing where the policy does not want to know what it tells.

// The annotations that authorization leaves.
const (
	decisionAnnotation = "authorization.k8s.io/decision"
	reasonAnnotation   = "authorization.k8s.io/reason"
)

// audit begins the record of a request whose user is known.
func (h *Handler) audit(x *exchange) error {
	if h.Auditor == nil {
		return nil
	}
	x.ask()
	var ok bool
	if x.record, ok = h.Auditor.Begin(x.askedOf(true)); !ok {
		x.record = nil // as in the reference, that it was refused is not written down
		return &plainError{http.StatusInternalServerError, "Internal Server Error: " + strconv.Quote(x.r.RequestURI) + ": failed to store audit event"}
	}
	for key, value := range x.noted {
		x.record.Annotate(key, value)
	}
	return nil
}

// auditRefusal begins the record of a request that is refused before it is known who sends it.
func (x *exchange) auditRefusal(why string) {
	if x.h.Auditor != nil {
		x.ask()
		x.record = x.h.Auditor.Refuse(x.askedOf(false), why)
	}
}

// askedOf is what the record begins with.
func (x *exchange) askedOf(known bool) *audit.Asked {
	return &audit.Asked{
		ID: x.auditID, URI: x.r.URL.RequestURI(), Attributes: x.asked, Known: known, SourceIPs: sourceIPs(x.r),
		UserAgent: x.r.UserAgent(), At: x.began, Long: x.class == LongRunning,
	}
}

// sourceIPs are where a request comes from, as those say who have passed it on, and, last, as the connection says.
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

// attempted says by which credentials somebody has tried to get in.
func (x *exchange) attempted() string {
	var ways []string
	if _, _, ok := x.r.BasicAuth(); ok {
		ways = append(ways, "basic")
	}
	if scheme, _, ok := strings.Cut(strings.TrimSpace(x.r.Header.Get("Authorization")), " "); ok && strings.EqualFold(scheme, "bearer") {
		ways = append(ways, "bearer")
	}
	if strings.TrimSpace(first(x.query(), "access_token")) != "" {
		ways = append(ways, "access_token")
	}
	if x.r.TLS != nil && len(x.r.TLS.PeerCertificates) > 0 {
		ways = append(ways, "x509")
	}
	if len(ways) == 0 {
		return "Authentication failed, no credentials provided"
	}
	return "Authentication failed, attempted: " + strings.Join(ways, ", ")
}

func (x *exchange) auditDecision(decision, reason string) {
	x.record.Annotate(decisionAnnotation, decision)
	x.record.Annotate(reasonAnnotation, reason)
}

// endRecord tells that the answer is complete, with all that has been found out on the way.
func (x *exchange) endRecord() {
	if x.record == nil {
		return
	}
	if x.resource != nil && x.resource.Deprecated != "" {
		x.record.Annotate("k8s.io/deprecated", "true")
	}
	if r := x.received; r != nil && !r.Object.IsNull() {
		x.recordReceived(r)
	}
	x.record.End()
}

// recordBody has the engine keep what it understands of the body.
func (x *exchange) recordBody(rq *engine.Request) {
	if x.record != nil {
		x.received = &engine.Received{Whole: x.record.Wants(audit.Request)}
		rq.Received = x.received
	}
}

func (x *exchange) recordReceived(r *engine.Received) {
	meta := r.Object.At("metadata")
	x.record.Object(meta.At("namespace").Str(), meta.At("name").Str(), meta.At("uid").Str(), meta.At("resourceVersion").Str())
	if !r.Whole {
		return
	}
	obj := r.Object
	if x.record.OmitsManagedFields() {
		obj = obj.WithoutAt("metadata", "managedFields")
	}
	x.record.Request(object.AppendObject(nil, obj))
}

// recordIntent keeps the body of an apply.
func (x *exchange) recordIntent(intent object.Parsed) {
	if x.record.Wants(audit.Request) {
		x.record.Request(object.AppendJSON(nil, intent.Value))
	}
}

// recordPatch keeps the body of another patch, if it is JSON.
func (x *exchange) recordPatch(body []byte) {
	var line bytes.Buffer
	if x.record.Wants(audit.Request) && json.Compact(&line, body) == nil {
		x.record.Request(line.Bytes())
	}
}

// recordOptions keeps the body of a delete. In the reference options are of an internal version by then, and it says so.
func (x *exchange) recordOptions(options object.Value) {
	if !x.record.Wants(audit.Request) {
		return
	}
	decoded, err := wire.DeleteOptions().Decode(options)
	if err != nil {
		return
	}
	shown := wire.DeleteOptions().Settle(decoded.Value).Edit([]object.Member{
		{Key: "apiVersion", Value: object.StringOf("meta.k8s.io/__internal")}, {Key: "kind", Value: object.StringOf("DeleteOptions")},
	})
	x.record.Request(object.AppendObject(nil, shown))
}

// recordValue keeps an answer that is stored nowhere, and how the request has ended if the answer says that.
func (x *exchange) recordValue(v object.Value) {
	if x.record == nil {
		return
	}
	if v.At("kind").Str() == "Status" {
		s := audit.Status{
			Status: v.At("status").Str(), Message: v.At("message").Str(), Reason: v.At("reason").Str(), Code: int(v.At("code").Int()),
		}
		if s.Code == http.StatusConflict { // what the server adds to the reference's words shows values of fields: it belongs to the body
			s.Message, _, _ = strings.Cut(s.Message, "\n\n")
		}
		if details := v.At("details"); !details.IsNull() {
			s.Details = object.AppendJSON(nil, details)
		}
		x.record.Ends(s)
	}
	if x.record.Wants(audit.RequestResponse) {
		x.record.Response(object.AppendObject(nil, v))
	}
}

// recorded is the media type in which an answer is written down: JSON of the same form.
func (x *exchange) recorded(media wire.Media) wire.Media {
	media.Encoding, media.Pretty = wire.JSON, false
	media.Lean = media.Lean || x.record.OmitsManagedFields()
	return media
}

// recordObject keeps an answer of one object.
func (x *exchange) recordObject(media wire.Media, rq *engine.Request, o *engine.Object) error {
	if !x.record.Wants(audit.RequestResponse) {
		return nil
	}
	media = x.recorded(media)
	table, err := x.table(media, rq)
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
	x.record.Response(text)
	return err
}

// recordList keeps an answer of many objects.
func (x *exchange) recordList(media wire.Media, rq *engine.Request, c *engine.Collection, meta wire.ListMeta) error {
	if !x.record.Wants(audit.RequestResponse) {
		return nil
	}
	media = x.recorded(media)
	table, err := x.table(media, rq)
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
	x.record.Response(bytes.TrimSuffix(printer.Tail(text), []byte("\n")))
	return c.Err()
}

// recordDocument keeps a discovery document. Others are no objects.
func (x *exchange) recordDocument(path string, d *discovery.Document) error {
	if !x.record.Wants(audit.RequestResponse) || !strings.HasPrefix(path, "/api") {
		return nil
	}
	if !strings.HasPrefix(d.MediaType, wire.JSON.String()) {
		accept := wire.JSON.String()
		if _, parameters, ok := strings.Cut(d.MediaType, ";"); ok {
			accept += ";" + parameters
		}
		var err error
		if d, _, err = x.h.Documents.Get(path, accept); err != nil {
			return err
		}
	}
	text, err := d.Plain()
	var line bytes.Buffer
	if err == nil {
		err = json.Compact(&line, text)
	}
	x.record.Response(line.Bytes())
	return err
}
