package memstore

import (
	"slices"

	"github.com/stint-dev/stint/meter"
)

// openKeys are the open reservations of one table, by the state that they
// charged. A table refers to them only while it has some, so that others pay
// for one look at a number. The shard's lock guards them.
type openKeys struct {
	keys   map[uint64]*meter.Reservations // by hash
	cells  map[int]*meter.Reservations    // by overflow cell
	shared *[]uint64                      // those cells
	filter [16]uint64                     // a bit for the hash of each of keys, and others
}

func (o *openKeys) on(s *Store, t *table, h uint64) *meter.Reservations {
	if o.filter[h>>26&15]&(1<<(h>>20&63)) != 0 && t.find(h) != nil {
		return o.keys[h]
	}
	if len(o.cells) > 0 && o.shared == t.cells && t.find(h) == nil {
		return o.cells[s.cellOf(h)]
	}
	return nil
}

// keepOpen returns the reservations on the state that a hash decides on, which
// has a place or a cell, to add one.
func (sh *shard) keepOpen(s *Store, t *table, h uint64) *meter.Reservations {
	if t.open == 0 {
		free := slices.Index(sh.opened, nil)
		if free < 0 {
			free = len(sh.opened)
			sh.opened = append(sh.opened, nil)
		}
		if sh.spare == nil {
			sh.spare = &openKeys{keys: make(map[uint64]*meter.Reservations)}
		}
		sh.opened[free], sh.spare = sh.spare, nil
		t.open = uint32(free + 1)
	}
	o := sh.opened[t.open-1]
	if k := o.on(s, t, h); k != nil {
		return k
	}
	k := &meter.Reservations{}
	if t.find(h) != nil {
		o.keys[h] = k
		o.filter[h>>26&15] |= 1 << (h >> 20 & 63)
		return k
	}
	if o.shared != t.cells {
		o.cells, o.shared = make(map[int]*meter.Reservations), t.cells
	}
	o.cells[s.cellOf(h)] = k
	return k
}

// dropOpen releases reservations, which are those of the hash's state. What
// remains of them gives nothing back.
func (sh *shard) dropOpen(s *Store, t *table, h uint64, k *meter.Reservations) {
	o := sh.opened[t.open-1]
	if o.keys[h] == k {
		if delete(o.keys, h); len(o.keys) == 0 {
			o.filter = [16]uint64{}
		}
	} else if i := s.cellOf(h); o.cells[i] == k {
		delete(o.cells, i)
	}
	if len(o.keys)+len(o.cells) == 0 {
		sh.closeTable(t)
		o.shared, o.cells, sh.spare = nil, nil, o
	}
}

// closeTable releases all reservations on a table.
func (sh *shard) closeTable(t *table) {
	if t.open > 0 {
		sh.opened[t.open-1] = nil
		t.open = 0
	}
}

// forgotten is called when a key that had no place gets one: what was reserved
// on the state that it had before gives nothing back.
func (sh *shard) forgotten(s *Store, t *table, h uint64) {
	if t.open > 0 {
		if k := sh.opened[t.open-1].keys[h]; k != nil {
			sh.dropOpen(s, t, h, k)
		}
	}
}
