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

// A Mode says where a limit is decided, and so what a decision costs and how
// exact it is among several nodes, as the processes that share the limit are
// called here. [Store.Mode] binds limits in one. All nodes must bind a limit in
// the same mode, with the same [Modes] options.
type Mode uint8

const (
	// Strict calls the server for every request that may pass: it holds the
	// envelope of docs/SEMANTICS.md to the unit. A known denial is answered
	// locally for up to Modes.DenialCache. It is the mode of rules that name
	// none. [Store.Bind] is stricter still: it calls the server for denials too.
	Strict Mode = iota

	// Lease takes units ahead with one call and spends them without one. It is
	// for hot keys under buckets. The server's bucket runs with the burst
	// B − S, where S is Modes.LeaseShare of the burst B, and sees to it that
	// all nodes together have at most S in hand. What they spend in any stretch
	// d was in hand before, at most S, or granted in it, at most B − S + d/T:
	// all nodes together admit at most B + d/T, the limit's own envelope.
	//
	// That holds as long as clocks run at the same rate to within an eighth
	// over two seconds, the server's does not step forward, and neither
	// failover nor eviction makes it forget. A lease ends for its node before
	// it ends for the server, by a clock that counts suspends (CLOCK_BOOTTIME
	// on Linux; elsewhere the monotonic clock and each step forward of the time
	// of day); the pause of a whole virtual machine that its own clocks do not
	// show is not seen. A server's clock that steps forward, or a server that
	// forgets what is leased, costs at most S more, once. When a node is killed,
	// the units that it had in hand are lost.
	//
	// One request passes at most B − S units, which is the Limit of answers; a
	// denial may come up to 10 ms too early, and its RetryAfter may be longer by
	// as much. Reset forgets what is in hand here, not what other nodes hold.
	// Remaining and ResetAfter are what this node knows: others spend
	// meanwhile. A limit of another kind, or one of which S is less than 16,
	// is strict.
	Lease

	// Async decides by the last known sum and what this node has let through
	// since. It adds that to the sum every Modes.AsyncPeriod, even if there is no
	// room for it. At U units that are not acknowledged, the node lets nothing
	// more through until they are. Once the sum is at the limit, each of N nodes
	// can still let through the U that it had not sent: together at most N·U more
	// than the limit's envelope; while nodes have limits of one identity with other
	// numbers, that of the largest burst and the fastest rate. A lost answer is requested again, and what was
	// sent counts once, if the server remembers ten minutes. What a node had not
	// sent when it is killed is never counted, at most U. A leaky_queue and
	// limits that count what they deny are strict.
	Async

	// Share calls no server: this node holds its part of the limit, one of
	// Modes.Nodes, in memory; see [fallback.Share]. Together the nodes admit no
	// more than the limit does, plus one unit a node where a part is rounded up
	// to it, and less when the load is uneven.
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
	// LeaseShare is which part of a burst all nodes together may have in hand,
	// above 0 and at most 0.5. The default value is 0.1.
	LeaseShare float64
	// LeaseKeys is the most keys, counted once for each limit, for which a node
	// has units in hand or not yet sent; further ones are decided strictly. The
	// default value is 65,536.
	LeaseKeys int
	// NodeID names this process to people who look into Redis. It need not be
	// unique: random letters follow it. The default value is "node".
	NodeID string
	// Nodes is how many processes share the limits that are bound in mode
	// Share. The default value is 1.
	Nodes int
	// AsyncPeriod is how often an async key is synchronised while it is asked
	// for. The default value is 100 ms.
	AsyncPeriod time.Duration
	// AsyncUnsent is U of mode Async, in units. The default value, 0, is one in
	// a hundred of what the limit lets through at once, at least 1.
	AsyncUnsent int64
	// DenialCache is how long at most a denial is answered again without a call to the
	// server: of a request with one limit, for the same key, and for the cost that was
	// denied or more. Its waits are those of the denial less the time that has passed.
	// Under a limit that is no bucket or queue, or has a ban, Remaining is that of the
	// denial, and the wait for a greater cost may be longer than answered. A denial is
	// dropped when this store resets, refunds or settles anything of its key. It is not
	// kept where a limit counts what it denies. A value below zero turns the cache off.
	// The default value is 1 s.
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

// modes are what the views of one store have in common.
type modes struct {
	store *Store
	Modes
	node     string // its name in Redis
	clock    func() int64
	local    atomic.Pointer[memstore.Store] // of mode Share; nil until a limit is bound in it
	heldKeys atomic.Int64                   // keys with something in hand or unsent
	returns  returns                        // what was given back: denials of before are forgotten

	once    sync.Once                            // start
	mu      sync.Mutex                           // guards what follows
	singles map[string]*boundLimit               // that were bound last in modes lease and async, by name
	strict  weakMap[boundLimit]                  // that ask the server each time, by name and text
	shares  weakMap[atomic.Pointer[stint.Limit]] // of mode Share, by name: the limit that was bound last
	tables  []sweeper
	closed  bool

	done    chan struct{}
	running sync.WaitGroup
}

// A sweeper is looked after by the keeper: what is idle is sent back.
type sweeper interface {
	// sweep sends what is due, all of it if it is the last time.
	sweep(last bool)
	// empty reports whether there is nothing left to look after.
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

// newName returns a name that nothing has in Redis.
func (m *modes) newName() string { return escape(m.NodeID) + "-" + rand.Text()[:10] }

// Mode returns the store with limits bound in a mode. The views of one store
// know each other's bounds, so that a request may have layers in several
// modes: those that are decided here are taken first, then the others with one
// script call, and when that denies, what was taken here is put back. A layer
// that is spared from being asked, because another has denied here, answers as
// if it had room. Take from up to, reservations and refunds are decided by the
// server in all modes but Share.
//
// Closing a view closes the store: what is in hand is given back, and what was
// not sent is sent, for up to a second.
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
	bnd, err := v.store.Bind(name, held...) // checks them all before any is known
	if err != nil {
		return nil, err
	}
	b := &modeBound{modes: v.modes, name: name, all: make([]*boundLimit, len(limits)), onServer: bnd.(*bound)}
	for i, l := range limits {
		b.all[i] = v.boundLimit(v.mode, l, b.onServer.limits[i], b.onServer.compiled[i])
	}
	return b, nil
}

// asHeld returns the limit as the server holds it.
func (m *modes) asHeld(mode Mode, l stint.Limit) stint.Limit {
	if s := m.leased(l); mode == Lease && s > 0 {
		return l.WithBurst(l.Burst() - s)
	}
	return l
}

// boundLimit returns what stands for the limit in a mode: the same for the same
// limit, so that all who bound it know its denials, and spend what is in hand,
// together.
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

// start starts the keeper, once there is something to look after. On a virtual
// clock there is none: it would make runs differ.
func (m *modes) start() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed && m.store.now == nil {
		m.running.Go(m.keep)
	}
}

// keep looks after what is in hand and unsent until the store is closed.
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

// leasedUnits returns how many units are in hand, of all limits together.
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

// current reports whether limits are still bound to it. m.mu is held.
func (m *modes) current(t sweeper) bool {
	for _, one := range m.singles {
		if t == sweeper(one.lease) || t == sweeper(one.async) {
			return true
		}
	}
	return false
}

// background runs a call that no caller's context may end, at once on a
// virtual clock. It reports false once the store is closed.
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

// close sends back what is in hand and sends what was not; then no call is on
// its way.
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
	m.sweep(true)       // what came in behind what had been lost on its way
	m.heldKeys.Store(0) // what could not be sent is lost with the process
	if shares := m.local.Load(); shares != nil {
		_ = shares.Close()
	}
}

// BindMode is Bind for limits that are held in the mode of a name: strict, lease,
// async or share. With it a Store is a policy.ModeStore, and each rule of a policy
// names its mode. A request may have layers of several modes, and layers that were
// bound without one.
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
	if parsed, err := ParseMode(mode); err != nil || parsed == Share { // that is held in memory
		return err
	}
	_, err := m.store.compileAll(limits)
	return err
}

// bindShares binds limits in memory, each this node's part.
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
