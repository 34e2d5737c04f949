package memstore

import (
	"encoding/binary"
	"slices"
)

// Each form of a name has tables of its own, and keys that one form alone has
// decided about are in those and nowhere else. When another form meets such a
// key, it starts with the units in use there, and from then on every charge of
// the key counts under both, each by its own rule; the form in force decides.
// A key that lives in several forms stands in the family, with the list of them: the
// one that decided last at the end. A form of the list that has no slot for the
// key has nothing left to count. Once none of them counts anything, the key is
// as if never seen, and the list goes.
//
// Names of one form have no family, and their tables say so: one look at a bool.

// mostForms is how many forms count what one key does. Of more, the one that is
// idle soonest goes, and what it has in use is retained.
const mostForms = 4

// A family is what a shard knows of the keys of a name of several forms. The shard's
// lock guards it.
type family struct {
	forms       map[*form]struct{} // that have a table here
	keys        map[uint64]met
	retained    map[uint64][]retained // what forms had in use that a key has no more
	lists       []formList
	free        []uint32          // of lists
	byID        map[string]uint32 // of lists
	generations uint32
	all         bool  // keys has all there are, also those of one form
	swept       int64 // when keys was looked through last
	sweepAt     int   // how many keys make it worth while again
}

// met is which forms a key has met, and when that changed last.
type met struct{ list, generation uint32 }

// A formList is shared by all keys that met the same forms in the same order.
type formList struct {
	forms []*form // the last is that which decided last; never changed in place
	keys  int
}

const (
	fewForms   = 8 // of more in one shard, every key is in the family: none is sought in all tables
	leastSwept = 64
)

func newFamily() *family {
	return &family{forms: make(map[*form]struct{}), keys: make(map[uint64]met), byID: make(map[string]uint32), sweepAt: leastSwept}
}

// family returns that of a name, or nil while it has one form.
func (sh *shard) family(n *name) *family {
	families := n.families.Load()
	if families == nil {
		return nil
	}
	return families[sh.index]
}

// becomeSeveral makes families for a name that has a second form. The store's lock is
// held.
func (s *Store) becomeSeveral(n *name) {
	families := new([mostShards]*family)
	for i := range s.shards {
		families[i] = newFamily()
	}
	n.families.Store(families)
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		for _, f := range n.forms {
			f.tablesIn(sh, func(t *table) {
				t.several = true
				families[i].entered(sh, f)
			})
		}
		sh.mu.Unlock()
	}
}

// becomeOne forgets the families where one form is left. The store's lock is held.
func (s *Store) becomeOne(n *name) {
	families := n.families.Load()
	if families == nil {
		return
	}
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		n.forms[0].tablesIn(sh, func(t *table) { t.several = false })
		families[i] = newFamily()
		sh.mu.Unlock()
	}
	n.families.Store(nil)
}

// tablesIn does something with each table of the form that a shard has.
func (f *form) tablesIn(sh *shard, do func(t *table)) {
	for _, l := range f.limits {
		if t := l.tables[sh.index]; t != nil {
			do(t)
		}
	}
}

// entered notes that a form has a table.
func (k *family) entered(sh *shard, f *form) {
	k.forms[f] = struct{}{}
	if !k.all && len(k.forms) > fewForms {
		k.all = true
		for g := range k.forms {
			k.index(sh, g)
		}
	}
}

// index makes the keys of a form known.
func (k *family) index(sh *shard, f *form) {
	f.tablesIn(sh, func(t *table) {
		for i := range t.segments {
			for h := range t.slots(t.segments[i]) {
				if _, known := k.keys[h]; !known {
					k.put(h, []*form{f})
				}
			}
		}
	})
}

// left notes that a form has one table less.
func (k *family) left(sh *shard, f *form) {
	any := false
	f.tablesIn(sh, func(*table) { any = true })
	if !any {
		delete(k.forms, f)
	}
}

// put says which forms a key has met.
func (k *family) put(h uint64, forms []*form) {
	id := make([]byte, 0, 4*mostForms)
	for _, f := range forms {
		id = binary.LittleEndian.AppendUint32(id, f.number)
	}
	at, ok := k.byID[string(id)]
	switch {
	case ok:
	case len(k.free) > 0:
		at = k.free[len(k.free)-1]
		k.free = k.free[:len(k.free)-1]
	default:
		at = uint32(len(k.lists))
		k.lists = append(k.lists, formList{})
	}
	if !ok {
		k.byID[string(id)] = at
		k.lists[at] = formList{forms: forms}
	}
	k.lists[at].keys++
	k.generations++
	k.remove(h)
	k.keys[h] = met{at, max(k.generations, 1)}
}

// remove forgets which forms a key has met.
func (k *family) remove(h uint64) {
	m, ok := k.keys[h]
	if !ok {
		return
	}
	delete(k.keys, h)
	l := &k.lists[m.list]
	if l.keys--; l.keys > 0 {
		return
	}
	id := make([]byte, 0, 4*mostForms)
	for _, f := range l.forms {
		id = binary.LittleEndian.AppendUint32(id, f.number)
	}
	if k.byID[string(id)] == m.list {
		delete(k.byID, string(id))
	}
	*l = formList{}
	k.free = append(k.free, m.list)
}

// met returns the forms that a key has met, if it is known.
func (k *family) met(h uint64) []*form {
	if m, ok := k.keys[h]; ok {
		return k.lists[m.list].forms
	}
	return nil
}

// known returns the forms that a key has to do with, idle or not.
func (sh *shard) known(k *family, h uint64) []*form {
	if forms := k.met(h); forms != nil || k.all {
		return forms
	}
	for g := range k.forms {
		if g.has(sh, h) {
			return []*form{g}
		}
	}
	return nil
}

// generation returns a number that changes whenever another form decides about a key;
// 0 if none ever has.
func (sh *shard) generation(l *limit, h uint64) uint32 {
	if k := sh.family(l.form.name); k != nil {
		if m, ok := k.keys[h]; ok && len(k.lists[m.list].forms) > 1 {
			return m.generation
		}
	}
	return 0
}

// among reports whether a key has, or may have, to do with other forms than
// that of a limit, so that fast paths do not apply.
func (sh *shard) among(l *limit, t *table, h uint64) bool {
	k := sh.family(l.form.name)
	if k == nil {
		return false
	}
	if m, ok := k.keys[h]; ok {
		forms := k.lists[m.list].forms
		return len(forms) != 1 || forms[0] != l.form
	}
	return k.all || t.find(h) == nil
}

// has reports whether a form has a slot for a key.
func (f *form) has(sh *shard, h uint64) (has bool) {
	f.tablesIn(sh, func(t *table) { has = has || t.find(h) != nil })
	return has
}

// idle reports whether a form has nothing left to count of a key.
func (f *form) idle(s *Store, sh *shard, h uint64, now int64) bool {
	idle := true
	f.tablesIn(sh, func(t *table) {
		if slot := t.find(h); slot != nil && !t.idle(sh, slot, s.at(t, now)) {
			idle = false
		}
	})
	return idle
}

// idleAfter returns when the form has nothing left to count of a key.
func (f *form) idleAfter(s *Store, sh *shard, h uint64, now int64) (longest int64) {
	f.tablesIn(sh, func(t *table) {
		if slot := t.find(h); slot != nil {
			d := describe(t.meter, t.state(sh, slot), s.at(t, now), 0, true)
			longest = max(longest, int64(d.ResetAfter))
		}
	})
	return longest
}

// forget deletes what a form has of a key, and releases its reservations.
func (f *form) forget(s *Store, sh *shard, h uint64) {
	f.tablesIn(sh, func(t *table) {
		if t.find(h) != nil {
			sh.forgotten(s, t, h)
			t.delete(sh, h)
		}
	})
}

// forms returns those that a key counts under, in the order in which they
// decided; f is the one that asks. Where none counts anything, the key becomes
// as if never seen.
func (sh *shard) forms(s *Store, k *family, f *form, h uint64, now int64) []*form {
	if forms := k.met(h); forms != nil {
		if len(forms) == 1 && forms[0] == f || k.retains(h, now) {
			return forms
		}
		for _, g := range forms {
			if !g.idle(s, sh, h, now) {
				return forms
			}
		}
		for _, g := range forms {
			g.forget(s, sh, h)
		}
		k.remove(h)
		return nil
	}
	if !k.all && f.has(sh, h) {
		return []*form{f}
	}
	home := sh.known(k, h)
	if len(home) > 0 && home[0].idle(s, sh, h, now) && !k.retains(h, now) {
		home[0].forget(s, sh, h)
		return nil
	}
	return home
}

// sweep forgets the lists of keys that count nothing any more, if that was not
// done of late.
func (sh *shard) sweep(s *Store, k *family, now int64) {
	if len(k.keys) < k.sweepAt && now-k.swept < linger {
		return
	}
	k.swept = now
	k.all = len(k.forms) > fewForms
	k.endRetained(now)
	for h, m := range k.keys {
		forms := k.lists[m.list].forms
		if len(forms) == 1 && !k.all {
			k.remove(h)
			continue
		}
		if k.retains(h, now) || slices.ContainsFunc(forms, func(g *form) bool { return !g.idle(s, sh, h, now) }) {
			continue
		}
		if len(forms) > 1 {
			for _, g := range forms {
				g.forget(s, sh, h)
			}
			k.remove(h)
		} else if !forms[0].has(sh, h) {
			k.remove(h)
		}
	}
	if most := max(k.sweepAt, leastSwept); len(k.keys) < most/8 {
		keys := make(map[uint64]met, len(k.keys)) // a map does not shrink
		for h, m := range k.keys {
			keys[h] = m
		}
		k.keys = keys
	}
	k.sweepAt = max(2*len(k.keys), leastSwept)
}

// dropForm forgets a form as a whole, with all that it counts.
func (sh *shard) dropForm(f *form) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	f.tablesIn(sh, func(t *table) {
		for i := range t.segments {
			for _, slot := range t.slots(t.segments[i]) {
				t.forget(sh, slot)
			}
		}
		sh.drop(t)
	})
	k := sh.family(f.name)
	if k == nil {
		return
	}
	for i := range k.lists {
		if slices.Contains(k.lists[i].forms, f) {
			for h, m := range k.keys {
				if forms := k.lists[m.list].forms; slices.Contains(forms, f) {
					k.without(h, f)
				}
			}
			return
		}
	}
}

// without takes a form from those that a key has met.
func (k *family) without(h uint64, f *form) {
	forms := slices.DeleteFunc(slices.Clone(k.met(h)), func(g *form) bool { return g == f })
	if len(forms) == 0 || len(forms) == 1 && !k.all {
		k.remove(h)
		return
	}
	k.put(h, forms)
}

// decided notes that a form has decided about a key last: reservations under
// the others give nothing back any more.
func (sh *shard) decided(s *Store, f *form, h uint64) {
	k := sh.family(f.name)
	if k == nil {
		return
	}
	forms := k.met(h)
	if last := len(forms) - 1; last < 1 || forms[last] == f {
		return
	}
	order := append(slices.DeleteFunc(slices.Clone(forms), func(g *form) bool { return g == f }), f)
	k.put(h, order)
	for _, g := range order[:len(order)-1] {
		g.tablesIn(sh, func(t *table) { sh.forgotten(s, t, h) })
	}
}

// bytes returns about what a family takes.
func (k *family) bytes() int64 {
	const slot = 28 // of a map from uint64 to met, at its usual load
	return 256 + (slot+160)*int64(len(k.retained)) + slot*int64(len(k.keys)) + 64*int64(cap(k.lists)) + 16*int64(len(k.forms))
}
