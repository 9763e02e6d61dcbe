//go:build !invariants && !race

package engine

import (
	"context"

	"plinth/internal/store"
)

// watchCheck has no size and does nothing in a release, see watchcheck_on.go.
type watchCheck struct{}

func (*watchCheck) event(context.Context, *Watch, EventType, *store.Version, int64) {}

func (*watchCheck) bookmark(int64) {}
