package httpapi

import (
	"context"
	"log/slog"

	"plinth/internal/planes/route"
	"plinth/internal/samplelog"
)

// report logs a line about a request, if the sampler allows it. It has the name of the plane that the request is for,
// unless that is the first one.
func (h *Handler) report(s *samplelog.Sampler, rs *requestState, level slog.Level, message string, args ...any) {
	if plane := route.Of(rs.ctx).Plane; plane != "" {
		args = append(args, "plane", plane)
	}
	s.Log(context.WithoutCancel(rs.ctx), h.Logger, level, message, append(args, "method", samplelog.Clip(rs.r.Method),
		"path", samplelog.Clip(rs.r.URL.Path), "audit-id", samplelog.Clip(rs.auditID))...)
}
