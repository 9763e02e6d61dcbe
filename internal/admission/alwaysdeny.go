package admission

import (
	"context"

	"plinth/internal/engine"
)

// alwaysDeny is the plugin AlwaysDeny, which refuses every write. It is for tests.
func alwaysDeny(_ context.Context, a *engine.Attributes) error {
	return forbidden(a, "admission control is denying all modifications")
}
