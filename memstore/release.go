package memstore

import "runtime"

// A limit is known as long as somebody can still ask about it, or a key still
// counts under it: what Bind returns holds its limits, as a reservation does,
// until the garbage collector finds that nobody can reach it. A limit that is
// not held is released once its keys are as if never seen, by the next calls
// of Bind, Stats or Save that look at it; its key that comes later is as
// unseen as before, so nobody can tell.

// hold makes b hold its limits until b is garbage.
func (s *Store) hold(b *bound) {
	for _, l := range b.limits {
		l.holders.Add(1)
	}
	runtime.AddCleanup(b, letGo, b.limits)
}

func letGo(limits []*limit) {
	for _, l := range limits {
		l.holders.Add(-1)
	}
}

// releaseSome looks at the next so many limits, in turn, for those to release.
// The store's lock is held: nobody binds meanwhile.
func (s *Store) releaseSome(n int) {
	now := s.clock.now()
	for ; n > 0 && len(s.limits) > 0; n-- {
		if s.turn >= len(s.limits) {
			s.turn = 0
		}
		if l := s.limits[s.turn]; l.holders.Load() > 0 || !s.unused(l, now) {
			s.turn++
			continue
		}
		delete(s.byName, s.limits[s.turn].name)
		last := len(s.limits) - 1
		s.limits[s.turn] = s.limits[last]
		s.limits[last] = nil
		s.limits = s.limits[:last]
	}
}

// unused reports whether a limit that is not held has no key left that counts.
// It forgets those that do not, at most once a linger: there may be many.
func (s *Store) unused(l *limit, now int64) bool {
	if l.live.Load() > 0 && (l.looked == 0 || now-l.looked >= linger) {
		l.looked = max(now, 1)
		for i := range s.shards {
			s.shards[i].clear(s, l, now)
		}
	}
	return l.live.Load() == 0
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
			t.rebuild(sh, &t.segments[i], at+linger) // without it: nobody is about to ask
		}
	}
	if t.cells != nil {
		sh.dropIdleCells(t, at)
	}
	if t.keys == 0 && t.cells == nil {
		sh.drop(t)
	}
}
