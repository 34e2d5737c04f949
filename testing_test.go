package stint_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
)

// TestLoginIsLimited is how a program that uses stint tests its limits: in a bubble
// of testing/synctest nothing waits for real, and waits are exact. It imports nothing internal,
// so that it can be copied.
func TestLoginIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		defer store.Close()
		login, err := stint.NewLimiter(store, "login", stint.PerMinute(5))
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			if ok, _ := login.Allow(t.Context(), "user 7"); !ok {
				t.Error("denied too early")
			}
		}
		began := time.Now()
		if err := login.Wait(t.Context(), "user 7", 1); err != nil {
			t.Error(err)
		}
		if waited := time.Since(began); waited != 12*time.Second {
			t.Errorf("waited %v", waited) // exactly: 5 a minute is one in 12 s
		}
	})
}
