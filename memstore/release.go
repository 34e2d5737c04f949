package memstore

// A form stays as long as it is held or keys count under it. A Bound holds its
// form, and so does a reservation, until the garbage collector finds them
// unreachable. A form that is not held is released once its keys are as if never
// seen: a key that comes later is unseen too, so releasing changes no answer. Keys
// that go on under another form keep it busy: then it is released as a whole, once
// what it has decided itself no longer counts.
//
// Bind, Stats and Save look for forms to release.

// releaseSome looks at the next n forms, in turn, and releases those that it can.
// The store's lock is held, so no Bind runs meanwhile.
func (s *Store) releaseSome(n int) {
	now := s.clock.now()
	for ; n > 0 && len(s.list) > 0; n-- {
		if s.releaseNext >= len(s.list) {
			s.releaseNext = 0
		}
		f := s.list[s.releaseNext]
		if f.holders.Load() > 0 {
			f.since = 0
			s.releaseNext++
			continue
		}
		if f.since == 0 {
			f.since = max(now, 1)
		}
		if now < f.stays || !s.unused(f, now) {
			s.releaseNext++
			continue
		}
		s.release(f)
		last := len(s.list) - 1
		s.list[s.releaseNext] = s.list[last]
		s.list[last] = nil
		s.list = s.list[:last]
	}
}

// unused reports whether a form that is not held has no key left that counts.
// It forgets those that do not, at most once a linger: there may be many.
func (s *Store) unused(f *form, now int64) bool {
	if f.live() && now-f.since > f.longest() {
		for i := range s.shards {
			s.shards[i].dropForm(f)
		}
	}
	if f.live() && (f.looked == 0 || now-f.looked >= linger) {
		f.looked = max(now, 1)
		for i := range s.shards {
			for _, l := range f.limits {
				s.shards[i].clear(s, l, now)
			}
		}
	}
	return !f.live()
}

// live reports whether any shard has a table of the form.
func (f *form) live() bool {
	for _, l := range f.limits {
		if l.live.Load() > 0 {
			return true
		}
	}
	return false
}

// longest returns the time after which nothing counts that the form decided.
func (f *form) longest() (most int64) {
	for _, l := range f.limits {
		most = max(most, int64(l.meter.Longest()))
	}
	return most
}

// release releases a form without keys, but keeps its place in the list.
func (s *Store) release(f *form) {
	n := f.name
	delete(s.forms, f.key)
	for i, other := range n.forms {
		if other == f {
			last := len(n.forms) - 1
			n.forms[i], n.forms[last] = n.forms[last], nil
			n.forms = n.forms[:last]
			break
		}
	}
	if n.families.Load() != nil {
		for i := range s.shards {
			s.shards[i].dropForm(f)
		}
	}
	switch len(n.forms) {
	case 0:
		delete(s.names, n.text)
	case 1:
		s.becomeOne(n)
	}
}

// clear forgets the idle keys of a limit in the shard, and its table if none
// is left.
func (sh *shard) clear(s *Store, l *limit, now int64) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	t := l.tables[sh.index]
	if t == nil {
		return
	}
	at := s.at(t, sh.tick(now))
	for i := range t.segments {
		if t.segments[i].used > 0 {
			t.rebuild(sh, &t.segments[i], at+linger) // without linger: the limit is not in use
		}
	}
	if t.cells != nil {
		sh.dropIdleCells(t, at)
	}
	if t.keys == 0 && t.cells == nil {
		sh.drop(t)
	}
}
