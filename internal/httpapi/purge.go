package httpapi

import (
	"fmt"
	"net/http"

	"plinth/internal/apierr"
)

// purgeParameter makes a POST to the URL of an object a purge of what the object was. As no resource has the verb, no
// discovery document shows it.
const purgeParameter = "purge"

// routePurge is verb for a request that has the parameter, and is no read. The parameter is not ignored where it has no
// effect, as others are: a DELETE or a POST to the collection would do what its user has not meant.
func (rs *requestState) routePurge() (func(*Handler, *requestState) error, error) {
	info, r := &rs.info, rs.resource
	switch {
	case info.verb != "purge" || info.watchPath || r.Virtual() || !has(r.Verbs, "delete"):
		return nil, apierr.NewMethodNotAllowed()
	case info.scoped && info.namespace == "": // an empty segment
		return nil, apierr.NewBadRequest("Namespace parameter required.")
	}
	return verbs[info.verb], nil
}

// purge is a POST to an object with ?purge: it removes what the object was before, for good (BEY-4).
func (h *Handler) purge(rs *requestState) error {
	values := rs.query()
	if v := first(values, purgeParameter); v != "" && v != "true" {
		return apierr.NewBadRequest(fmt.Sprintf("purge: Invalid value: %q: must be empty, or 'true'", v))
	}
	if err := invalidOptions("CreateOptions", dryRunErrors(values["dryRun"])); err != nil {
		return err
	}
	rs.dryRun = len(values["dryRun"]) > 0
	purged, err := h.Engine.Purge(rs.ctx, rs.request(), rs.dryRun)
	if err != nil {
		return err
	}
	return rs.sendDocument(http.StatusOK, purged)
}
