package redisstore

import (
	"slices"

	"github.com/stint-dev/stint"
)

// BindMode is Bind for limits that are held in the mode of a word: strict,
// lease, async or share. With it a Store is a policy.ModeStore, and the rules of
// a policy say for themselves in which mode they are held. A request may have
// layers of several modes, and such as were bound without one: those ask the
// server each time.
func (s *Store) BindMode(mode, name string, limits ...stint.Limit) (stint.Bound, error) {
	return s.modes.BindMode(mode, name, limits...)
}

// Check returns why BindMode, or Bind where the mode is "", would refuse limits,
// and changes nothing.
func (s *Store) Check(mode string, limits ...stint.Limit) error {
	return s.modes.Check(mode, limits...)
}

// BindMode is [Store.BindMode].
func (m *modes) BindMode(mode, name string, limits ...stint.Limit) (stint.Bound, error) {
	parsed, err := ParseMode(mode)
	if err != nil {
		return nil, err
	}
	return (&view{m, parsed}).Bind(name, limits...)
}

// Check is [Store.Check].
func (m *modes) Check(mode string, limits ...stint.Limit) error {
	if mode != "" {
		parsed, err := ParseMode(mode)
		if err != nil || parsed == Share { // that is held in memory
			return err
		}
	}
	entries := int64(0)
	for _, l := range limits {
		f, err := formOf(l, m.store.maxLog)
		if err != nil {
			return err
		}
		entries += f.entries
	}
	return m.store.bearable(entries)
}

// ofModes returns the layers of a request as modes know them, if some were bound
// in one.
func (m *modes) ofModes(layers []stint.Layer) ([]stint.Layer, bool) {
	some := false
	for i := range layers {
		if _, ok := layers[i].Bound.(*moded); ok {
			some = true
		}
	}
	if !some {
		return nil, false
	}
	out := slices.Clone(layers)
	for i := range out {
		if b, ok := out[i].Bound.(*bound); ok && b.store == m.store {
			out[i].Bound = m.plain(b)
		}
	}
	return out, true
}

// plain returns limits that were bound without a mode as limits that ask the
// server each time.
func (m *modes) plain(b *bound) *moded {
	of := &moded{modes: m, name: b.name, all: make([]*single, len(b.limits)), whole: b}
	for i, known := range b.limits {
		form := known.form.Load()
		of.all[i] = &single{
			modes: m, mode: Strict, name: known.name, limit: form.limit, form: form,
			strict: &bound{store: m.store, name: b.name, limits: b.limits[i : i+1]},
		}
	}
	return of
}
