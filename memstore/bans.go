package memstore

import (
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/satmath"
	"github.com/stint-dev/stint/meter"
)

// A ban of a key is a bucket of one token, "every 1h", that a denial empties: the key is
// banned until it is full again. The bans of an account have an account of their own, so
// that a limit without a ban knows nothing of them, and theirs are forgotten, counted,
// numbered and saved as other states are. Limits of one identity share them, and each ban
// keeps its own length. A view with such a limit leaves the fast paths to others. A key for
// whose ban there is no room is not banned: it would share a cell, and bring a ban on
// strangers.

// ban returns what a ban of that length is under the limits of an account. The store's
// lock is held.
func (s *Store) ban(a *account, length time.Duration) *limit {
	given := stint.Every(length)
	m, _ := given.Meter() // it is within meter.MaxBan
	return s.banOf(a.name.text, a.label[len(a.name.text)+len(apart):], given, m)
}

// banOf is ban for the limits of an ID.
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

// knowBans makes an account and that of its bans, if there is one, known to each other.
// The store's lock is held.
func (s *Store) knowBans(a *account) {
	if of := s.accounts[a.name.text+apart+a.label[len(a.name.text):]]; of != nil {
		of.under = a
		a.bans.Store(of)
	}
}

// bansUnder returns the bans of the limits that are known, if these are bans.
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

// banned returns how long the key is banned under the part's limit yet, whoever banned it.
// A ban that lies further ahead than it is long was begun by a clock that jumped.
func (p *part) banned(now int64) time.Duration {
	t := p.limit.ban.account.tables[p.sh.index]
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

// begin has a denial begin a ban, unless one lasts.
func (p *part) begin(s *Store, now int64) {
	if p.banned(now) > 0 {
		return
	}
	ban := p.limit.ban
	t := p.sh.table(ban.account)
	slot := t.find(p.hash)
	if slot == nil {
		if !p.sh.roomFor(s, t, now) {
			return
		}
		t = p.sh.table(ban.account)
		slot = t.insert(p.sh, p.hash, now)
	}
	slot[0] = uint64(max(now, 0)) + uint64(ban.given.Period())
	if t.numbered {
		slot[t.width-1] = ban.number
	}
}

// during makes what the state answers that of a key which may be banned.
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
