package httpapi

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"plinth/internal/execution"
)

var healthEndpoints = []string{"healthz", "livez", "readyz"}

// checks are the checks that an endpoint runs.
func (h *Handler) checks(endpoint string) []Check {
	var checks []Check
	for _, check := range h.Checks {
		if check.NotLive && endpoint == "livez" {
			continue
		}
		if ready := endpoint == "readyz"; ready && !check.LiveOnly || !ready && !check.ReadyOnly {
			checks = append(checks, check)
		}
	}
	return checks
}

// health answers /healthz, /livez and /readyz as a whole, and each check by itself below them (URI-8). As in the
// reference, the report of all checks withholds their errors, which are logged (run), and a check by itself sends its
// error.
func (h *Handler) health(rs *requestState, endpoint, rest string) error {
	checks := h.checks(endpoint)
	if rest != "" {
		for _, check := range checks {
			if rest == "/"+check.Name {
				if err := h.run(rs, check, endpoint); err != nil {
					http.Error(rs, "internal server error: "+err.Error(), http.StatusInternalServerError)
					return nil
				}
				return rs.whole([]byte("ok"))
			}
		}
		return errNotAPath
	}
	excluded := slices.Clone(rs.query()["exclude"]) // each parameter is a single name
	slices.Sort(excluded)
	unknown := slices.Compact(slices.Clone(excluded))
	var report strings.Builder
	failed := false
	for _, check := range checks {
		if slices.Contains(excluded, check.Name) {
			unknown = slices.DeleteFunc(unknown, func(name string) bool { return name == check.Name })
			fmt.Fprintf(&report, "[+]%s excluded: ok\n", check.Name)
			continue
		}
		if h.run(rs, check, endpoint) != nil {
			failed = true
			fmt.Fprintf(&report, "[-]%s failed: reason withheld\n", check.Name)
			continue
		}
		fmt.Fprintf(&report, "[+]%s ok\n", check.Name)
	}
	if len(unknown) > 0 {
		for i := range unknown {
			unknown[i] = strconv.Quote(unknown[i])
		}
		fmt.Fprintf(&report, "warn: some health checks cannot be excluded: no matches for %s\n", strings.Join(unknown, ","))
	}
	_, verbose := rs.query()["verbose"]
	switch {
	case failed:
		http.Error(rs, report.String()+endpoint+" check failed", http.StatusInternalServerError)
		return nil
	case verbose:
		return rs.text(report.String() + endpoint + " check passed\n")
	}
	return rs.text("ok")
}

// run runs one check and logs its error.
func (h *Handler) run(rs *requestState, check Check, endpoint string) error {
	var err error
	execution.Outside(rs.ctx, func() { err = check.Run(rs.ctx) })
	if observe := h.Metrics.Checked; observe != nil {
		observe(check.Name, endpoint, err == nil)
	}
	if err != nil {
		h.report(&h.logs.checks, rs, slog.LevelWarn, "a health check has failed", "check", check.Name, "error", err)
	}
	return err
}

// text answers in plain text.
func (rs *requestState) text(body string) error {
	header := rs.w.Header()
	header["Content-Type"] = plainText
	header.Set("X-Content-Type-Options", "nosniff")
	return rs.whole([]byte(body))
}
