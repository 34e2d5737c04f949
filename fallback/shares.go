package fallback

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/stint-dev/stint"
)

// Shares binds limits in the store of one process, each at the part of it that
// this process holds, and binds them anew when there are more or fewer
// processes. It may be used from many goroutines at once; decisions do not pass
// through it, and cost nothing more.
type Shares struct {
	local stint.Store

	mu    sync.Mutex // guards what follows, and each binding
	nodes int64
	stale bool                  // a limit has kept the share that it had before
	whole map[known]stint.Limit // what has been bound, undivided
}

// known is a limit that was bound: the name that it is under, and its ID.
type known struct{ name, id string }

func (k known) compare(o known) int {
	return cmp.Or(strings.Compare(k.name, o.name), strings.Compare(k.id, o.id))
}

// NewShares returns Shares in a local store for one of so many processes; below
// 1 is 1.
func NewShares(local stint.Store, nodes int) *Shares {
	return &Shares{local: local, nodes: int64(max(nodes, 1)), whole: make(map[known]stint.Limit)}
}

// Bind makes limits known to the local store, each at this process's [Share].
func (s *Shares) Bind(name string, limits ...stint.Limit) (stint.Bound, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	parts := make([]stint.Limit, len(limits))
	for i, l := range limits {
		parts[i] = Share(l, s.nodes)
	}
	b, err := s.local.Bind(name, parts...)
	if err != nil {
		return nil, err
	}
	for _, l := range limits {
		s.whole[known{name, l.ID()}] = l
	}
	return b, nil
}

// SetNodes says that there are now so many processes; below 1 is 1. Every limit
// that was bound is bound anew for all who hold it, with what keys have used:
// the part of a bucket or queue that is used stays the same part, windows keep
// their counts, logs the newest that the share holds. A memstore goes through
// all its keys for that, about a microsecond each, shard by shard, and a
// decision may wait for one shard's: with a million keys, a sixty-fourth of them.
// The error is for limits whose share the local store cannot hold: they keep
// the one that they had.
func (s *Shares) SetNodes(nodes int) error {
	n := int64(max(nodes, 1))
	s.mu.Lock()
	defer s.mu.Unlock()
	if n == s.nodes && !s.stale {
		return nil
	}
	s.nodes = n
	var failed []error
	for _, k := range slices.SortedFunc(maps.Keys(s.whole), known.compare) {
		if _, err := s.local.Bind(k.name, Share(s.whole[k], n)); err != nil {
			failed = append(failed, fmt.Errorf("fallback: limit %q of %q keeps the share it had: %w", k.id, k.name, err))
		}
	}
	s.stale = failed != nil
	return errors.Join(failed...)
}
