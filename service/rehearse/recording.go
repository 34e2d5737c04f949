package rehearse

import (
	"iter"
	"slices"
	"time"

	"github.com/stint-dev/stint/policy"
)

// A Recording is requests in the order of their times. It may be read by
// several goroutines at once.
type Recording struct {
	shards   [][]segment // of each, requests are in order
	since    int64       // requests before are left out
	complete bool        // nothing was dropped since the recorder was made
	built    bool        // of a log, which does not say how much requests send
	never    []string    // attributes that no request has, though they were asked for
}

// Requests yields the requests in order. Each is valid until the next.
func (r *Recording) Requests() iter.Seq[*Request] {
	return func(yield func(*Request) bool) {
		readers := make([]*reader, 0, len(r.shards))
		for _, shard := range r.shards {
			if one := (&reader{shard: shard}); one.next(r.since) {
				readers = append(readers, one)
			}
		}
		for len(readers) > 0 {
			first := 0 // of a few: comparing all is as fast as a heap
			for i := 1; i < len(readers); i++ {
				if readers[i].at.At < readers[first].at.At {
					first = i
				}
			}
			one := readers[first]
			if !yield(&one.at) {
				return
			}
			if !one.next(r.since) {
				readers = slices.Delete(readers, first, first+1)
			}
		}
	}
}

// A reader is where one shard is read.
type reader struct {
	shard []segment
	data  []byte
	last  int64
	open  bool
	at    Request
}

// next reads the next request that is not older than since.
func (r *reader) next(since int64) bool {
	for {
		if len(r.data) == 0 {
			if r.open {
				r.shard = r.shard[1:]
			}
			if r.open = len(r.shard) > 0; !r.open {
				return false
			}
			r.data, r.last = r.shard[0].data, r.shard[0].first
			continue
		}
		r.data = r.at.read(r.shard[0].schema.names, r.data, r.last)
		if r.last = r.at.At; r.at.At >= since {
			return true
		}
	}
}

// Len returns how many requests there are, at most: of the oldest, some may be
// too old to be yielded.
func (r *Recording) Len() (n int) {
	for _, shard := range r.shards {
		for i := range shard {
			n += shard[i].requests
		}
	}
	return n
}

// Complete reports whether the recording has every request since its recorder was
// made.
func (r *Recording) Complete() bool { return r.complete }

// Span returns the times of the first and the last request; zero if there are
// none.
func (r *Recording) Span() (first, last time.Time) {
	for _, shard := range r.shards {
		if from := time.Unix(0, max(shard[0].first, r.since)); first.IsZero() || from.Before(first) {
			first = from
		}
		if to := time.Unix(0, shard[len(shard)-1].last); to.After(last) {
			last = to
		}
	}
	return first, last
}

// Missing returns which of the attributes that rules look at were not kept of
// all requests, sorted.
func (r *Recording) Missing(rules *policy.Rules) (names []string) {
	for _, name := range r.never {
		if rules.Reads(name) {
			names = append(names, name)
		}
	}
	var seen *schema
	for _, shard := range r.shards {
		for i := range shard {
			if shard[i].schema == seen {
				continue
			}
			seen = shard[i].schema
			for _, name := range rules.Attributes() {
				if !slices.Contains(seen.names, name) && !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
	}
	slices.Sort(names)
	return names
}
