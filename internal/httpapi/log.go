package httpapi

import (
	"context"
	"log/slog"

	"plinth/internal/samplelog"
)

// report logs a line about a request, if the sampler allows it.
func (h *Handler) report(s *samplelog.Sampler, rs *requestState, level slog.Level, message string, args ...any) {
	s.Log(context.WithoutCancel(rs.ctx), h.Logger, level, message, append(args, "method", samplelog.Clip(rs.r.Method),
		"path", samplelog.Clip(rs.r.URL.Path), "audit-id", samplelog.Clip(rs.auditID))...)
}
