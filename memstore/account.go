package memstore

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// An account is the state of all keys under one name and one identity of a limit
// ([stint.Limit.ID]), in every shard. Limits of that identity share it, whatever
// their count and burst are.
type account struct {
	name   *name
	label  string                   // the name and the ID
	limits atomic.Pointer[[]*limit] // the limit of number n is at n-1; nil where it was released
	known  map[stint.Limit]*limit   // the same limits, once there are manyLimits; under the store's lock
	free   []uint64                 // numbers of released limits, to be used again; under the store's lock
	turns  int                      // calls of releaseSome since the last tidy; under the store's lock
	shape  atomic.Pointer[shape]    // the shape of its tables
	tables atomic.Pointer[tables]   // nil before the first key
	live   atomic.Int32             // how many tables there are
	looked int64                    // when tidy last looked for idle keys

	bans   atomic.Pointer[account] // the account of its keys' bans; nil if it never had a ban
	banned string                  // in an account of bans: the ID of the limits that ban
	under  *account                // in an account of bans: the account of those limits, if known
}

// tables are those of an account by shard, each under its shard's lock; nil where no key is.
type tables [mostShards]*table

// in returns the table of a shard, whose lock is held; nil where no key is.
func (a *account) in(shard int) *table {
	if all := a.tables.Load(); all != nil {
		return all[shard]
	}
	return nil
}

// A limit is one of the limits that decide on the keys of an account.
type limit struct {
	account *account
	number  uint64 // stands in the slots whose state drains by this limit's parameters; from 1
	given   stint.Limit
	meter   *meter.Meter
	ban     *limit       // the limit whose state a ban is, nil without bans; see bans.go
	holders atomic.Int32 // the bounds and reservations that keep it from being released
	bounds  []listed     // the bounds that hold it first, for Exchange; under the store's lock
}

// A name is the name that limits are bound under.
type name struct {
	text     string
	accounts []*account // under the store's lock
	known    int        // how many limits these have; under the store's lock
}

// apart separates a name from an ID in a label: neither has control characters.
const apart = "\x00"

// of returns the limit of a number, nil for 0.
func (a *account) of(number uint64) *limit {
	if number == 0 {
		return nil
	}
	return (*a.limits.Load())[number-1]
}

// all returns the limits that were not released.
func (a *account) all() []*limit {
	return slices.DeleteFunc(slices.Clone(*a.limits.Load()), func(l *limit) bool { return l == nil })
}

// limit returns the limit of a name with these parameters, and makes it known if it
// is not. The store's lock is held.
func (s *Store) limit(text string, given stint.Limit, m *meter.Meter) *limit {
	label := text + apart + given.ID()
	a := s.accounts[label]
	if a == nil {
		a = s.open(text, label)
	}
	if l := a.find(given); l != nil {
		return l
	}
	l := &limit{account: a, given: given, meter: s.shared(given, m)}
	if given.Ban() > 0 {
		l.ban = s.ban(a, given.Ban())
	}
	s.add(a, l)
	return l
}

// mostShared is how many meters are kept for equal limits of other names.
const mostShared = 64

// shared returns the meter that equal limits share. The store's lock is held.
func (s *Store) shared(given stint.Limit, m *meter.Meter) *meter.Meter {
	if known := s.equal[given]; known != nil {
		return known
	}
	if s.equal == nil || len(s.equal) == mostShared {
		s.equal = make(map[stint.Limit]*meter.Meter)
	}
	s.equal[given] = m
	return m
}

// manyLimits is how many limits an account searches one by one; with more, it has a map.
const manyLimits = 16

// count returns how many limits the account has. The store's lock is held.
func (a *account) count() int { return len(*a.limits.Load()) - len(a.free) }

func (a *account) find(given stint.Limit) *limit {
	if a.known != nil {
		return a.known[given]
	}
	for _, l := range *a.limits.Load() {
		if l != nil && l.given == given {
			return l
		}
	}
	return nil
}

// add makes a limit of an account known. The store's lock is held. Decisions read the limits
// without it: append is safe, since they never read beyond the length that they loaded.
func (s *Store) add(a *account, l *limit) {
	next := *a.limits.Load()
	if last := len(a.free) - 1; last >= 0 {
		l.number, a.free, next = a.free[last], a.free[:last], slices.Clone(next)
		next[l.number-1] = l
	} else {
		next = append(next, l)
		l.number = uint64(len(next))
	}
	a.limits.Store(&next)
	a.name.known++
	if a.known != nil {
		a.known[l.given] = l
	} else if a.count() > manyLimits {
		a.known = make(map[stint.Limit]*limit)
		for _, l := range a.all() {
			a.known[l.given] = l
		}
	}
	if of := a.shape.Load(); of == nil || l.meter.Drains() && (!of.numbered || of.words <= l.meter.Words()) {
		s.renumber(a)
	}
}

// open makes an account. The store's lock is held.
func (s *Store) open(text, label string) *account {
	n := s.names[text]
	if n == nil {
		n = &name{text: text}
		s.names[text] = n
	}
	a := &account{name: n, label: label}
	n.accounts = append(n.accounts, a)
	a.limits.Store(new([]*limit))
	s.accounts[label] = a
	s.list = append(s.list, a)
	s.knowBans(a)
	return a
}

// limits makes all limits of a list known under a name. The store's lock is held.
func (s *Store) limits(text string, given []stint.Limit, meters []*meter.Meter) []*limit {
	all := make([]*limit, len(given))
	for i, m := range meters {
		all[i] = s.limit(text, given[i], m)
	}
	return all
}

// meters makes limits ready to decide, or says why they cannot be held.
func (s *Store) meters(limits []stint.Limit) ([]*meter.Meter, error) {
	meters := make([]*meter.Meter, len(limits))
	for i, l := range limits {
		var err error
		if meters[i], err = l.Meter(); err != nil {
			return nil, err
		}
		if l.Algorithm().KeepsLog() && l.Count() > s.maxLog {
			return nil, fmt.Errorf("stint: limit %q: a log of %d is more than the %d that this store keeps (Options.MaxLog): sliding_buckets needs far less",
				l.Name(), l.Count(), s.maxLog)
		}
	}
	return meters, nil
}

// Bind, Stats and Save release what no decision needs any more. A limit is needed while a
// Bound or a reservation holds it, or a state drains by its parameters; a Bound lets go when
// the garbage collector finds it unreachable. An account is needed while it has a limit, or
// a key that is not as if never seen: so releasing changes no answer.

// limitsInTurn is how many limits an account may have for each turn that it waits for tidy,
// so that the price of a Bind does not grow with the number of limits.
const limitsInTurn = 64

// releaseSome looks at the next n accounts, in turn, and releases what it can. Unless all is
// set, it skips an account with many limits in most turns. The store's lock is held, so no
// Bind runs meanwhile.
func (s *Store) releaseSome(n int, all bool) {
	now := s.clock.now()
	for ; n > 0 && len(s.list) > 0; n-- {
		if s.releaseNext >= len(s.list) {
			s.releaseNext = 0
		}
		a := s.list[s.releaseNext]
		most := len(*a.limits.Load())
		if a.under != nil { // tidy looks through both
			most = max(most, len(*a.under.limits.Load()))
		}
		if a.turns++; all || a.turns*limitsInTurn >= most {
			a.turns = 0
			s.tidy(a, now)
		}
		if a.count() > 0 || a.live.Load() > 0 {
			s.releaseNext++
			continue
		}
		delete(s.accounts, a.label)
		n := a.name
		i := slices.Index(n.accounts, a)
		if n.accounts = slices.Delete(n.accounts, i, i+1); len(n.accounts) == 0 {
			delete(s.names, n.text)
		}
		last := len(s.list) - 1
		s.list[s.releaseNext], s.list[last] = s.list[last], nil
		s.list = s.list[:last]
	}
}

// tidy releases the limits of an account that are not held and that no state needs.
// It forgets idle keys for that, at most once a linger: there may be many.
func (s *Store) tidy(a *account, now int64) {
	begun := a.bansUnder()
	free := func(l *limit) bool { return l != nil && l.holders.Load() == 0 && !begun[l] }
	if !slices.ContainsFunc(*a.limits.Load(), free) {
		return
	}
	was, used := a.count(), make(map[uint64]bool)
	if a.live.Load() > 0 {
		if a.looked != 0 && now-a.looked < linger {
			return
		}
		a.looked = max(now, 1)
		for i := range s.shards {
			s.shards[i].clear(s, a, now, used)
		}
	}
	var next []*limit
	for i, l := range *a.limits.Load() {
		if free(l) && !used[l.number] {
			delete(a.known, l.given)
			l = nil
		}
		if l != nil {
			next = append(append(next, make([]*limit, i-len(next))...), l)
		}
	}
	a.limits.Store(&next)
	a.free = a.free[:0]
	for i, l := range slices.Backward(next) { // the least is given first
		if l == nil {
			a.free = append(a.free, uint64(i+1))
		}
	}
	a.name.known += a.count() - was
	if len(next) > 0 {
		s.renumber(a)
	}
}

// clear forgets the idle keys of an account in the shard, and its table if no key is
// left. It adds to used the numbers of the limits that the other states drain by.
func (sh *shard) clear(s *Store, a *account, now int64, used map[uint64]bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	t := a.in(sh.index)
	if t == nil {
		return
	}
	at := s.at(t, sh.tick(now))
	for i := range t.segments {
		if t.segments[i].used > 0 {
			t.rebuild(sh, &t.segments[i], at+linger) // idle keys go at once: nobody uses the limit
		}
		for _, slot := range t.slots(t.segments[i]) {
			used[t.number(slot)] = true
		}
	}
	if t.cells != nil {
		sh.dropIdleCells(t, at)
	}
	if t.cells != nil {
		for i := range s.cells {
			used[t.number(t.cellAt(i))] = true
		}
	}
	if t.keys == 0 && t.cells == nil {
		sh.drop(t)
	} else if !t.numbered {
		used[a.numberOf(t.meter)] = true
	}
}
