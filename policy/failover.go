package policy

import "github.com/stint-dev/stint/fallback"

// While the store fails, what the local one lets through is owed, and charged
// to the store limit by limit once it answers again; see package fallback.

// pairOf returns a hit's limits in both stores.
func (p *Policy) pairOf(h *hit) *fallback.Pair {
	if g := h.plan.given; g != nil {
		return g.pair
	}
	return p.pairs[h.plan.id]
}

// local reports whether what a hit takes is for the local store too.
func (h *hit) local() bool {
	return h.enforced() && h.rule.failure == FailLocal && h.cost > 0 && h.part == partTake
}

// warm charges the local store with what the main one has let through.
func (p *Policy) warm(r *Result) {
	for i := range r.hits {
		if h := &r.hits[i]; h.local() {
			p.pairOf(h).Warm(h.key, h.cost)
		}
	}
}

// owe notes what the local store has let through because the store failed, and
// why.
func (p *Policy) owe(r *Result, why error) {
	for i := range r.hits {
		if h := &r.hits[i]; h.local() {
			p.pairOf(h).Owe(why, h.key, h.cost)
		}
	}
}

// Debts returns how many keys, each under one limit, owe the store something
// because they passed while it failed, how many units have been charged to it
// afterwards, and how many were not remembered.
func (p *Policy) Debts() (owing int, posted, forgiven uint64) {
	s := p.failover.Stats()
	return s.Owing, s.Posted, s.Forgiven
}

// Close forgets what is owed to the store, for this policy and for all that
// were made of it by [Policy.Reload], and waits for the goroutine that posts it.
// The stores stay open, and the policies good. It may be called again.
func (p *Policy) Close() { p.failover.Close() }
