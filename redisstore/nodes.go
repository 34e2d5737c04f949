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

// ErrUnavailable is for a call that was not made, since the calls before it
// have failed or too many are on their way: it charged nothing. It is an
// [ErrNotExecuted] as well.
var ErrUnavailable = fmt.Errorf("%w: the server does not answer", ErrNotExecuted)

const (
	breakAfter = 3                      // failures in a row that open it
	firstPause = 50 * time.Millisecond  // until a server that failed is tried again
	longPause  = 500 * time.Millisecond // the most: a server that is back is noticed within a second
	mostProbes = 4                      // on their way at once
)

// A breaker keeps calls from a server that does not answer: after a few
// failures in a row none is made. Then it is tried beside the traffic, after
// pauses that grow and differ between processes, each time with more patience
// than a request has: no request is ever the one that tries, and a machine that is
// too busy to answer in time does not keep it open. It may be used from many
// goroutines at once; while all is well it costs one atomic read.
type breaker struct {
	trouble atomic.Bool // whether the rest is to be looked at

	mu      sync.Mutex
	failed  int    // in a row
	open    bool   // no calls
	probing bool   // a goroutine probes
	slot    uint16 // of the last call that failed
}

// Health is what a call says of its server.
type health uint8

const (
	healthUnknown health = iota // nothing: its caller gave up
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

// ended notes how a call on a slot ended. Calls that were on their way when the
// breaker opened count for nothing, unless they succeed. If probe is true, the
// caller has to probe from now on.
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

// probes reports where to probe. Once the breaker is closed there is no more to
// do: who probes has to end.
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

// probe tries a server until it answers, or ctx ends. A try that is on its way
// does not keep the next from being made.
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

// at returns where the last call failed.
func (b *breaker) at() uint16 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.slot
}

// A node is a server that scripts run on, as far as this store knows the servers
// of a cluster apart.
type node struct {
	breaker
	name    string                        // of one of a cluster
	loading atomic.Pointer[chan struct{}] // closed when the script has been sent; nil if it is not being sent
	room    room

	cause atomic.Pointer[cause] // nil if the server is well, as far as is known

	calls atomic.Uint64 // that were made
	took  atomic.Int64  // ns, all of them
}

// deniesKey reports whether a server denies a key to this client, and not the call.
func deniesKey(err error) bool { return word(err) == "NOPERM" && !refuses(err) }

// errNoNode is for a slot that no node of a cluster serves.
var errNoNode = fmt.Errorf("%w: no node of the cluster serves the slot", ErrNotExecuted)

// unserved reports whether nobody serves the slot of a call, as the cluster says or a
// node of it. The node may be well all the same, and serve others.
func unserved(err error) bool {
	return err != nil && (errors.Is(err, errNoNode) || strings.Contains(err.Error(), "Hash slot not served"))
}

// A cause is why no call is made while the breaker is open: an [ErrUnavailable] with
// what was last said. Of a server that lets this client run nothing it is also what the
// server said, an [ErrConfiguration].
type cause struct {
	text    string
	refusal error // nil if the server does not answer
}

// Error returns what was said.
func (c *cause) Error() string { return c.text }

// Unwrap returns what it is.
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

// refuses reports whether a server lets this client run nothing: it does not know the
// password, or keeps the user from commands that every call takes, or there is nothing
// to log in with. Where keys are denied, other limits may have theirs.
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

// observe records what a call, or a try, says of the server. A connection that broke says
// nothing of the login: each that is left from before does so once.
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

// A Topology is a driver of a cluster that says which node serves which slots.
// With a driver that does not, the store takes each 256 slots for a node.
type Topology interface {
	// Slots asks the cluster.
	Slots(ctx context.Context) ([]SlotRange, error)
}

// A SlotRange is slots of a cluster, both ends included, and the address of the node
// that serves them, or its name where nodes do not say their addresses.
type SlotRange struct {
	First, Last uint16
	Node        string
}

// nodes are those of a store. What is no cluster has one.
type nodes struct {
	one    node
	ranges [64]node                     // of a cluster of which no more is known
	slots  atomic.Pointer[[slots]*node] // of a cluster, once it has said who serves what
	apart  atomic.Bool                  // scripts are refused keys of several slots

	mu      sync.Mutex // guards what follows
	named   map[string]*node
	asking  bool
	askedAt time.Time
}

const askEvery = 100 * time.Millisecond // at most, which node serves which slots

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

// A place is what one call reaches: a node that is known, or a slot.
type place struct {
	node *node
	slot uint16
}

// placeOf returns where a slot is.
func (s *Store) placeOf(slot uint16) place {
	if known := s.nodes.slots.Load(); known != nil && known[slot] != nil && !s.nodes.apart.Load() {
		return place{node: known[slot]}
	}
	return place{slot: slot}
}

// named returns a call for keys of several slots as one that declares the first
// and names the others: lua/crossslot.lua.
func (s *Store) named(keys, args []string) (declared, all []string) {
	if len(keys) < 2 || !s.driver.Cluster() || oneSlot(keys) {
		return keys, args
	}
	all = append(make([]string, 0, 1+len(keys)+len(args)), "X", number(int64(len(keys)-1)))
	return keys[:1], append(append(all, keys[1:]...), args...)
}

// parted reports whether a call did not reach all of its keys, and so did nothing:
// some have moved to another node, or the server does not let scripts have keys
// that are only named. Then slot by slot is left.
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

// lookAround asks in the background who serves what, if that has not just been
// asked.
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

// take takes in who serves what. A node keeps its breaker.
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

// stillOf returns a slot that a node serves: the one that is given, unless it has
// moved to another node since.
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

// try asks the server that serves a slot for something that it does only if it
// would write, and that changes nothing.
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

// where adds to a refusal which server it is of.
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

// load runs the script by its text where a node does not have it. Of several
// calls that find it missing one sends the text; the others wait for that.
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

// background runs something beside the calls, with a context that ends when the
// store is closed. It reports false once it is.
func (s *Store) background(run func(context.Context)) bool {
	s.beside.Lock()
	defer s.beside.Unlock()
	if s.closed.Load() {
		return false
	}
	s.besides.Go(func() { run(s.life) })
	return true
}

// endBackground ends what runs beside the calls.
func (s *Store) endBackground() {
	s.beside.Lock()
	s.closed.Store(true)
	s.beside.Unlock()
	s.end()
	s.besides.Wait()
}
