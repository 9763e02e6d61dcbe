package httpapi

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"time"
)

// Clients choose the length and the number of the values that are logged about requests, so both are bounded.
const (
	maxLogged     = 256 // bytes of one value
	logsPerSecond = 10  // lines of one sort
)

// sampler lets the first lines of each second through, so that a client that fails in a loop does not fill the log.
type sampler struct {
	mu      sync.Mutex
	second  int64
	lines   int
	skipped int // since the last line
}

// allow says whether one more line may be logged, and how many before it were not.
func (s *sampler) allow(now time.Time) (skipped int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if second := now.Unix(); second != s.second {
		s.second, s.lines = second, 0
	}
	if s.lines >= logsPerSecond {
		s.skipped++
		return 0, false
	}
	s.lines++
	skipped, s.skipped = s.skipped, 0
	return skipped, true
}

// report logs a line about a request, if the sampler allows it. The line contains the number of lines skipped before
// it.
func (h *Handler) report(s *sampler, rs *requestState, level slog.Level, message string, args ...any) {
	ctx := context.WithoutCancel(rs.ctx)
	if !h.Logger.Enabled(ctx, level) {
		return
	}
	skipped, ok := s.allow(time.Now())
	if !ok {
		return
	}
	args = append(args, "method", clip(rs.r.Method), "path", clip(rs.r.URL.Path), "audit-id", clip(rs.auditID))
	if skipped > 0 {
		args = append(args, "skipped", skipped) // lines of this sort, since the last one
	}
	h.Logger.Log(ctx, level, message, args...)
}

// clip returns a text, or, if it is long, its beginning and its length.
func clip(text string) string {
	if len(text) <= maxLogged {
		return text
	}
	return text[:maxLogged] + "... (" + strconv.Itoa(len(text)) + " bytes)"
}
