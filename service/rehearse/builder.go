package rehearse

import (
	"cmp"
	"errors"
	"hash/maphash"
	"math"
	"slices"
)

// MostBuilt is how many requests a recording that is built may have: some
// hundred bytes each.
const MostBuilt = 10_000_000

// A Builder makes a recording of requests that come from elsewhere, such as a
// log, in any order. Make one with NewBuilder.
type Builder struct {
	names    []string
	recorder Recorder // for its seed
	data     []byte
	entries  []entry
	given    []bool // whether any request has the attribute
	ordered  bool
}

// An entry is where a request is in data.
type entry struct {
	at       int64
	from, to int
}

// NewBuilder returns a builder of requests with these attributes.
func NewBuilder(names []string) *Builder {
	return &Builder{names: names, recorder: Recorder{seed: maphash.MakeSeed()}, given: make([]bool, len(names)), ordered: true}
}

// values are attributes by their place.
type values struct {
	names  []string
	values [][]byte
}

// Attribute implements [policy.Attributes].
func (v *values) Attribute(name string) (string, bool) {
	i := slices.Index(v.names, name)
	return string(v.values[i]), v.values[i] != nil
}

// Add adds a request that came at a time in nanoseconds since the Unix epoch.
// all has a value for each attribute, nil where it is missing.
func (b *Builder) Add(at, cost int64, allowed bool, all [][]byte) error {
	if len(b.entries) == MostBuilt {
		return errors.New("more than 10,000,000 requests: take a part of the log")
	}
	for i := range all {
		b.given[i] = b.given[i] || all[i] != nil
	}
	if n := len(b.entries); n > 0 && b.entries[n-1].at > at {
		b.ordered = false
	}
	from := len(b.data)
	b.data = b.recorder.appendBody(b.data, b.names, &values{b.names, all}, charge{cost: cost, allowed: allowed})
	b.entries = append(b.entries, entry{at, from, len(b.data)})
	return nil
}

// Recording returns what was added, in order. An attribute that no request has
// counts as one that was not kept. The builder is of no use after that.
func (b *Builder) Recording() (all *Recording) {
	var never []string
	if !b.ordered {
		slices.SortStableFunc(b.entries, func(a, b entry) int { return cmp.Compare(a.at, b.at) })
	}
	for i, name := range b.names {
		if !b.given[i] {
			never = append(never, name)
		}
	}
	all = &Recording{since: math.MinInt64, never: never, built: true}
	if len(b.entries) == 0 {
		return all
	}
	g := segment{schema: &schema{names: b.names}, first: b.entries[0].at, last: b.entries[0].at}
	g.data = make([]byte, 0, len(b.data)+len(b.entries)*8)
	for _, e := range b.entries {
		g.append(b.data[e.from:e.to], e.at)
	}
	all.shards = [][]segment{{g}}
	return all
}
