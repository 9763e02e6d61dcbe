//go:build !invariants && !race

package engine

import "plinth/internal/store"

// watchCheck has no size and does nothing in a release, see watchcheck_on.go.
type watchCheck struct{}

func (*watchCheck) starts(*store.Store) {}

func (*watchCheck) event(*Watch, EventType, *store.Version, int64) {}

func (*watchCheck) begins() {}

func (*watchCheck) returns() {}

func (*watchCheck) bookmark(int64) {}
