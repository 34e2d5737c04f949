package memstore

import (
	"fmt"
	"slices"
	"sync/atomic"
	"weak"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// An account is the state of all keys under one name and one identity of a limit
// ([stint.Limit.ID]), in every shard. Limits of that identity share it, whatever
// their count and burst are.
type account struct {
	name   *name
	label  string                   // the name and the ID
	limits atomic.Pointer[[]*limit] // by number; nil where one was released
	known  map[stint.Limit]*limit   // the same, where there are many; under the store's lock
	free   []uint64                 // numbers below the greatest that no limit has; likewise
	turns  int                      // of releaseSome since tidy; likewise
	shape  atomic.Pointer[shape]    // of its tables
	tables [mostShards]*table       // each under its shard's lock; nil where no key is
	live   atomic.Int32             // how many tables there are
	looked int64                    // when release last looked for what is idle

	bans   atomic.Pointer[account] // of its keys; nil where it never had a ban
	banned string                  // of bans: the ID of the limits that they are under
	under  *account                // of bans: those limits, as far as they are known
}

// A limit is one that decides on an account.
type limit struct {
	account *account
	number  uint64 // what a slot says whose state drains by its numbers; from 1
	given   stint.Limit
	meter   *meter.Meter
	ban     *limit       // what a ban under it is, nil for none; see bans.go
	holders atomic.Int32 // see pin
}

// A name is what limits are bound under.
type name struct {
	text     string
	accounts []*account            // under the store's lock
	bounds   []weak.Pointer[bound] // those that were bound, for Exchange
}

// apart is between a name and an ID, neither of which has control characters.
const apart = "\x00"

// of returns the limit of a number, nil for 0.
func (a *account) of(number uint64) *limit {
	if number == 0 {
		return nil
	}
	return (*a.limits.Load())[number-1]
}

// all returns the limits.
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
	l := &limit{account: a, given: given, meter: m}
	if given.Ban() > 0 {
		l.ban = s.ban(a, given.Ban())
	}
	s.add(a, l)
	return l
}

// manyLimits is from how many an account has a map of them.
const manyLimits = 16

// count returns how many limits there are, and find one of them. The store's lock is held.
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

// add makes a limit of an account known. The store's lock is held; those who read the
// limits meanwhile do not look behind the last that they know.
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

// An account is known as long as one of its limits is held or a key counts under it,
// and a limit of it as long as it is held or a state has its numbers. A Bound holds its
// limits, and so does a reservation, until the garbage collector finds them unreachable.
// A key of an account that is released is as if never seen, so that releasing changes
// no answer. Bind, Stats and Save look for what may be released.

// limitsInTurn is how many limits of an account are looked through for each of its turns,
// so that binding takes as long however many there are.
const limitsInTurn = 64

// releaseSome looks at the next n accounts, in turn, and releases what it can, of one with
// many limits only now and then unless all are asked for. The store's lock is held, so no
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
	used := make(map[uint64]bool)
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
	if len(next) > 0 {
		s.renumber(a)
	}
}

// clear forgets the idle keys of an account in the shard, and its table if none is
// left, and notes whose numbers are used.
func (sh *shard) clear(s *Store, a *account, now int64, used map[uint64]bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	t := a.tables[sh.index]
	if t == nil {
		return
	}
	at := s.at(t, sh.tick(now))
	for i := range t.segments {
		if t.segments[i].used > 0 {
			t.rebuild(sh, &t.segments[i], at+linger) // without linger: they are not in use
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
