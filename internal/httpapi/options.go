package httpapi

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/internal/features"
	"plinth/internal/fielderrors"
	"plinth/internal/objectmeta"
	"plinth/internal/shard"
)

// Options are read in two steps, as in the reference: first each parameter is parsed, and the first one that cannot be
// parsed is a bad request (400); then they are validated together, and all errors are returned at once (422).

// invalidOptions is the 422 about options of a kind ("CreateOptions").
func invalidOptions(kind string, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierr.NewInvalid(apierr.Type{Group: "meta.k8s.io", Name: kind}, "", errs)
}

// integer parses a parameter. It returns nil if it is absent.
func integer(values url.Values, name string) (*int64, error) {
	list := values[name]
	if len(list) == 0 {
		return nil, nil
	}
	n, err := strconv.ParseInt(list[0], 10, 64)
	if err != nil {
		return nil, apierr.NewBadRequest(err.Error())
	}
	return &n, nil
}

// boolean parses a parameter. It returns nil if it is absent.
func boolean(values url.Values, name string) *bool {
	if len(values[name]) == 0 {
		return nil
	}
	value := isTrue(values, name)
	return &value
}

// writeOptions reads the options that create, update and patch have in common into the engine's request. kind is the
// name of the options in errors.
func (rs *requestState) writeOptions(kind string, rq *engine.Request) error {
	return rs.optionsOf(kind, rq, nil)
}

// patchOptions is writeOptions for a patch. Only an apply requires a fieldManager, and only an apply may be forced.
func (rs *requestState) patchOptions(rq *engine.Request, apply bool) error {
	values := rs.query()
	var errs field.ErrorList
	switch {
	case apply:
		rq.Force = isTrue(values, "force")
		if first(values, "fieldManager") == "" {
			errs = append(errs, field.Required(field.NewPath("fieldManager"), "is required for apply patch"))
		}
	case len(values["force"]) > 0:
		errs = append(errs, field.Forbidden(field.NewPath("force"), "may not be specified for non-apply patch"))
	}
	return rs.optionsOf("PatchOptions", rq, errs)
}

// optionsOf is writeOptions that adds its errors to errs, which the caller has found.
func (rs *requestState) optionsOf(kind string, rq *engine.Request, errs field.ErrorList) error {
	values := rs.query()
	if len(values) == 0 {
		return invalidOptions(kind, errs)
	}
	rq.FieldManager = first(values, "fieldManager")
	errs = append(errs, managerErrors(rq.FieldManager)...)
	errs = append(errs, dryRunErrors(values["dryRun"])...)
	rq.DryRun = len(values["dryRun"]) > 0
	switch level := first(values, "fieldValidation"); level {
	case "", "Warn":
	case "Ignore":
		rq.Validation = engine.Ignore
	case "Strict":
		rq.Validation = engine.Strict
	default:
		errs = append(errs, field.NotSupported(field.NewPath("fieldValidation"), level,
			[]string{"", "Ignore", "Strict", "Warn"}))
	}
	rs.dryRun = rq.DryRun
	return invalidOptions(kind, errs)
}

func managerErrors(manager string) field.ErrorList {
	f := fielderrors.Errors{Root: field.NewPath("fieldManager")}
	objectmeta.FieldManager(&f, manager, nil)
	return f.List
}

func dryRunErrors(values []string) field.ErrorList {
	for _, value := range values {
		if value != "All" {
			return field.ErrorList{field.NotSupported(field.NewPath("dryRun"), values, []string{"All"})}
		}
	}
	return nil
}

// listParams are the parameters of a list, a watch or a deletecollection (LIST-3, WATCH-5).
type listParams struct {
	engine.ListOptions
	watch, bookmarks bool
	timeout          *int64 // seconds
	sendInitial      *bool
}

// listOptions reads and validates the parameters.
func (rs *requestState) listOptions() (p listParams, err error) {
	values := rs.query()
	if p.Labels, err = labels.Parse(first(values, "labelSelector")); err != nil {
		return p, apierr.NewBadRequest(err.Error())
	}
	if p.Fields, err = fields.ParseSelector(first(values, "fieldSelector")); err != nil {
		return p, apierr.NewBadRequest(err.Error())
	}
	// watchPath does not make p.watch true: the reference validates the parameters of the old watch paths as those of a
	// list
	p.watch = isTrue(values, "watch")
	p.bookmarks = isTrue(values, "allowWatchBookmarks")
	p.ResourceVersion = first(values, "resourceVersion")
	p.Match = first(values, "resourceVersionMatch")
	if p.timeout, err = integer(values, "timeoutSeconds"); err != nil {
		return p, err
	}
	limit, err := integer(values, "limit")
	if err != nil {
		return p, err
	}
	if limit != nil {
		p.Limit = *limit
	}
	p.Continue = first(values, "continue")
	p.sendInitial = boolean(values, "sendInitialEvents")
	if selector := first(values, "shardSelector"); selector != "" && rs.h.Features.On(features.ShardedListAndWatch) {
		if p.Shard, err = shard.Parse(selector); err != nil { // the reference answers the same text with 500
			return p, apierr.NewBadRequest("invalid shard selector: " + err.Error())
		}
	}
	if p.fromScratch() {
		yes := true
		p.sendInitial, p.Match = &yes, "NotOlderThan"
	}
	if err := invalidOptions("ListOptions", p.validate()); err != nil {
		return p, err
	}
	if p.ResourceVersion, p.Match, err = rs.asOf(p.ResourceVersion, p.Match); err != nil {
		return p, err
	}
	return p, rs.nameSelected(&p)
}

// asOf reads the parameter of that name: a moment (RFC 3339) in place of a resourceVersion. A request with it is one of
// what there was at the newest resourceVersion that was not written after the moment (BEY-4). The token of a list that
// is continued has the resourceVersion already.
func (rs *requestState) asOf(resourceVersion, match string) (string, string, error) {
	text := first(rs.query(), "asOf")
	if text == "" || rs.resource == nil || rs.resource.Virtual() {
		return resourceVersion, match, nil
	}
	moment, err := time.Parse(time.RFC3339Nano, text)
	switch {
	case err != nil:
		return "", "", apierr.NewBadRequest(fmt.Sprintf("asOf: Invalid value: %q: must be a time as in RFC 3339, such as "+
			"2030-01-02T15:04:05Z", text))
	case resourceVersion != "" || match != "":
		return "", "", apierr.NewBadRequest("asOf: Forbidden: a resourceVersion and resourceVersionMatch say something else")
	case isTrue(rs.query(), "watch") || rs.info.watchPath:
		return "", "", apierr.NewBadRequest("asOf: Forbidden: a watch begins with a resourceVersion")
	case rs.info.verb == "deletecollection":
		return "", "", apierr.NewBadRequest("asOf: Forbidden: what is deleted is what there is now")
	case first(rs.query(), "continue") != "":
		return "", "", nil
	}
	revision, err := rs.h.Engine.RevisionAt(rs.ctx, rs.resource, moment)
	return strconv.FormatInt(revision, 10), "Exact", err
}

// nameSelected refuses a watch of a single object (watchPath) with a field selector of another name.
func (rs *requestState) nameSelected(p *listParams) error {
	if !rs.info.watchPath || rs.info.name == "" || p.Fields.Empty() {
		return nil
	}
	if name, ok := p.Fields.RequiresExactMatch("metadata.name"); !ok || name != rs.info.name {
		return apierr.NewBadRequest("fieldSelector metadata.name doesn't match requested name")
	}
	return nil
}

// fromScratch says whether this is a watch without a resourceVersion. As in the reference it becomes a streaming
// list, so that a bookmark marks the end of the initial events.
func (p *listParams) fromScratch() bool {
	return p.watch && p.sendInitial == nil && p.Match == "" && (p.ResourceVersion == "" || p.ResourceVersion == "0")
}

// streamsList says whether this is a watch that begins with a list and marks its end with a bookmark.
func (p *listParams) streamsList() bool {
	return p.sendInitial != nil && *p.sendInitial && p.bookmarks
}

// validate returns the errors about parameters that exclude each other.
func (p *listParams) validate() (errs field.ErrorList) {
	match := field.NewPath("resourceVersionMatch")
	forbid := func(path *field.Path, why string) { errs = append(errs, field.Forbidden(path, why)) }
	support := func(values ...string) { errs = append(errs, field.NotSupported(match, p.Match, values)) }
	if !p.watch {
		if p.Match != "" && p.ResourceVersion == "" {
			forbid(match, "resourceVersionMatch is forbidden unless resourceVersion is provided")
		}
		if p.Match != "" && p.Continue != "" {
			forbid(match, "resourceVersionMatch is forbidden when continue is provided")
		}
		if p.Match != "" && p.Match != "Exact" && p.Match != "NotOlderThan" {
			support("Exact", "NotOlderThan", "")
		}
		if p.Match == "Exact" && p.ResourceVersion == "0" {
			forbid(match, `resourceVersionMatch "exact" is forbidden for resourceVersion "0"`)
		}
		if p.sendInitial != nil {
			forbid(field.NewPath("sendInitialEvents"), "sendInitialEvents is forbidden for list")
		}
		return errs
	}
	if p.sendInitial != nil && p.Match != "NotOlderThan" {
		forbid(match, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
	}
	if p.Match != "" && p.sendInitial == nil {
		forbid(match, "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
	}
	if p.Match != "" && p.Match != "NotOlderThan" {
		support("NotOlderThan")
	}
	if p.Match != "" && p.Continue != "" {
		forbid(match, "resourceVersionMatch is forbidden when continue is provided")
	}
	return errs
}

// mediaName is a Content-Type up to its first semicolon. The reference, too, does not parse the header of a patch
// further.
func mediaName(header string) string {
	name, _, _ := strings.Cut(header, ";")
	return name
}
