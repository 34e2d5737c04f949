package memstore_test

import (
	"errors"
	"testing"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
)

// TestInFlightClosed decides nothing in a store that is closed, and gives back all the same.
func TestInFlightClosed(t *testing.T) {
	s := memstore.New(memstore.Options{})
	l := under(t, s, "pool", stint.InFlight(2))
	d, release, err := l.Acquire(t.Context(), "k")
	if err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if d, _, err := l.Acquire(t.Context(), "k"); !errors.Is(err, stint.ErrClosed) {
		t.Errorf("closed: %+v, %v", d, err)
	}
	release()
	for name, units := range s.InFlight().Held {
		if units != 0 {
			t.Errorf("%q holds %d", name, units)
		}
	}
}
