package memstore

import (
	"slices"

	"github.com/stint-dev/stint/meter"
)

// openKeys are the open reservations of one table, by the state that they
// charged. A table without reservations refers to none (table.open is 0), which is
// all that its decisions look at. The shard's lock guards them.
type openKeys struct {
	keys   map[uint64]*meter.Reservations // by hash
	cells  map[int]*meter.Reservations    // by overflow cell
	shared *[]uint64                      // the cells that these are on
	filter [16]uint64                     // has a bit for each hash in keys, and may have more
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

// keepOpen returns the reservations on the state that a hash decides on, and makes
// them if there are none. The key has a slot or a cell.
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

// dropOpen releases the reservations on the state of a hash. Those that are still
// open stand as charged: settling them gives nothing back.
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

// closeTable releases all reservations on the states of a table.
func (sh *shard) closeTable(t *table) {
	if t.open > 0 {
		sh.opened[t.open-1] = nil
		t.open = 0
	}
}

// forgotten is called when a key without a slot gets one. Reservations on an earlier
// slot of the key stand as charged, since that state is gone.
func (sh *shard) forgotten(s *Store, t *table, h uint64) {
	if t.open > 0 {
		if k := sh.opened[t.open-1].keys[h]; k != nil {
			sh.dropOpen(s, t, h, k)
		}
	}
}
