package memstore

// While a shard is full of keys that are not idle, new keys share overflow cells: a
// key decides on the state of the cell that its hash picks. So new keys together get
// at most cells × the limit, known keys decide as before, and no flood of keys makes
// the store forget an exhausted one. When there is room again, a key gets a slot of
// its own with its cell's state.

// cell returns the slot of the cell that a hash shares.
func (sh *shard) cell(s *Store, t *table, h uint64) []uint64 {
	t.needCells(s)
	sh.overflowed++
	slot := t.cellAt(s.cellOf(h))
	if t.indirect() && slot[0] == 0 {
		slot[0], _ = sh.cells.alloc(t.block(t.meter.Words()))
	}
	return slot
}

func (t *table) needCells(s *Store) {
	if t.cells == nil {
		cells := make([]uint64, s.cells*t.words())
		t.cells = &cells
	}
}

// cellOf returns the index of the hash's cell in its shard. The shard is the top bits of
// the hash, and the cell the next: the top cellBits together name the same group of keys
// however many shards there are.
func (s *Store) cellOf(h uint64) int { return int(h>>(64-cellBits)) & (s.cells - 1) }

// cellAt returns the slot of a cell.
func (t *table) cellAt(i int) []uint64 {
	at := i * t.words()
	return (*t.cells)[at : at+t.words() : at+t.words()]
}

// shared returns the slot of the hash's cell if the cell is in use, else nil.
func (t *table) shared(s *Store, h uint64) []uint64 {
	if t.cells == nil {
		return nil
	}
	if slot := t.cellAt(s.cellOf(h)); !t.indirect() || slot[0] != 0 {
		return slot
	}
	return nil
}

// inherit copies the state of a key's cell to the key's own slot, and lets the
// cells go once all of them are as if never seen.
func (sh *shard) inherit(s *Store, t *table, h uint64, slot []uint64, now int64) {
	if cell := t.shared(s, h); cell != nil {
		sh.copyState(t, slot, cell)
	}
	sh.dropIdleCells(t, now)
}

// dropIdleCells gives back the blocks of cells that are as if never seen, and all
// cells of the table once every one is.
func (sh *shard) dropIdleCells(t *table, now int64) {
	live := false
	for i := range len(*t.cells) / t.words() {
		cell := t.cellAt(i)
		switch {
		case t.indirect() && cell[0] == 0:
		case !t.idle(sh, cell, now):
			live = true
			if !t.indirect() {
				return
			}
		case t.indirect():
			sh.cells.release(cell[0])
			cell[0] = 0
			sh.moves++
		}
	}
	if !live {
		sh.dropCells(t)
	}
}

func (sh *shard) copyState(t *table, to, from []uint64) {
	if !t.indirect() {
		copy(to, from)
		return
	}
	state := sh.block(from[0])
	if have := sh.block(to[0]); len(have) < len(state) {
		sh.slab.release(to[0])
		to[0], _ = sh.slab.alloc(len(state))
	}
	t.meter.Move(sh.block(to[0]), state)
}

func (sh *shard) dropCells(t *table) {
	if t.indirect() {
		for _, ref := range *t.cells {
			if ref != 0 {
				sh.cells.release(ref)
			}
		}
	}
	t.cells = nil
	sh.moves++
}
