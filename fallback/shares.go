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

// Shares binds limits in the store of one process, each at the part of it that
// this process holds, and binds them anew when there are more or fewer
// processes. It may be used from many goroutines at once; decisions do not pass
// through it, and cost nothing more.
type Shares struct {
	local stint.Store

	mu      sync.Mutex // guards what follows, and each binding
	nodes   int64
	stale   bool                // limits have kept the share that they had before
	divided map[string]*divided // what has been bound together, by name and limits
	tidy    int                 // at this size of divided, limits that are no longer held are dropped
}

// divided is limits that were bound together, and the shares that hold them.
type divided struct {
	name          string
	limits, parts []stint.Limit
}

// An exchanger is a store that gives all who hold limits others in their place.
type exchanger interface {
	Exchange(name string, from, to []stint.Limit) (known bool, err error)
}

// NewShares returns Shares in a local store for one of nodes processes; below 1
// counts as 1.
func NewShares(local stint.Store, nodes int) *Shares {
	return &Shares{local: local, nodes: int64(max(nodes, 1)), divided: make(map[string]*divided)}
}

// Bind makes limits known to the local store, each at this process's [Share].
func (s *Shares) Bind(name string, limits ...stint.Limit) (stint.Bound, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := &divided{name: name, limits: slices.Clone(limits)}
	d.parts = d.shares(s.nodes)
	b, err := s.local.Bind(name, d.parts...)
	if err != nil {
		return nil, err
	}
	if known := s.divided[d.key()]; known == nil {
		if len(s.divided) >= s.tidy {
			s.forget()
		}
		s.divided[d.key()] = d
	}
	return b, nil
}

// forget drops limits that are no longer held, such as limits that callers bring
// along. It does so when there are twice as many as the last time left.
func (s *Shares) forget() {
	for k, d := range s.divided {
		if known, err := s.divide(d); err == nil && !known {
			delete(s.divided, k)
		}
	}
	s.tidy = max(64, 2*len(s.divided))
}

func (d *divided) shares(nodes int64) []stint.Limit {
	parts := make([]stint.Limit, len(d.limits))
	for i, l := range d.limits {
		parts[i] = Share(l, nodes)
	}
	return parts
}

func (d *divided) key() string {
	var b strings.Builder
	b.WriteString(d.name)
	for _, l := range d.limits {
		fmt.Fprintf(&b, "\x00%s\x00%s", l.ID(), l)
	}
	return b.String()
}

// SetNodes sets the number of processes; below 1 counts as 1. Every limit that was
// bound gets its new share, for all who hold it. The shares of a limit have one
// identity: what keys have used counts under the new one, so that no number of changes
// frees a key. The error is for limits whose share the local store cannot hold: they
// keep the one that they had.
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

// divide gives all who hold limits the share of now.
func (s *Shares) divide(d *divided) (known bool, err error) {
	parts := d.shares(s.nodes)
	if store, ok := s.local.(exchanger); ok {
		known, err = store.Exchange(d.name, d.parts, parts)
	} else {
		_, err = s.local.Bind(d.name, parts...)
		known = true
	}
	if err == nil {
		d.parts = parts
	}
	return known, err
}
