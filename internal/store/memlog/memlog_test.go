package memlog_test

import (
	"testing"

	"plinth/internal/store"
	"plinth/internal/store/memlog"
	"plinth/internal/store/storetest"
)

var implementation = storetest.Implementation{
	New: storetest.Over(func(testing.TB) func() (store.Log, error) {
		return func() (store.Log, error) { return memlog.New(), nil }
	}),
}

func TestStore(t *testing.T) { storetest.Run(t, implementation) }
