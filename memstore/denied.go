package memstore

import (
	"slices"
	"strings"
)

// topDenied counts the keys denied most in a bounded room (Metwally, Agrawal
// and El Abbadi's space-saving): a key that is not counted yet takes the place
// of the one with the least count, and its count, which bounds the error.
type topDenied struct {
	random uint64
	ids    [topKeys]uint64 // of limit and key
	counts [topKeys]uint64
	keys   [topKeys]deniedKey
}

const (
	topKeys   = 16 // in a shard: a key with more than 1/16 of its denials is there
	topPrefix = 55 // bytes of a key that are kept
)

type deniedKey struct {
	limit  string
	over   uint64 // how much of the count may belong to others
	length uint8
	key    [topPrefix]byte
}

// denial counts a denial of key. Only one in 32 or so, at random, is looked
// at, and stands for those before it: else a flood of denials would cost more
// than what it is denied.
func (sh *shard) denial(l *limit, h uint64, key string) {
	sh.unlooked++
	if sh.skip--; sh.skip > 0 {
		return
	}
	if sh.denied == nil {
		sh.denied = &topDenied{random: h | 1}
	}
	sh.denied.count(l, h, key, sh.unlooked)
	sh.unlooked, sh.skip = 0, int32(1+sh.denied.next()%63)
}

// next is xorshift64 (Marsaglia).
func (d *topDenied) next() uint64 {
	d.random ^= d.random << 13
	d.random ^= d.random >> 7
	d.random ^= d.random << 17
	return d.random
}

func (d *topDenied) count(l *limit, h uint64, key string, n uint64) {
	id := h ^ l.account.salt
	least := 0
	for i := range d.ids {
		if d.ids[i] == id {
			d.counts[i] += n
			return
		}
		if d.counts[i] < d.counts[least] {
			least = i
		}
	}
	d.ids[least] = id
	k := &d.keys[least]
	k.limit, k.over = l.account.label, d.counts[least]
	k.length = uint8(copy(k.key[:], key))
	d.counts[least] += n
}

// Denied is a key and how often it was denied.
type Denied struct {
	// Limit is the limit that denied: its name in [stint.Store.Bind], a slash, its
	// ID.
	Limit string
	// Key is the key, or its first 55 bytes.
	Key string
	// Count estimates how often it was denied, from a sample of one in 32.
	Count uint64
	// Over is how much of Count may belong to keys that had its place before.
	Over uint64
}

// TopDenied returns the n keys denied most since the store was made, those
// with the highest counts first, out of at most 16 for each of 64 shards. Keys
// are what clients sent: keep them out of logs and metric labels.
func (s *Store) TopDenied(n int) []Denied {
	var top []Denied
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		if d := sh.denied; d != nil {
			for j, count := range d.counts {
				if k := &d.keys[j]; count > 0 {
					top = append(top, Denied{readable(k.limit), string(k.key[:k.length]), count, k.over})
				}
			}
		}
		sh.mu.Unlock()
	}
	slices.SortFunc(top, func(a, b Denied) int {
		switch {
		case a.Count != b.Count && a.Count > b.Count:
			return -1
		case a.Count != b.Count:
			return 1
		case a.Limit != b.Limit:
			return strings.Compare(a.Limit, b.Limit)
		}
		return strings.Compare(a.Key, b.Key)
	})
	return top[:min(max(n, 0), len(top))]
}
