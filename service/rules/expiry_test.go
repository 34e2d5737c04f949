package rules_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint/service/rules"
)

// TestEndings changes overrides with and without an end at random, while time passes and
// the source's clock is set: at each moment those are in force whose end has not come,
// and as many endings are kept as are still to come.
func TestEndings(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			var mu sync.Mutex
			inForce := make(map[string]bool) // as the node has it
			force := func(key string, set bool) {
				mu.Lock()
				defer mu.Unlock()
				inForce[key] = set
			}
			until := make(map[string]time.Time) // as it should be; zero is without an end
			var ahead time.Duration             // the source's clock
			e := rules.NewExpiries(func(_, key string) error { force(key, false); return nil })
			e.Measured(0, 0)
			for step := range 300 {
				key := fmt.Sprint(r.IntN(30))
				now := time.Now().Add(ahead)
				switch r.IntN(12) {
				case 0: // taken away, as of a customer that is forgotten
					delete(until, key)
					e.Change("r", key, time.Time{}, func() { force(key, false) })
				case 1:
					until[key] = time.Time{}
					e.Change("r", key, time.Time{}, func() { force(key, true) })
				case 2:
					ahead += time.Duration(r.IntN(40)-20) * time.Second
					e.Measured(ahead, 0)
				case 3:
					if r.IntN(8) == 0 {
						clear(until)
						e.ChangeAll(func() {
							mu.Lock()
							defer mu.Unlock()
							clear(inForce)
						})
					}
				case 4, 5, 6:
					time.Sleep(time.Duration(r.IntN(5000)) * time.Millisecond)
				default:
					at := now.Add(time.Duration(r.IntN(60000)-1000) * time.Millisecond)
					until[key] = at
					e.Change("r", key, at, func() { force(key, true) })
				}
				synctest.Wait()
				time.Sleep(time.Nanosecond) // a timer of no time is due
				synctest.Wait()
				toCome := 0
				for key, at := range until {
					switch {
					case at.IsZero():
					case at.After(time.Now().Add(ahead)):
						toCome++
					default:
						delete(until, key)
					}
				}
				if got := e.Pending(); got != toCome {
					t.Fatalf("seed %d, step %d: %d endings are kept of %d to come", seed, step, got, toCome)
				}
				mu.Lock()
				for i := range 30 {
					key := fmt.Sprint(i)
					if _, want := until[key]; inForce[key] != want {
						t.Fatalf("seed %d, step %d: %s in force: %v, want %v", seed, step, key, inForce[key], want)
					}
				}
				mu.Unlock()
			}
			e.ChangeAll(func() {})
		})
	}
}
