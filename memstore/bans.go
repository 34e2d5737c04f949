package memstore

import (
	"context"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/satmath"
	"github.com/stint-dev/stint/meter"
)

// A ban of a key is a bucket of one token, "every 1h", that a denial empties: the key is
// banned until it is full again. The bans of an account's keys are in an account of their
// own, so that limits without a ban pay nothing, and bans are forgotten, counted and saved as
// other states are. Limits of one identity share their bans, and each ban keeps its own
// length. Views with a limit that bans do not take the fast paths. If a full store has no
// slot for a ban, the key is not banned: in a shared cell, it would ban strangers too.

// ban returns the limit whose state is a ban of that length, for the limits of an account.
// The store's lock is held.
func (s *Store) ban(a *account, length time.Duration) *limit {
	given := stint.Every(length)
	m, _ := given.Meter() // it is within meter.MaxBan
	return s.banOf(a.name.text, a.label[len(a.name.text)+len(apart):], given, m)
}

// banOf is ban for the limits of an ID, whose account need not be known yet.
func (s *Store) banOf(text, id string, given stint.Limit, m *meter.Meter) *limit {
	label := text + apart + apart + id
	of := s.accounts[label]
	if of == nil {
		of = s.open(text, label)
		of.banned = id
		if a := s.accounts[text+apart+id]; a != nil {
			s.knowBans(a)
		}
	}
	if l := of.find(given); l != nil {
		return l
	}
	l := &limit{account: of, given: given, meter: m}
	s.add(of, l)
	return l
}

// knowBans links an account with the account of its bans, if there is one.
// The store's lock is held.
func (s *Store) knowBans(a *account) {
	if of := s.accounts[a.name.text+apart+a.label[len(a.name.text):]]; of != nil {
		of.under = a
		a.bans.Store(of)
	}
}

// bansUnder returns, for an account of bans, those that a known limit may begin.
func (a *account) bansUnder() map[*limit]bool {
	if a.under == nil {
		return nil
	}
	all := make(map[*limit]bool)
	for _, l := range *a.under.limits.Load() {
		if l != nil && l.ban != nil {
			all[l.ban] = true
		}
	}
	return all
}

// banned returns how long the key is still banned under the part's limit, or under another
// of its identity. A ban that ends later than its own length from now was begun by a clock
// that has jumped back: it is cut to its length.
func (p *part) banned(now int64) time.Duration {
	t := p.limit.ban.account.in(p.sh.index)
	if t == nil {
		return 0
	}
	slot := t.find(p.hash)
	if slot == nil {
		return 0
	}
	at := uint64(max(now, 0))
	slot[0] = min(slot[0], at+uint64(t.drain(slot).Spec().Period))
	return time.Duration(satmath.Sub(slot[0], at))
}

// begin begins a ban after a denial, unless the key is banned already.
func (p *part) begin(s *Store, now int64) {
	if p.banned(now) > 0 {
		return
	}
	p.ban(s, now, p.limit.ban, p.limit.ban.given.Period())
}

// ban bans the key for a time that is at most the length of ban. It reports whether the store
// had a slot for that.
func (p *part) ban(s *Store, now int64, ban *limit, d time.Duration) bool {
	t := p.sh.table(ban.account)
	slot := t.find(p.hash)
	if slot == nil {
		if !p.sh.roomFor(s, t, now) {
			return false
		}
		t = p.sh.table(ban.account)
		slot = t.insert(p.sh, p.hash, now)
	}
	slot[0] = uint64(max(now, 0)) + uint64(d)
	if t.numbered {
		slot[t.width-1] = ban.number
	}
	return true
}

// Block implements [stint.BlockStore].
func (s *Store) Block(_ context.Context, layers []stint.Layer, d time.Duration) error {
	if s.closed.Load() {
		return stint.ErrClosed
	}
	parts, err := s.parts(nil, layers)
	if err != nil {
		return err
	}
	parts = slices.DeleteFunc(parts, func(p part) bool { return p.limit.ban == nil })
	s.mu.Lock() // until the bans are written, their limits must not be released
	defer s.mu.Unlock()
	bans := make([]*limit, len(parts))
	for i := range parts {
		bans[i] = parts[i].limit.ban
		if d > bans[i].given.Period() { // powers of two, so that these limits are few
			bans[i] = s.ban(parts[i].limit.account, 1<<bits.Len64(uint64(d-1)))
		}
	}
	defer s.watchers.roomMade(parts)
	now := s.lock(parts)
	defer s.unlock(parts)
	for i := range parts {
		p := &parts[i]
		if t := bans[i].account.in(p.sh.index); d == 0 && t != nil {
			t.delete(p.sh, p.hash)
		} else if p.banned(now) < d && !p.ban(s, now, bans[i], d) {
			return fmt.Errorf("%w: no room for a ban", stint.ErrFull)
		}
	}
	return nil
}

// during corrects the answer of the state for a ban, if the key is banned.
func (p *part) during(d *stint.Decision, now int64) {
	left := p.banned(now)
	if left == 0 {
		return
	}
	d.Remaining, d.ResetAfter = 0, max(d.ResetAfter, left)
	if d.Banned = !d.Allowed; d.Banned && d.RetryAfter != stint.Never {
		d.RetryAfter = max(d.RetryAfter, stint.Wait(left))
	}
}
