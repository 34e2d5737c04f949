package rules

import (
	"context"
	"sync"
	"time"

	"github.com/stint-dev/stint/rulesource"
)

const (
	// mostHeld is the least number of customers that a node with on_demand remembers, with or
	// without an override. It remembers up to three times as many.
	mostHeld = 1 << 17
	// lookupWait is how long a request waits for its customer's override. After that, the rule's
	// own limits decide the request, and the answer serves the next one.
	lookupWait = 20 * time.Millisecond
	// askWithin is how long the source may take to answer.
	askWithin = 2 * time.Second
	// mostAsks is how many lookups may run at once.
	mostAsks = 64
	// askAgain is how long no lookup begins after a failure.
	askAgain = time.Second
)

type customer = [2]string // rule and key

// An onDemand reads overrides from a source when customers come. An answer stays known, also while
// the source is down, until the source reports a change of it or it must make room for others.
type onDemand struct {
	source rulesource.OverrideFinder
	put    func(o *rulesource.Override) // puts an override in force, or removes it

	mu          sync.RWMutex
	young       map[customer]struct{} // known, and asked for lately
	old         map[customer]struct{} // known for longer
	leaving     map[customer]struct{} // known for longest; a few are forgotten at a time
	lookups     map[customer]*lookup
	pausedUntil time.Time // no lookup begins before
	epoch       int       // counts calls of forget
}

// A lookup is a read of one override in progress.
type lookup struct {
	done    chan struct{}
	changed bool // the source reported a change meanwhile, so the answer may be older
}

func newOnDemand(source rulesource.OverrideFinder, put func(o *rulesource.Override)) *onDemand {
	return &onDemand{source: source, put: put, young: make(map[customer]struct{}), old: make(map[customer]struct{}), leaving: make(map[customer]struct{}), lookups: make(map[customer]*lookup)}
}

// fetch makes a customer's override known, or gives up after lookupWait.
func (d *onDemand) fetch(rule, key string) {
	c := customer{rule, key}
	d.mu.RLock()
	_, young := d.young[c]
	d.mu.RUnlock()
	if young {
		return
	}
	f := d.begin(c)
	if f == nil {
		return
	}
	select {
	case <-f.done:
	case <-time.After(lookupWait):
	}
}

// begin returns the lookup for a customer, and starts it if none runs. It returns nil if there is
// nothing to wait for.
func (d *onDemand) begin(c customer) *lookup {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, young := d.young[c]; young {
		return nil
	}
	if d.known(c) {
		d.know(c)
		return nil
	}
	if f := d.lookups[c]; f != nil {
		return f
	}
	if len(d.lookups) >= mostAsks || time.Now().Before(d.pausedUntil) {
		return nil
	}
	f := &lookup{done: make(chan struct{})}
	d.lookups[c] = f
	go d.look(c, f, d.epoch)
	return f
}

// look asks the source.
func (d *onDemand) look(c customer, f *lookup, epoch int) {
	defer close(f.done)
	ctx, stop := context.WithTimeout(context.Background(), askWithin)
	defer stop()
	for {
		o, err := d.source.FindOverride(ctx, c[0], c[1])
		d.mu.Lock()
		if err == nil && f.changed && ctx.Err() == nil {
			f.changed = false
			d.mu.Unlock()
			continue
		}
		delete(d.lookups, c)
		if err != nil {
			d.pausedUntil = time.Now().Add(askAgain)
		} else if epoch == d.epoch {
			d.put(&o)
			d.know(c)
		}
		d.mu.Unlock()
		return
	}
}

// known reports whether the source has answered for a customer. The caller holds the lock.
func (d *onDemand) known(c customer) bool {
	for _, generation := range []map[customer]struct{}{d.young, d.old, d.leaving} {
		if _, there := generation[c]; there {
			return true
		}
	}
	return false
}

// concerns reports whether a customer's change must be passed to changed. A customer that is not
// known needs none, since a later lookup returns the new state.
func (d *onDemand) concerns(c customer) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.lookups[c] != nil || d.known(c)
}

// know remembers a customer. When there are too many, those that have not come for longest are
// forgotten. The caller holds the lock.
func (d *onDemand) know(c customer) {
	delete(d.old, c)
	delete(d.leaving, c)
	d.young[c] = struct{}{}
	few := 2 // more than are added
	for gone := range d.leaving {
		delete(d.leaving, gone)
		d.put(&rulesource.Override{Rule: gone[0], Key: gone[1], Removed: true})
		if few--; few == 0 {
			break
		}
	}
	if len(d.young) >= mostHeld && len(d.leaving) == 0 {
		d.young, d.old, d.leaving = make(map[customer]struct{}), d.young, d.old
	}
}

// changed puts a change in force if the customer is known.
func (d *onDemand) changed(o *rulesource.Override) {
	c := customer{o.Rule, o.Key}
	d.mu.Lock()
	defer d.mu.Unlock()
	if f := d.lookups[c]; f != nil {
		f.changed = true
	}
	if d.known(c) {
		d.put(o)
	}
}

// forget forgets everything after the caller has removed all overrides.
func (d *onDemand) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.epoch++
	d.young, d.old, d.leaving = make(map[customer]struct{}), make(map[customer]struct{}), make(map[customer]struct{})
}

// askFor starts or stops reading overrides on demand, as the rules say, and passes on the changes.
func (w *Follower) askFor(r *receiving) {
	p := w.source.Policy()
	switch {
	case !r.onDemand:
		if w.demand != nil {
			p.BeforeLookup(nil)
			w.demand = nil
		}
		return
	case w.demand == nil:
		w.demand = newOnDemand(w.f.Source.(rulesource.OverrideFinder), w.putAsked) // Begin has checked the type
		p.BeforeLookup(w.demand.fetch)
	case r.set != nil:
		w.demand.forget()
	}
	for i := range r.requested {
		w.demand.changed(&r.requested[i])
	}
}

// putAsked puts the override of one customer in force, with its ending.
func (w *Follower) putAsked(o *rulesource.Override) {
	own, err := parseOverride(o)
	if err != nil {
		w.f.Log.Error("rules: an override cannot be in force", "rule", o.Rule, "err", err)
		return
	}
	w.expiry.change(func(ends *endings) {
		ends.note(customer{o.Rule, o.Key}, o.Expires)
		if err := w.source.Policy().ChangeOverride(o.Rule, o.Key, own); err != nil {
			w.f.Log.Error("rules: an override cannot be in force", "rule", o.Rule, "err", err)
		}
	})
}
