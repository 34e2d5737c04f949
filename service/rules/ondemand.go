package rules

import (
	"context"
	"sync"
	"time"

	"github.com/stint-dev/stint/rulesource"
)

const (
	// mostHeld is how many customers a node that asks for overrides remembers at
	// least, those without any included; it remembers up to three times as many.
	mostHeld = 1 << 17
	// lookupWait is how long a request waits for its customer's override. The rule's
	// own limits hold then, and the answer is for the next request.
	lookupWait = 20 * time.Millisecond
	// askWithin is how long the source may take.
	askWithin = 2 * time.Second
	// mostAsks is how many customers are asked for at once.
	mostAsks = 64
	// askAgain is how long nothing is asked for after a failure.
	askAgain = time.Second
)

type customer = [2]string // rule and key

// An onDemand asks a source for overrides as customers come. What it has
// answered stays known until the source says that it has changed, or until
// others took its place: also while the source is gone.
type onDemand struct {
	source rulesource.OverrideFinder
	put    func(o *rulesource.Override) // puts an override in force, or takes it away

	mu          sync.RWMutex
	young       map[customer]struct{} // known, asked for lately
	old         map[customer]struct{} // known before
	leaving     map[customer]struct{} // known before that: a few are forgotten at a time
	lookups     map[customer]*lookup
	pausedUntil time.Time // nothing is asked before
	epoch       int       // counts forgetting
}

// A lookup is a question on its way.
type lookup struct {
	done    chan struct{}
	changed bool // the source has said so meanwhile: the answer may be older
}

func newOnDemand(source rulesource.OverrideFinder, put func(o *rulesource.Override)) *onDemand {
	return &onDemand{source: source, put: put, young: make(map[customer]struct{}), old: make(map[customer]struct{}), leaving: make(map[customer]struct{}), lookups: make(map[customer]*lookup)}
}

// fetch makes a customer's override known, or gives up after a moment.
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

// begin returns the question for a customer that is on its way, or begins one;
// nil if there is nothing to wait for.
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

// known reports whether the source has answered for a customer. The caller has
// the lock.
func (d *onDemand) known(c customer) bool {
	for _, generation := range []map[customer]struct{}{d.young, d.old, d.leaving} {
		if _, there := generation[c]; there {
			return true
		}
	}
	return false
}

// concerns reports whether a change of a customer is to be handed to changed. Whoever is
// asked for later has the change in the answer.
func (d *onDemand) concerns(c customer) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.lookups[c] != nil || d.known(c)
}

// know remembers a customer. When there are too many, those that did not come
// lately are forgotten. The caller has the lock.
func (d *onDemand) know(c customer) {
	delete(d.old, c)
	delete(d.leaving, c)
	d.young[c] = struct{}{}
	few := 2 // more than come
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

// changed puts what the source says has changed in force, if its customer is
// known.
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

// forget forgets everything: the caller has taken all overrides away.
func (d *onDemand) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.epoch++
	d.young, d.old, d.leaving = make(map[customer]struct{}), make(map[customer]struct{}), make(map[customer]struct{})
}

// askFor begins or ends asking for overrides one by one, as the rules say, and
// hands on which have changed.
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
		w.demand = newOnDemand(w.f.Source.(rulesource.OverrideFinder), w.putAsked) // Begin has seen that it is one
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
