package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// ErrUnavailable is for a call that was not made, since earlier calls failed or too many
// are on their way. It charged nothing. It matches [ErrNotExecuted] too.
var ErrUnavailable = fmt.Errorf("%w: the server does not answer", ErrNotExecuted)

const (
	breakAfter = 3                      // how many failures in a row open a breaker
	firstPause = 50 * time.Millisecond  // until a server that failed is probed
	longPause  = 500 * time.Millisecond // the longest pause: a server that is back is noticed within a second
	mostProbes = 4                      // how many probes may be on their way at once
)

// A breaker stops calls to a server that does not answer: it opens after a few failures
// in a row. Then a goroutine probes the server, after pauses that grow and differ between
// processes, so that no request has to be the one that tries. A probe waits longer than a
// request would, so that a server that is only slow does not keep the breaker open. It may
// be used from many goroutines at once; while all is well it costs one atomic read.
type breaker struct {
	trouble atomic.Bool // whether the other fields matter

	mu      sync.Mutex
	failed  int    // failures in a row
	open    bool   // no calls are made
	probing bool   // a goroutine probes
	slot    uint16 // the slot of the last call that failed
}

// health is what a call says about its server.
type health uint8

const (
	healthUnknown health = iota // nothing, since the caller gave up
	healthGood
	healthBad
)

// lets reports whether a call may be made.
func (b *breaker) lets() bool {
	if !b.trouble.Load() {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.open
}

// ended notes how a call on a slot ended. If probe is true, the caller must start a goroutine
// that probes.
func (b *breaker) ended(h health, slot uint16) (probe bool) {
	if h == healthUnknown || h == healthGood && !b.trouble.Load() {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if h == healthGood {
		b.failed, b.open = 0, false
		b.trouble.Store(false)
		return false
	}
	b.trouble.Store(true)
	b.slot = slot
	if b.failed++; b.failed < breakAfter {
		return false
	}
	b.open = true
	probe = !b.probing
	b.probing = true
	return probe
}

// probes returns the slot to probe. more is false once the breaker is closed: then the
// goroutine that probes must end.
func (b *breaker) probes() (slot uint16, more bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.probing = b.open
	return b.slot, b.open
}

// leave notes that the goroutine that probed has stopped.
func (b *breaker) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.probing = false
}

// probe tries a server until it answers or ctx ends. It makes the next try even while
// others are on their way.
func (b *breaker) probe(ctx context.Context, try func(ctx context.Context, slot uint16) health) {
	defer b.leave()
	answers := make(chan health, mostProbes)
	var tries sync.WaitGroup
	defer tries.Wait()
	away, pause := 0, firstPause
	timer := time.NewTimer(pause/2 + rand.N(pause/2+1))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case h := <-answers:
			away--
			if b.ended(h, b.at()); h != healthGood {
				continue
			}
		case <-timer.C:
		}
		slot, more := b.probes()
		if !more {
			return
		}
		if away < mostProbes {
			away++
			tries.Go(func() { answers <- try(ctx, slot) })
		}
		pause = min(2*pause, longPause)
		timer.Reset(pause/2 + rand.N(pause/2+1))
	}
}

// at returns the slot of the last call that failed.
func (b *breaker) at() uint16 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.slot
}

// A node is a server that runs scripts: a single server, or one of a cluster.
type node struct {
	breaker
	name    string                        // its name in a cluster
	loading atomic.Pointer[chan struct{}] // closed when the script has been sent; nil if it is not being sent
	room    room

	cause atomic.Pointer[cause] // why it fails; nil if it is well, as far as is known

	calls atomic.Uint64 // how many were made
	took  atomic.Int64  // ns, all of them
}

// deniesKey reports whether a server denies this client a key, and not the command.
func deniesKey(err error) bool { return word(err) == "NOPERM" && !refuses(err) }

// errNoNode is for a slot that no node of a cluster serves.
var errNoNode = fmt.Errorf("%w: no node of the cluster serves the slot", ErrNotExecuted)

// unserved reports whether no node serves the slot of a call, by the answer of the cluster
// or of a node. That node may be well, and serve other slots.
func unserved(err error) bool {
	return err != nil && (errors.Is(err, errNoNode) || strings.Contains(err.Error(), "Hash slot not served"))
}

// A cause is the error of calls while the breaker is open: an [ErrUnavailable] with the text
// of the last error. If the server refuses this client, it is an [ErrConfiguration] too.
type cause struct {
	text    string
	refusal error // nil if the server does not answer
}

// Error returns the text.
func (c *cause) Error() string { return c.text }

// Unwrap returns the classes of the error.
func (c *cause) Unwrap() []error {
	if c.refusal != nil {
		return []error{c.refusal, ErrUnavailable}
	}
	return []error{ErrUnavailable}
}

// silence returns the cause for an error that is no refusal.
func silence(err error) *cause {
	text := err.Error()
	for _, class := range []error{ErrNotExecuted, ErrAmbiguous} {
		text = strings.TrimPrefix(text, class.Error()+": ")
	}
	return &cause{text: ErrUnavailable.Error() + ": " + text}
}

// refuses reports whether a server refuses every call of this client: the password is
// wrong, the user may not run a command that every call needs, or there are no credentials.
// A denied key is no such refusal, since the user may use the keys of other limits.
func refuses(err error) bool {
	switch word(err) {
	case "NOAUTH", "WRONGPASS":
		return true
	case "NOPERM":
		return strings.Contains(err.Error(), "permissions to run")
	}
	return errors.Is(err, errCredentials)
}

// unavailable returns why no call is made while the breaker is open.
func (n *node) unavailable() error {
	if c := n.cause.Load(); c != nil {
		return c
	}
	return ErrUnavailable
}

// observe records what a call or a probe says about the server. A broken connection does not
// replace a refused login as the cause: connections from before it break once each.
func (n *node) observe(h health, err error) {
	switch known := n.cause.Load(); {
	case h == healthBad && refuses(err):
		n.cause.Store(&cause{err.Error(), err})
	case h == healthUnknown || known != nil && known.refusal != nil && errors.Is(err, ErrAmbiguous):
	case h == healthBad:
		n.cause.Store(silence(err))
	case known != nil:
		n.cause.Store(nil)
	}
}

// A Topology is a driver that knows which node of a cluster serves which slots. With any
// other driver, the store treats each run of 256 slots as one node.
type Topology interface {
	// Slots asks the cluster.
	Slots(ctx context.Context) ([]SlotRange, error)
}

// A SlotRange is a range of slots, both ends included, and the address of the node that
// serves them, or its name if nodes do not announce addresses.
type SlotRange struct {
	First, Last uint16
	Node        string
}

// nodes are the nodes of a store.
type nodes struct {
	one    node                         // a server that is no cluster
	ranges [64]node                     // stand for the nodes of a cluster until these are known
	slots  atomic.Pointer[[slots]*node] // the node of each slot, once the cluster has told
	apart  atomic.Bool                  // the cluster refuses scripts with keys of several slots

	mu      sync.Mutex // guards what follows
	named   map[string]*node
	asking  bool
	askedAt time.Time
}

const askEvery = 100 * time.Millisecond // the least time between questions which node serves which slots

// nodeOf returns the node that serves a slot.
func (s *Store) nodeOf(slot uint16) *node {
	if !s.driver.Cluster() {
		return &s.nodes.one
	}
	if known := s.nodes.slots.Load(); known != nil && known[slot] != nil {
		return known[slot]
	}
	s.lookAround()
	return &s.nodes.ranges[slot>>8&63]
}

// A place is what one call reaches: a known node, or else a slot.
type place struct {
	node *node
	slot uint16
}

// placeOf returns the place of a slot.
func (s *Store) placeOf(slot uint16) place {
	if known := s.nodes.slots.Load(); known != nil && known[slot] != nil && !s.nodes.apart.Load() {
		return place{node: known[slot]}
	}
	return place{slot: slot}
}

// named rewrites a call for keys of several slots: it declares the first key, and passes the
// others as arguments; see lua/crossslot.lua.
func (s *Store) named(keys, args []string) (declared, all []string) {
	if len(keys) < 2 || !s.driver.Cluster() || oneSlot(keys) {
		return keys, args
	}
	all = append(make([]string, 0, 1+len(keys)+len(args)), "X", number(int64(len(keys)-1)))
	return keys[:1], append(append(all, keys[1:]...), args...)
}

// parted reports whether a call did nothing because it did not reach all of its keys: some
// have moved to another node, or the server refuses keys that are not declared. The caller
// then asks slot by slot.
func (s *Store) parted(err error) bool {
	var reply ReplyError
	if !errors.As(err, &reply) {
		return false
	}
	text := string(reply)
	switch {
	case strings.Contains(text, "non local key"):
		s.lookAround()
		return true
	case strings.Contains(text, "do not hash to the same slot"), strings.Contains(text, "undeclared key"):
		s.nodes.apart.Store(true)
		return true
	}
	return false
}

// lookAround asks in the background which node serves which slots, unless it was asked just
// before.
func (s *Store) lookAround() {
	t, ok := s.driver.(Topology)
	n := &s.nodes
	n.mu.Lock()
	defer n.mu.Unlock()
	if !ok || n.asking || time.Since(n.askedAt) < askEvery {
		return
	}
	n.asking = s.background(func(ctx context.Context) {
		within, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		ranges, err := t.Slots(within)
		n.mu.Lock()
		defer n.mu.Unlock()
		n.asking, n.askedAt = false, time.Now()
		if err == nil {
			n.take(ranges)
		}
	})
}

// take stores which node serves which slots. A node that is known keeps its breaker.
func (n *nodes) take(ranges []SlotRange) {
	if n.named == nil {
		n.named = make(map[string]*node)
	}
	table, seen := new([slots]*node), make(map[string]bool)
	for _, r := range ranges {
		if n.named[r.Node] == nil {
			n.named[r.Node] = &node{name: r.Node}
		}
		seen[r.Node] = true
		for slot := int(r.First); slot <= int(r.Last) && slot < slots; slot++ {
			table[slot] = n.named[r.Node]
		}
	}
	for name := range n.named {
		if !seen[name] {
			delete(n.named, name)
		}
	}
	n.slots.Store(table)
}

// each calls do with every node that is known, and its name.
func (n *nodes) each(do func(name string, n *node)) {
	do("", &n.one)
	for i := range n.ranges {
		do(fmt.Sprintf("slots %d to %d", i<<8, i<<8+255), &n.ranges[i])
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for name, one := range n.named {
		do(name, one)
	}
}

// ended notes how a call on a slot of the node ended.
func (s *Store) ended(n *node, h health, slot uint16, err error) {
	n.observe(h, err)
	probe := n.breaker.ended(h, slot)
	if s.driver.Cluster() && (h == healthBad || unserved(err)) {
		s.lookAround()
	}
	if probe && !s.background(func(ctx context.Context) {
		n.probe(ctx, func(ctx context.Context, slot uint16) health { return s.try(ctx, s.stillOf(n, slot)) })
	}) {
		n.leave()
	}
}

// stillOf returns a slot that a node serves: the given one, unless it has moved to another
// node.
func (s *Store) stillOf(n *node, slot uint16) uint16 {
	known := s.nodes.slots.Load()
	if known == nil || n.name == "" || known[slot] == n {
		return slot
	}
	if at := slices.Index(known[:], n); at >= 0 {
		slot = uint16(at)
	}
	return slot
}

// try probes the server of a slot by a command that a server runs only if it accepts
// writes, but that changes nothing.
func (s *Store) try(ctx context.Context, slot uint16) health {
	if s.driver.Cluster() {
		s.lookAround()
	}
	within, cancel := context.WithTimeout(ctx, max(patience, s.timeout))
	defer cancel()
	s.calls.Add(1)
	n := s.nodeOf(slot)
	r := s.callDetached(within, n, []string{s.names.probe(slot)}, []string{"d"})
	err := s.where(n, classify(r.err))
	h := healthAfter(ctx, err)
	n.observe(h, err)
	return h
}

// where adds the name of the server to a refusal.
func (s *Store) where(n *node, err error) error {
	if !refuses(err) {
		return err
	}
	at := n.name
	if own, ok := s.driver.(*connector); ok && at == "" {
		at = strings.Join(own.options.Addrs, ", ")
	}
	if at == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, at)
}

// load runs the script by its text if a node does not have it. Of several calls that find it
// missing, one sends the text, and the others wait for that.
func (s *Store) load(ctx context.Context, n *node, keys, args []string) (any, error) {
	for {
		mine := make(chan struct{})
		if n.loading.CompareAndSwap(nil, &mine) {
			defer close(mine)
			defer n.loading.Store(nil)
			return s.driver.Eval(ctx, source, keys, args)
		}
		if theirs := n.loading.Load(); theirs != nil {
			select {
			case <-*theirs:
			case <-ctx.Done():
				return nil, fmt.Errorf("%w: the script is being loaded: %w", ErrNotExecuted, ctx.Err())
			}
		}
		reply, err := s.driver.EvalSHA(ctx, sha, keys, args)
		if word(err) != "NOSCRIPT" {
			return reply, err
		}
	}
}

// background runs a function in a goroutine, with a context that ends when the store is
// closed. It returns false once the store is closed.
func (s *Store) background(run func(context.Context)) bool {
	s.beside.Lock()
	defer s.beside.Unlock()
	if s.closed.Load() {
		return false
	}
	s.besides.Go(func() { run(s.life) })
	return true
}

// endBackground ends the goroutines of background.
func (s *Store) endBackground() {
	s.beside.Lock()
	s.closed.Store(true)
	s.beside.Unlock()
	s.end()
	s.besides.Wait()
}
