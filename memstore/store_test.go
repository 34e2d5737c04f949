package memstore_test

import (
	"testing"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/storetest"
)

// TestStore runs the suite that any store must pass.
func TestStore(t *testing.T) {
	storetest.Run(t, func(_ testing.TB, now func() int64) stint.Store {
		return memstore.New(memstore.Options{Now: now})
	})
}
