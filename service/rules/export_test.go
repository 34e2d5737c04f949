package rules

import (
	"time"

	"github.com/stint-dev/stint/rulesource"
)

// SettingNames are the fields beside the rules.
var SettingNames = settingNames

// Readable checks what can be checked before the YAML library reads.
var Readable = readable

// Expiries end overrides at their time, one at a time.
type Expiries struct{ e *expiries }

func NewExpiries(end func(rule, key string) error) Expiries { return Expiries{newExpiries(end)} }

// Measured takes a measurement of the source's clock.
func (x Expiries) Measured(ahead, doubt time.Duration) { x.e.measured(ahead, doubt) }

// Change sets one override, with its ending.
func (x Expiries) Change(rule, key string, at time.Time, f func()) {
	x.e.change(func(ends *endings) {
		f()
		ends.note(customer{rule, key}, at)
	})
}

// ChangeAll takes all overrides away.
func (x Expiries) ChangeAll(f func()) {
	x.e.change(func(ends *endings) {
		f()
		*ends = newEndings()
	})
}

// Pending returns how many endings are kept.
func (x Expiries) Pending() int {
	x.e.mu.Lock()
	defer x.e.mu.Unlock()
	return len(x.e.queue)
}

// SetClock gives a node another clock than the machine's.
func SetClock(w *Follower, now func() time.Time) { w.wall = now }

// MostChanges is how many overrides change one by one at most.
const MostChanges = mostChanges

// An OnDemand asks for overrides one by one.
type OnDemand struct{ d *onDemand }

// MostHeld is how many customers are remembered at least.
const MostHeld = mostHeld

func NewOnDemand(source rulesource.OverrideFinder, put func(o *rulesource.Override)) OnDemand {
	return OnDemand{newOnDemand(source, put)}
}

// Fetch makes a customer known.
func (d OnDemand) Fetch(rule, key string) { d.d.fetch(rule, key) }
