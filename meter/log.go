package meter

import (
	"math"
	"time"

	"github.com/stint-dev/stint/internal/satmath"
)

// The sliding log. The state is a ring of words with every charge of the last period, oldest first,
// behind two words of header: the head and length of the ring in words, and the sum of units. A
// charge of one unit is one word, its time. A larger charge has a second word, with its units. The
// second word has the top bit set, which no time has. A charge of one unit has one, too, if it took over
// the word of a neighbour (see cover). Charges at the same time are one entry.
//
// Units older than the newest count units cannot change a decision, unless a reservation gives units
// back or the count is raised. So a log keeps them, as one entry: see chargeAmong.

var logKind = kind{
	name: "sliding_log", options: CountDenied, log: true,
	of: func(m *Meter) arithmetic { return (*slidingLog)(m) },
}

type slidingLog Meter

func (*slidingLog) words() int { return logWords }

func (m *slidingLog) longest() time.Duration { return satmath.Duration(m.period) }

const (
	logHead  = 2
	logWords = logHead + 2
	unitFlag = 1 << 63
)

type ring []uint64

func (r ring) size() int { return len(r) - logHead }
func (r ring) head() int { return int(r[0] >> 32) }
func (r ring) used() int { return int(uint32(r[0])) }

func (r ring) set(head, used int) {
	if used == 0 {
		head = 0
	}
	r[0] = uint64(head)<<32 | uint64(used)
}

func (r ring) word(i int) *uint64 { return &r[logHead+r.at(i)] }

// at returns the index in the ring of the i-th word of the log.
func (r ring) at(i int) int {
	j := r.head() + i
	if j >= r.size() {
		j -= r.size()
	}
	return j
}

// entry is one charge: when, how much, and how many words that takes.
type entry struct {
	at, units uint64
	words     int
}

// entryAt returns the entry whose time is the i-th word.
func (r ring) entryAt(i int) entry {
	e := entry{*r.word(i), 1, 1}
	if i+1 < r.used() {
		if next := *r.word(i + 1); next&unitFlag != 0 {
			e.units, e.words = next&^unitFlag, 2
		}
	}
	return e
}

// newest returns the last entry of a log that is not empty.
func (r ring) newest() entry {
	i := r.used() - 1
	if *r.word(i)&unitFlag != 0 {
		i--
	}
	return r.entryAt(i)
}

func (r ring) dropOldest(e entry) {
	r.skip(e.words)
	r[1] -= e.units
}

func (r ring) skip(words int) {
	head := r.head() + words
	if head >= r.size() {
		head -= r.size()
	}
	r.set(head, r.used()-words)
}

func (r ring) dropNewest(e entry) {
	r.set(r.head(), r.used()-e.words)
	r[1] -= e.units
}

// push appends a charge. If the ring has no room, it first merges the newest entries into the new
// one; they then count for longer than they should.
func (r ring) push(at, units uint64) {
	for r.used() > 0 {
		last := r.newest()
		words := 1
		if units > 1 {
			words = 2
		}
		if last.at != at && r.used()+words <= r.size() {
			break
		}
		r.dropNewest(last)
		units += last.units
	}
	used := r.used()
	r.set(r.head(), used+1)
	*r.word(used) = at
	if units > 1 {
		r.set(r.head(), used+2)
		*r.word(used + 1) = units | unitFlag
	}
	r[1] += units
}

// forget drops what no longer counts at t, and returns the time to decide at: t, or the time of the
// newest entry where the clock stepped back.
func (m *slidingLog) forget(r ring, t uint64) uint64 {
	if r.used() == 0 {
		return t
	}
	for r.used() > 0 {
		e := r.entryAt(0)
		if e.at+m.period > t {
			break
		}
		r.dropOldest(e)
	}
	if r.used() == 0 {
		return t
	}
	last := r.newest().at
	if ahead := t + m.period; last > ahead {
		m.pull(r, ahead)
		last = ahead
	}
	return max(t, last)
}

// pull moves every entry that is later than latest to latest.
func (m *slidingLog) pull(r ring, latest uint64) {
	all := r.entries()
	r.set(0, 0)
	r[1] = 0
	for _, e := range all {
		r.push(min(e.at, latest), e.units)
	}
}

func (r ring) entries() []entry {
	var all []entry
	for i := 0; i < r.used(); {
		e := r.entryAt(i)
		all = append(all, e)
		i += e.words
	}
	return all
}

func (m *slidingLog) admits(s []uint64, t, c uint64) bool {
	m.forget(s, t)
	return s[1] <= m.count-c
}

func (m *slidingLog) room(s []uint64, t uint64, cost int64) int {
	r := ring(s)
	m.forget(r, t)
	words := 2 // for the charge alone, or for its units and those of the entry that it joins
	if cost == 1 && (r.used() == 0 || r.newest().at < t) {
		words = 1
	}
	return logHead + r.used() + words
}

func (m *slidingLog) charge(s []uint64, t, c uint64) { m.chargeAmong(nil, s, t, c, false) }

// chargeAmong adds c units. Charges older than the newest count units become one entry at the
// newest of their moments. No request passes while that entry counts, and none of them would count
// after it. They are not dropped, since open reservations (of, or nil) and limits of a greater
// count may make room for them again.
func (m *slidingLog) chargeAmong(of *Reservations, s []uint64, t, c uint64, _ bool) {
	r := ring(s)
	at := m.forget(r, t)
	if c == 0 {
		return
	}
	from := at
	if r.used() > 0 {
		if from = r.entryAt(0).at; of != nil && from == of.cutAt {
			from = of.cutFrom
		}
	}
	r.keep(math.MaxInt64 - c)
	r.push(at, c)
	excess := satmath.Sub(r[1], m.count)
	if excess == 0 {
		return
	}
	end, units, last := 0, uint64(0), entry{}
	for units < excess {
		last = r.entryAt(end)
		end += last.words
		units += last.units
	}
	if of != nil && from < last.at {
		of.cutFrom, of.cutAt = from, last.at
	}
	if end > last.words {
		*r.word(end - 2), *r.word(end - 1) = last.at, units|unitFlag
		r.skip(end - 2)
	}
}

// keep drops all but the newest units.
func (r ring) keep(units uint64) {
	for r[1] > units {
		e := r.entryAt(0)
		excess := r[1] - units
		if e.units > excess {
			*r.word(1) = (e.units - excess) | unitFlag
			r[1] -= excess
			return
		}
		r.dropOldest(e)
	}
}

func (m *slidingLog) level(s []uint64, t uint64) (remaining int64, reset time.Duration) {
	r := ring(s)
	m.forget(r, t)
	if r.used() == 0 {
		return int64(m.count), 0
	}
	return int64(satmath.Sub(m.count, r[1])), satmath.Duration(r.newest().at + m.period - t)
}

// wait walks from the oldest entry until enough units are forgotten. For a cost of 1, one entry is
// enough.
func (m *slidingLog) wait(s []uint64, t, c uint64) time.Duration {
	r := ring(s)
	m.forget(r, t)
	excess := satmath.Sub(r[1], m.count-c)
	for i := 0; ; {
		e := r.entryAt(i)
		i += e.words
		if e.units >= excess || i >= r.used() {
			return satmath.Duration(e.at + m.period - t)
		}
		excess -= e.units
	}
}

func (m *slidingLog) stamp(s []uint64, t uint64) uint64 { return m.forget(s, t) }

// giveBack takes units out of the entry that holds the charge of a moment, as long as that charge
// would still count.
func (m *slidingLog) giveBack(of *Reservations, mark ChargeRef, s []uint64, t, amount uint64) {
	r, moment := ring(s), mark[1]
	m.forget(r, t)
	if moment+m.period <= t {
		return
	}
	at := moment
	if of.cutFrom <= moment && moment < of.cutAt {
		at = of.cutAt
	}
	if i := r.find(at); i < r.used() && *r.word(i) == at {
		r.take(i, amount)
	}
}

// find returns the index of the first entry at the given time or later.
func (r ring) find(at uint64) int {
	low, high := 0, r.used()
	for low < high {
		mid := int(uint(low+high) / 2)
		if *r.word(mid)&unitFlag != 0 {
			mid--
		}
		if *r.word(mid) < at {
			low = mid + r.entryAt(mid).words
		} else {
			high = mid
		}
	}
	return low
}

// take takes up to amount units out of the entry that begins at word i, and returns how many it
// took.
func (r ring) take(i int, amount uint64) uint64 {
	e := r.entryAt(i)
	if e.units > amount {
		*r.word(i + 1) = (e.units - amount) | unitFlag
		r[1] -= amount
		return amount
	}
	r[1] -= e.units
	if e.words == 1 && r.cover(i) {
		return 1
	}
	used := r.used()
	if behind := used - i - e.words; behind < i {
		r.down(i, e.words, behind)
		r.set(r.head(), used-e.words)
		return e.units
	}
	r.up(e.words, i)
	r.skip(e.words)
	return e.units
}

// cover removes the entry of one word at i without moving others, if an entry beside it is one word
// as well: the neighbour's one unit is written in the word that becomes free.
func (r ring) cover(i int) bool {
	time := func(i int) bool { return *r.word(i)&unitFlag == 0 }
	switch used := r.used(); {
	case i == 0 || i == used-1:
		return false
	case time(i - 1):
		*r.word(i) = 1 | unitFlag
	case i+2 == used || time(i+2):
		*r.word(i), *r.word(i + 1) = *r.word(i + 1), 1|unitFlag
	default:
		return false
	}
	return true
}

// down moves the n words that follow index i + by down by that many words.
func (r ring) down(i, by, n int) {
	all := r[logHead:]
	for n > 0 {
		to, from := r.at(i), r.at(i+by)
		moved := min(n, len(all)-to, len(all)-from)
		copy(all[to:to+moved], all[from:from+moved])
		i, n = i+moved, n-moved
	}
}

// up moves the first n words up by that many words.
func (r ring) up(by, n int) {
	all := r[logHead:]
	for n > 0 {
		to, from := r.at(n-1+by)+1, r.at(n-1)+1
		moved := min(n, to, from)
		copy(all[to-moved:to], all[from-moved:from])
		n -= moved
	}
}

func (m *slidingLog) refund(s []uint64, t, amount uint64) {
	r := ring(s)
	m.forget(r, t)
	for amount > 0 && r.used() > 0 {
		amount -= r.take(r.used()-r.newest().words, amount)
	}
}

func (m *slidingLog) idle(s []uint64, t uint64) bool {
	r := ring(s)
	return r.used() == 0 || r.newest().at+m.period <= t
}

// move copies a log to the beginning of a ring of another size.
func (*slidingLog) move(to, from []uint64) {
	r := ring(from)
	for i := range r.used() {
		to[logHead+i] = *r.word(i)
	}
	ring(to).set(0, r.used())
	to[1] = from[1]
}

// sound reports whether push could have made the ring: it lies within its bounds, its entries are
// in order of time, and the units add up.
func (*slidingLog) sound(s []uint64) bool {
	r := ring(s)
	if r.head() >= r.size() || r.used() > r.size() {
		return false
	}
	units, last := uint64(0), uint64(0)
	for i := 0; i < r.used(); {
		e := r.entryAt(i)
		if e.at&unitFlag != 0 || e.at < last || e.units == 0 {
			return false
		}
		units, last = satmath.Add(units, e.units), e.at
		i += e.words
	}
	return units == r[1] && units <= math.MaxInt64
}
