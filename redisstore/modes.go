package redisstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/fallback"
	"github.com/stint-dev/stint/memstore"
)

// A Mode says where a limit is decided, and so what a decision costs, and how exact it
// is among several nodes: the processes that share the limit. [Store.Mode] binds limits in
// a mode. All nodes must bind a limit in the same mode, with the same [Modes] options.
type Mode uint8

const (
	// Strict calls the server for every request that may pass, and keeps the envelope
	// of docs/SEMANTICS.md to the unit. It answers a known denial locally for up to
	// Modes.DenialCache. Rules without a mode have this one. A bound of [Store.Bind]
	// is stricter still: it calls the server for every denial too.
	Strict Mode = iota

	// Lease takes units ahead by one call, and spends them without a call. It is for
	// hot keys under buckets. The server's bucket has the burst B − S, where S is
	// Modes.LeaseShare of the burst B, and all nodes together have at most S units in
	// hand. The units that they spend in a time d were in hand before, at most S, or
	// granted in it, at most B − S + d/T: all nodes together admit at most B + d/T,
	// the limit's own envelope.
	//
	// That holds if clocks run at the same rate to within an eighth over two seconds,
	// the server's clock does not step forward, and the server forgets nothing by a
	// failover or an eviction. A lease ends for its node before it ends for the server,
	// by a clock that counts suspends (CLOCK_BOOTTIME on Linux; elsewhere the monotonic
	// clock and each step forward of the time of day); a pause of a whole virtual
	// machine that its clocks do not show goes unnoticed. A step forward of the
	// server's clock, or leases that it forgets, cost at most S more units, once. The
	// units in hand of a killed node are lost.
	//
	// A request passes at most B − S units, which is the Limit of answers. A denial
	// may come up to 10 ms too early, and its RetryAfter may be longer by as much.
	// Reset forgets the units in hand here, not those of other nodes. Remaining and
	// ResetAfter are what this node knows. A limit that is no bucket, or whose S is
	// less than 16, is strict.
	Lease

	// Async decides by the last known sum and what this node has let through since,
	// which it adds to the sum every Modes.AsyncPeriod, room or not. While U units
	// are not acknowledged, the node lets nothing more through. Once the sum is at
	// the limit, each of N nodes can still let through up to U units: together at most
	// N·U more than the limit's envelope. While nodes have limits of one identity with
	// different parameters, the envelope is that of the largest burst and the fastest
	// rate. If an answer is lost, the node sends the same units again, and they count
	// once, if the server remembers ten minutes. The unsent units of a killed node, at
	// most U, are never counted. A leaky_queue and limits with count_denied are strict.
	Async

	// Share calls no server. This node holds its share of the limit, one of
	// Modes.Nodes, in memory; see [fallback.Share]. Together the nodes admit no more
	// than the limit, plus one unit for each node whose share is rounded up to one,
	// and less if the load is uneven.
	Share
)

var modeNames = [...]string{"strict", "lease", "async", "share"}

// String returns the mode's name.
func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return fmt.Sprintf("Mode(%d)", m)
}

// ParseMode returns the mode of a name: strict, lease, async or share.
func ParseMode(name string) (Mode, error) {
	for i, n := range modeNames {
		if n == name {
			return Mode(i), nil
		}
	}
	return 0, fmt.Errorf("redisstore: mode %q is not known: strict, lease, async or share", name)
}

// Modes are the options of modes.
type Modes struct {
	// LeaseShare is the fraction of a burst that all nodes together may have in hand,
	// above 0 and at most 0.5. The default value is 0.1.
	LeaseShare float64
	// LeaseKeys is the most keys, counted once for each limit, for which a node has
	// units in hand or not yet sent. Further keys are decided strictly. The default
	// value is 65,536.
	LeaseKeys int
	// NodeID names this process to people who look into Redis. It need not be
	// unique: random letters follow it. The default value is "node".
	NodeID string
	// Nodes is how many processes share the limits that are bound in mode
	// Share. The default value is 1.
	Nodes int
	// AsyncPeriod is how often a key in mode Async is synchronised while it is in
	// use. The default value is 100 ms.
	AsyncPeriod time.Duration
	// AsyncUnsent is U of mode Async, in units. The default value, 0, is a hundredth
	// of what the limit lets through at once, at least 1.
	AsyncUnsent int64
	// DenialCache is how long a denial is repeated without a call to the server, for
	// requests of the same key under one limit with the denied cost or more. The waits
	// are those of the denial less the time since. Under a limit that is no bucket or
	// queue, or has a ban, Remaining is that of the denial, and the wait for a greater
	// cost may be longer than answered. A denial is dropped when this store resets,
	// blocks, refunds or settles its key. Limits with count_denied have no cache. A
	// value below zero turns it off. The default value is 1 s.
	DenialCache time.Duration
}

// withDefaults returns the options with defaults filled in.
func (o Modes) withDefaults() Modes {
	if !(o.LeaseShare > 0) {
		o.LeaseShare = 0.1
	}
	o.LeaseShare = min(o.LeaseShare, 0.5)
	if o.LeaseKeys <= 0 {
		o.LeaseKeys = 65_536
	}
	if o.NodeID == "" {
		o.NodeID = "node"
	}
	o.Nodes = max(o.Nodes, 1)
	if o.AsyncPeriod <= 0 {
		o.AsyncPeriod = 100 * time.Millisecond
	}
	if o.DenialCache == 0 {
		o.DenialCache = time.Second
	}
	return o
}

// modes is what the views of one store share.
type modes struct {
	store *Store
	Modes
	node     string // the name of this process in Redis
	clock    func() int64
	local    atomic.Pointer[memstore.Store] // for mode Share; nil until a limit is bound in it
	heldKeys atomic.Int64                   // how many keys have units in hand or unsent
	returns  returns                        // counts returns: denials from before one are forgotten

	once    sync.Once                            // for start
	mu      sync.Mutex                           // guards what follows
	singles map[string]*boundLimit               // limits bound last in modes Lease and Async, by name
	strict  weakMap[boundLimit]                  // limits in mode Strict, by name and text
	shares  weakMap[atomic.Pointer[stint.Limit]] // limits bound last in mode Share, by name
	tables  []sweeper
	closed  bool

	done    chan struct{}
	running sync.WaitGroup
}

// A sweeper has units that the keeper sends to the server when they are due.
type sweeper interface {
	// sweep sends units that are due; if last, all of them.
	sweep(last bool)
	// empty reports whether there is nothing left to sweep.
	empty() bool
}

const sweepEvery = 100 * time.Millisecond

func newModes(s *Store, o Modes) *modes {
	m := &modes{
		store: s, Modes: o.withDefaults(), clock: s.now,
		singles: make(map[string]*boundLimit), done: make(chan struct{}),
	}
	m.returns.seed = maphash.MakeSeed()
	m.node = m.newName()
	if m.clock == nil {
		m.clock = newNodeClock().now
	}
	return m
}

// newName returns a name that is not in use in Redis.
func (m *modes) newName() string { return escape(m.NodeID) + "-" + rand.Text()[:10] }

// Mode returns a view of the store that binds limits in a mode. A request may have layers
// of several views of one store. Layers that this process decides are taken first, then the
// others with one script call; if that denies, what was taken here is put back. A layer that
// need not be asked, because another has denied here, answers as if it had room. In all
// modes but Share, the server decides TakeUpTo, reservations and refunds.
//
// Closing a view closes the store. For up to a second, it gives back units in hand, and
// sends unsent units.
func (s *Store) Mode(m Mode) stint.Store { return &view{s.modes, m} }

// view is a store whose Bind binds in a mode.
type view struct {
	*modes
	mode Mode
}

var (
	_ stint.Store      = (*view)(nil)
	_ fallback.Caching = (*view)(nil)
)

// Answered implements [fallback.Caching].
func (v *view) Answered() uint64 { return v.store.tally.ok.Load() }

// Close implements [stint.Store].
func (v *view) Close() error { return v.store.Close() }

// Bind implements [stint.Store].
func (v *view) Bind(name string, limits ...stint.Limit) (stint.Bound, error) {
	if v.mode > Share {
		return nil, fmt.Errorf("redisstore: %v is no mode", v.mode)
	}
	if v.mode == Share {
		return v.bindShares(name, limits)
	}
	held := make([]stint.Limit, len(limits))
	for i, l := range limits {
		held[i] = v.asHeld(v.mode, l)
	}
	bnd, err := v.store.Bind(name, held...) // checks all limits before any is stored
	if err != nil {
		return nil, err
	}
	b := &modeBound{modes: v.modes, name: name, all: make([]*boundLimit, len(limits)), onServer: bnd.(*bound)}
	for i, l := range limits {
		b.all[i] = v.boundLimit(v.mode, l, b.onServer.limits[i], b.onServer.compiled[i])
	}
	return b, nil
}

// asHeld returns the limit as the server holds it: in mode Lease, with a smaller burst.
func (m *modes) asHeld(mode Mode, l stint.Limit) stint.Limit {
	if s := m.leased(l); mode == Lease && s > 0 {
		return l.WithBurst(l.Burst() - s)
	}
	return l
}

// boundLimit returns the boundLimit of a limit in a mode. All bounds of the same limit share
// it, and so its denials and the units in hand; in modes lease and async, those of the limit
// that was bound last under the name.
func (m *modes) boundLimit(mode Mode, l stint.Limit, known *limit, f *compiled) *boundLimit {
	m.mu.Lock()
	defer m.mu.Unlock()
	strict := known.name + "\x00" + f.text
	old := m.singles[known.name]
	if mode == Strict {
		old = m.strict.get(strict)
	}
	if old != nil && old.mode == mode && old.limit == l && old.compiled == f {
		return old
	}
	one := &boundLimit{
		modes: m, mode: mode, name: known.name, limit: l, compiled: f,
		strict: &bound{store: m.store, name: known.name, limits: []*limit{known}, compiled: []*compiled{f}},
	}
	if !l.CountDenied() {
		one.denied = newDenials(m)
	}
	switch {
	case mode == Strict:
		m.strict.put(strict, one)
		return one
	case mode == Lease && m.leased(l) > 0 && f.fast != nil:
		one.lease = newLeases(one, m.leased(l))
		m.tables = append(m.tables, one.lease)
	case mode == Async && !l.Algorithm().Queues() && !l.CountDenied() && l.Ban() == 0:
		var before *accounts
		if old != nil {
			before = old.async
		}
		one.async = newAccounts(one, before)
		m.tables = append(slices.DeleteFunc(m.tables, func(t sweeper) bool { return before != nil && t == sweeper(before) }), one.async)
	}
	m.singles[known.name] = one
	return one
}

// start starts the keeper when the first key has units in hand or unsent. A store with a
// virtual clock has no keeper, so that runs are reproducible.
func (m *modes) start() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed && m.store.now == nil {
		m.running.Go(m.keep)
	}
}

// keep sweeps units in hand and unsent units until the store is closed.
func (m *modes) keep() {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-m.done:
			return
		case <-tick.C:
		}
		m.sweep(false)
	}
}

func (m *modes) sweep(last bool) {
	m.mu.Lock()
	all := append([]sweeper(nil), m.tables...)
	m.mu.Unlock()
	var idle []sweeper
	for _, t := range all {
		t.sweep(last)
		if t.empty() {
			idle = append(idle, t)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tables = slices.DeleteFunc(m.tables, func(t sweeper) bool {
		return slices.Contains(idle, t) && !m.current(t)
	})
}

// leasedUnits returns how many units are in hand under all limits together.
func (m *modes) leasedUnits() (n int64) {
	m.mu.Lock()
	all := slices.Clone(m.tables)
	m.mu.Unlock()
	for _, t := range all {
		if ls, ok := t.(*leases); ok {
			n += ls.units()
		}
	}
	return n
}

// current reports whether a limit still uses the sweeper. m.mu is held.
func (m *modes) current(t sweeper) bool {
	for _, one := range m.singles {
		if t == sweeper(one.lease) || t == sweeper(one.async) {
			return true
		}
	}
	return false
}

// background runs a call that no caller's context may end, in a goroutine, or at once on a
// virtual clock. It returns false once the store is closed.
func (m *modes) background(call func(context.Context)) bool {
	if m.store.now != nil {
		call(context.Background())
		return true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.running.Go(func() { call(context.Background()) })
	return true
}

// close gives back units in hand and sends unsent units. When it returns, no call is on its
// way.
func (m *modes) close() {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return
	}
	m.closed = true
	m.mu.Unlock()
	close(m.done)
	m.running.Wait()
	m.sweep(true)
	m.sweep(true)       // the first sweep of a key may have sent lost units again; now come the others
	m.heldKeys.Store(0) // units that could not be sent are lost
	if shares := m.local.Load(); shares != nil {
		_ = shares.Close()
	}
}

// BindMode is Bind in the mode of a name: strict, lease, async or share. It makes a Store a
// policy.ModeStore, so that each rule of a policy can name its mode. A request may have
// layers of several modes, and layers that were bound without a mode.
func (s *Store) BindMode(mode, name string, limits ...stint.Limit) (stint.Bound, error) {
	return s.modes.BindMode(mode, name, limits...)
}

// Check returns why BindMode would refuse limits, and changes nothing.
func (s *Store) Check(mode string, limits ...stint.Limit) error {
	return s.modes.Check(mode, limits...)
}

// BindMode is [Store.BindMode].
func (m *modes) BindMode(mode, name string, limits ...stint.Limit) (stint.Bound, error) {
	parsed, err := ParseMode(mode)
	if err != nil {
		return nil, err
	}
	return (&view{m, parsed}).Bind(name, limits...)
}

// Check is [Store.Check].
func (m *modes) Check(mode string, limits ...stint.Limit) error {
	if parsed, err := ParseMode(mode); err != nil || parsed == Share { // memory holds any limit
		return err
	}
	_, err := m.store.compileAll(limits)
	return err
}

// bindShares binds this node's share of each limit, in memory.
func (m *modes) bindShares(name string, limits []stint.Limit) (stint.Bound, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, stint.ErrClosed
	}
	if m.local.Load() == nil {
		m.local.Store(memstore.New(memstore.Options{Now: m.store.now}))
	}
	parts := make([]stint.Limit, len(limits))
	for i, l := range limits {
		parts[i] = fallback.Share(l, int64(m.Nodes))
	}
	b := &modeBound{modes: m, name: name, all: make([]*boundLimit, len(limits))}
	var err error
	if b.local, err = m.local.Load().Bind(name, parts...); err != nil {
		return nil, err
	}
	for i, l := range limits {
		one := &boundLimit{modes: m, mode: Share, name: stateName(name, l), limit: l}
		if one.share, err = m.local.Load().Bind(name, parts[i]); err != nil {
			return nil, err
		}
		if one.stands = m.shares.get(one.name); one.stands == nil {
			one.stands = new(atomic.Pointer[stint.Limit])
			m.shares.put(one.name, one.stands)
		}
		one.stands.Store(&l)
		b.all[i] = one
	}
	return b, nil
}
