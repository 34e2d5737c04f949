package fallback

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/stint-dev/stint"
)

// Shares binds limits in the store of one process, each at this process's [Share], and binds them
// again when the number of processes changes. It may be used from many goroutines at once.
// Decisions do not pass through it, and cost nothing more.
type Shares struct {
	local stint.Store

	mu      sync.Mutex // also held during each call to Bind of the store
	nodes   int64
	stale   bool                // some limits have kept their former share
	divided map[string]*divided // limits that were bound together, by name and limits
	tidy    int                 // at this size of divided, limits that are no longer held are dropped
}

// A divided is limits that were bound together, and their shares.
type divided struct {
	name         string
	limits, held []stint.Limit
}

// An exchanger is a store that replaces limits in every bound that has them, and was bound as
// what it is a share of: of two limits, the shares may be the same for some numbers of processes.
type exchanger interface {
	BindAs(as, name string, limits ...stint.Limit) (stint.Bound, error)
	Exchange(as, name string, from, to []stint.Limit) (known bool, err error)
}

// NewShares returns Shares in a local store, for one of the given number of processes. A number
// below 1 counts as 1.
func NewShares(local stint.Store, nodes int) *Shares {
	return &Shares{local: local, nodes: int64(max(nodes, 1)), divided: make(map[string]*divided)}
}

// Bind binds limits in the local store, each at this process's [Share].
func (s *Shares) Bind(name string, limits ...stint.Limit) (stint.Bound, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := &divided{name: name, limits: slices.Clone(limits)}
	d.held = d.shares(s.nodes)
	key, bind := d.key(), s.local.Bind
	if store, ok := s.local.(exchanger); ok {
		bind = func(name string, limits ...stint.Limit) (stint.Bound, error) {
			return store.BindAs(key, name, limits...)
		}
	}
	b, err := bind(name, d.held...)
	if err != nil {
		return nil, err
	}
	if known := s.divided[key]; known == nil {
		if len(s.divided) >= s.tidy {
			s.forget()
		}
		s.divided[key] = d
	}
	return b, nil
}

// forget drops limits that no bound holds any more, such as limits that callers bring along. It
// runs when there are twice as many as its last run left.
func (s *Shares) forget() {
	for k, d := range s.divided {
		if known, err := s.divide(d); err == nil && !known {
			delete(s.divided, k)
		}
	}
	s.tidy = max(64, 2*len(s.divided))
}

func (d *divided) shares(nodes int64) []stint.Limit {
	shares := make([]stint.Limit, len(d.limits))
	for i, l := range d.limits {
		shares[i] = Share(l, nodes)
	}
	return shares
}

func (d *divided) key() string {
	var b strings.Builder
	b.WriteString(d.name)
	for _, l := range d.limits {
		fmt.Fprintf(&b, "\x00%s\x00%s", l.ID(), l)
	}
	return b.String()
}

// SetNodes sets the number of processes; below 1 counts as 1. Every bound that holds a limit gets
// its new share. All shares of a limit have one identity, so what keys have used still counts, and
// no number of changes frees a key. Limits whose new share the local store cannot hold keep their
// former share, and the error names them.
func (s *Shares) SetNodes(nodes int) error {
	n := int64(max(nodes, 1))
	s.mu.Lock()
	defer s.mu.Unlock()
	if n == s.nodes && !s.stale {
		return nil
	}
	s.nodes, s.stale = n, false
	var failed []error
	for _, k := range slices.Sorted(maps.Keys(s.divided)) {
		known, err := s.divide(s.divided[k])
		switch {
		case err != nil:
			s.stale = true
			failed = append(failed, fmt.Errorf("fallback: the limits of %q keep the share they had: %w", s.divided[k].name, err))
		case !known:
			delete(s.divided, k) // no longer held
		}
	}
	return errors.Join(failed...)
}

// divide gives every bound of these limits the present share.
func (s *Shares) divide(d *divided) (known bool, err error) {
	shares := d.shares(s.nodes)
	if store, ok := s.local.(exchanger); ok {
		known, err = store.Exchange(d.key(), d.name, d.held, shares)
	} else {
		_, err = s.local.Bind(d.name, shares...)
		known = true
	}
	if err == nil {
		d.held = shares
	}
	return known, err
}
