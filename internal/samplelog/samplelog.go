// Package samplelog logs what clients cause: lines whose number and texts are theirs. Both are bounded: a Sampler lets
// some lines of each second through, and Clip cuts values.
package samplelog

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"time"
)

const (
	// maxValue is how many bytes of a value Clip leaves.
	maxValue = 256
	// PerSecond is how many lines of one sort are logged each second.
	PerSecond = 10
)

// Sampler lets the first lines of each second through, so that a client that fails in a loop does not fill the log.
// Each sort of line has its own. The zero value is ready, and may be used concurrently.
type Sampler struct {
	mu      sync.Mutex
	second  int64
	lines   int
	skipped int // since the last line
}

// allow says whether one more line may be logged, and how many before it were not.
func (s *Sampler) allow(now time.Time) (skipped int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if second := now.Unix(); second != s.second {
		s.second, s.lines = second, 0
	}
	if s.lines >= PerSecond {
		s.skipped++
		return 0, false
	}
	s.lines++
	skipped, s.skipped = s.skipped, 0
	return skipped, true
}

// Log logs a line, if it may be logged now, with the number of lines skipped before it.
func (s *Sampler) Log(ctx context.Context, logger *slog.Logger, level slog.Level, message string, args ...any) {
	if !logger.Enabled(ctx, level) {
		return
	}
	skipped, ok := s.allow(time.Now())
	if !ok {
		return
	}
	if skipped > 0 {
		args = append(args, "skipped", skipped) // lines of this sort, since the last one
	}
	logger.Log(ctx, level, message, args...)
}

// Clip returns a text, or, if it is long, its beginning and its length.
func Clip(text string) string {
	if len(text) <= maxValue {
		return text
	}
	return text[:maxValue] + "... (" + strconv.Itoa(len(text)) + " bytes)"
}
