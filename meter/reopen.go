package meter

import (
	"math"

	"github.com/stint-dev/stint/internal/uint128"
)

// The size of open charges in a file, in words: that of the head, and that of each charge.
const (
	reservationsHead = 4
	openChargeWords  = 4
)

// AppendTo appends the open charges as words that [Meter.Reopen] reads. The words belong to the
// state at that moment.
func (r *Reservations) AppendTo(words []uint64) []uint64 {
	words = append(words, r.next, r.forgone, r.cutFrom, r.cutAt)
	for _, o := range r.open {
		words = append(words, o.first, uint64(o.left), o.low.Hi, o.low.Lo)
	}
	return words
}

// Reopen fills r with the charges that [Reservations.AppendTo] wrote. Those whose marks are in held may
// still be settled; all others stay charged. Reopen reports whether the words are sound and have every
// mark in held. If it returns false, r must not be used.
func (m *Meter) Reopen(r *Reservations, words []uint64, held []ChargeRef) bool {
	if len(words) < reservationsHead || (len(words)-reservationsHead)%openChargeWords != 0 {
		return false
	}
	*r = Reservations{next: words[0], forgone: words[1], cutFrom: words[2], cutAt: words[3]}
	for w := words[reservationsHead:]; len(w) > 0; w = w[openChargeWords:] {
		r.open = append(r.open, openCharge{w[0], int(w[1]), uint128.Int{Hi: w[2], Lo: w[3]}})
	}
	if !m.openSound(r) {
		return false
	}
	left := make([]int, len(r.open))
	for _, mark := range held {
		i := r.find(mark)
		if i < 0 || mark[0] >= r.next || left[i] == r.open[i].left {
			return false
		}
		left[i]++
	}
	m.closeOthers(r, left)
	return true
}

// openSound reports whether Reserve and Settle could have produced these charges.
func (m *Meter) openSound(r *Reservations) bool {
	if !m.Rewrites() || r.next > math.MaxInt64 || len(r.open) > mostOpen && !m.queues {
		return false
	}
	end := r.next
	for i := len(r.open) - 1; i >= 0; i-- {
		o := r.open[i]
		if o.first >= end || o.left < 1 || uint64(o.left) > end-o.first {
			return false
		}
		end = o.first
	}
	return true
}

// closeOthers closes all charges, as [Meter.Close] does, except those at the indexes in left.
func (m *Meter) closeOthers(r *Reservations, left []int) {
	n := 0
	for i, o := range r.open {
		if left[i] > 0 {
			o.left = left[i]
			r.open[n] = o
			n++
			continue
		}
		if m.queues {
			r.forgone = max(r.forgone, o.first)
		}
		if n > 0 {
			r.open[n-1].low = uint128.Min(r.open[n-1].low, r.low(i))
		}
	}
	r.open = r.open[:n]
}
