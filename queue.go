package stint

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrStale is for work that a [Queue] dropped because it would have started
// later than QueueOptions.MaxAge after it arrived.
var ErrStale = errors.New("stint: too old to start")

// A FullError says that a [Queue] has no room; it matches [ErrFull]. Nothing
// was charged, and the work was not run.
type FullError struct {
	// Decision is the answer to the request; RetryAfter says when there may be
	// room.
	Decision Decision
}

// Error says when there may be room.
func (e *FullError) Error() string {
	return fmt.Sprintf("stint: the queue is full: retry after %v", e.Decision.RetryAfter)
}

// Unwrap returns ErrFull.
func (e *FullError) Unwrap() error { return ErrFull }

// QueueOptions are the bounds of a [Queue]. The zero value suits most programs.
type QueueOptions struct {
	// MaxAge drops work with [ErrStale] that would start later than this after
	// it arrived: at once, when that is clear on arrival. The default value is
	// 0: nothing is too old.
	MaxAge time.Duration
	// MaxDepth is the most that waits in this Queue, in pieces of work. Under a
	// leaky_queue its burst bounds what waits in any case. The default value is
	// what the limit says: the burst, or the count of a window.
	MaxDepth int
}

// A Queue runs work at the pace of a limit, first come first served. Each piece
// of work takes one unit of one key. Use a limit of algorithm [LeakyQueue],
// such as "10/s leaky_queue burst 50", for an even pace and a queue of 50; with
// any other algorithm a burst of work starts at once.
//
// A Queue shares the line of its key with [Limiter.Wait]. Work that is given up
// before it starts frees its place, and the work behind it moves up. When the
// queue is full, new work is refused at once.
//
// A Queue may be used from many goroutines at once. It runs one goroutine of
// its own, and only while submitted work waits. Giving up takes time in
// proportion to the waiters behind; every other operation takes constant time.
type Queue struct {
	limiter *Limiter
	key     string
	options QueueOptions

	submit sync.Mutex // orders Submits: they join the line as they are scheduled

	mu      sync.Mutex
	tickets list.List // *ticket: all that have not started, in order of arrival
	depth   int       // those of them that are known to wait
	later   []*ticket // submitted work that waits, in order
	running bool      // the scheduler is
	closed  bool
	stats   QueueStats
	busy    sync.WaitGroup // tickets and the scheduler
}

// QueueStats is what a [Queue] holds and has done.
type QueueStats struct {
	// Depth is how many wait.
	Depth int
	// Oldest is how long the oldest of them has waited.
	Oldest time.Duration
	// Next is how long until the next of them starts; 0 when none waits or it
	// is not known, since others are before it on the key.
	Next time.Duration
	// Started, Refused, Dropped and Cancelled are how many started, found the
	// queue full, were dropped as too old or by Close, and gave up because
	// their context ended or would have.
	Started, Refused, Dropped, Cancelled uint64
	// Waited is how long all that started have waited together, and Longest
	// the longest that one has.
	Waited, Longest time.Duration
}

// NewQueue returns a queue for one key of a limiter. Two queues for the same
// key of one limiter share the pace and the order. The error says what is missing.
func NewQueue(l *Limiter, key string, o QueueOptions) (*Queue, error) {
	if l == nil || l.bound == nil {
		return nil, errors.New("stint: NewQueue without a limiter: NewLimiter makes one")
	}
	if err := l.decides(); err != nil {
		return nil, err
	}
	return &Queue{limiter: l, key: key, options: o}, nil
}

var (
	errNoQueue = errors.New("stint: a Queue without a limiter: NewQueue makes one")
	errNoWork  = errors.New("stint: a Queue got nil in place of a function to run")
)

// A ticket is one piece of work that has not started.
type ticket struct {
	queue   *Queue
	place   *list.Element
	waiter  *waiter
	arrived time.Time
	caller  context.Context // the caller's
	ctx     context.Context // what it waits with: ended by MaxAge and Close too
	cancel  context.CancelCauseFunc
	stop    context.CancelFunc
	agesOut bool // MaxAge comes before the caller's deadline
	waits   bool // counted in depth
	fn      func()
}

// Do waits its turn, then runs fn in this goroutine with ctx and returns what
// it returns. When the wait fails, fn is not run, nothing stays charged, and
// the error is
//
//   - a [*FullError], at once, which matches [ErrFull];
//   - [ErrStale] for what is or would be older than MaxAge;
//   - [ErrClosed] after Close;
//   - what [Limiter.Wait] returns otherwise.
//
// A context that ends frees the place, and those behind it move up. Once fn
// has started it is its own matter, as is a panic in it: the queue goes on.
func (q *Queue) Do(ctx context.Context, fn func(context.Context) error) error {
	if fn == nil {
		return errNoWork
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	t, err := q.enter(ctx)
	if err != nil {
		return err
	}
	_, err = q.limiter.drive(t.ctx, t.waiter, false)
	if err := q.leave(t, err); err != nil {
		return err
	}
	return fn(ctx)
}

// Submit queues fn to run on a goroutine of its own when its turn comes, in
// order with those of Do. It returns once it is clear that fn has a place, or
// that it has not: with a [*FullError], with [ErrStale] when it would start
// too late, with [ErrClosed] after Close, or with what the store says. After
// Submit has returned nil, fn is still dropped, without a word but in the
// stats, when it turns out too old, when the store fails, and by Close.
//
// A panic in fn is that of any goroutine: it ends the program.
func (q *Queue) Submit(fn func()) error {
	if fn == nil {
		return errNoWork
	}
	q.submit.Lock()
	defer q.submit.Unlock()
	t, err := q.enter(context.Background())
	if err != nil {
		return err
	}
	t.fn = fn
	started, err := q.limiter.drive(t.ctx, t.waiter, true)
	switch {
	case err != nil:
		return q.leave(t, err)
	case started:
		q.start(t, nil)
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.later = append(q.later, t)
	if !q.running {
		q.running = true
		q.busy.Add(1)
		go q.schedule()
	}
	return nil
}

// schedule starts submitted work until there is none.
func (q *Queue) schedule() {
	defer q.busy.Done()
	for {
		q.mu.Lock()
		if len(q.later) == 0 {
			q.later, q.running = nil, false
			q.mu.Unlock()
			return
		}
		t := q.later[0]
		q.later[0], q.later = nil, q.later[1:]
		q.mu.Unlock()
		_, err := q.limiter.drive(t.ctx, t.waiter, false)
		q.start(t, err)
	}
}

// start runs submitted work whose wait has ended well.
func (q *Queue) start(t *ticket, err error) {
	if q.leave(t, err) == nil {
		go t.fn()
	}
}

// enter makes a ticket and puts it in line.
func (q *Queue) enter(ctx context.Context) (*ticket, error) {
	if q.limiter == nil {
		return nil, errNoQueue
	}
	t := &ticket{queue: q, caller: ctx, arrived: time.Now()}
	t.ctx, t.cancel = context.WithCancelCause(ctx)
	t.stop = func() {}
	if q.options.MaxAge > 0 {
		end := t.arrived.Add(q.options.MaxAge)
		deadline, bounded := ctx.Deadline()
		t.agesOut = !bounded || end.Before(deadline)
		t.ctx, t.stop = context.WithDeadline(t.ctx, end)
	}
	t.waiter = &waiter{cost: 1, terms: q.limiter.learn(), room: t.room}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		t.end()
		return nil, ErrClosed
	}
	q.busy.Add(1)
	t.place = q.tickets.PushBack(t)
	q.limiter.lines.join(q.key, t.waiter, q.limiter.watch)
	return t, nil
}

// room is asked once, when it is clear that the ticket must wait.
func (t *ticket) room(d Decision) error {
	q, w := t.queue, t.waiter
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.terms.queue && !d.Allowed {
		return &FullError{Decision: d}
	}
	most := int64(q.options.MaxDepth)
	if most <= 0 {
		most = w.terms.capacity
	}
	if int64(q.depth) >= most {
		if d.Allowed { // by the limit, for later
			d.Allowed, d.Taken, d.Delay = false, 0, 0
			d.RetryAfter = Wait(max(q.next(), 1))
		}
		return &FullError{Decision: d}
	}
	q.depth++
	t.waits = true
	return nil
}

// leave books how the wait of a ticket ended, and returns the error to tell.
func (q *Queue) leave(t *ticket, err error) error {
	defer q.busy.Done()
	q.mu.Lock()
	defer q.mu.Unlock()
	err = t.verdict(err)
	waited := time.Since(t.arrived)
	t.end()
	q.tickets.Remove(t.place)
	if t.waits {
		q.depth--
	}
	var full *FullError
	switch s := &q.stats; {
	case err == nil:
		s.Started++
		s.Waited += waited
		s.Longest = max(s.Longest, waited)
	case errors.As(err, &full):
		s.Refused++
	case err == ErrStale, err == ErrClosed:
		s.Dropped++
	case ended(err):
		s.Cancelled++
	}
	return err
}

// verdict returns why a wait failed: the store, the caller, its age or Close.
func (t *ticket) verdict(err error) error {
	var early *WaitError
	switch {
	case err == nil || !ended(err):
		return err
	case context.Cause(t.ctx) == ErrClosed:
		return ErrClosed
	case t.agesOut && t.caller.Err() == nil && (errors.As(err, &early) || t.ctx.Err() != nil):
		return ErrStale
	}
	return err
}

// ended reports whether the error is that of a context that ended or would.
func ended(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

func (t *ticket) end() {
	t.stop()
	t.cancel(nil)
}

// next returns how long until the first ticket that waits starts, if known.
func (q *Queue) next() time.Duration {
	if t := q.oldest(); t != nil {
		if due, known := q.limiter.lines.dueOf(t.waiter); known {
			return max(time.Until(due), 0)
		}
	}
	return 0
}

// oldest returns the first ticket that is known to wait, or nil.
func (q *Queue) oldest() *ticket {
	for e := q.tickets.Front(); e != nil; e = e.Next() {
		if t := e.Value.(*ticket); t.waits {
			return t
		}
	}
	return nil
}

// Stats returns how the queue stands, all at one moment.
func (q *Queue) Stats() QueueStats {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.stats
	s.Depth = q.depth
	if t := q.oldest(); t != nil {
		s.Oldest = time.Since(t.arrived)
		s.Next = q.next()
	}
	return s
}

// Close refuses new work and drops what waits, whose places are given back.
// It returns when nothing waits any more; it does not wait for work that has
// started, and may be called from it. Closing again does nothing more.
func (q *Queue) Close() {
	q.mu.Lock()
	q.closed = true
	for e := q.tickets.Front(); e != nil; e = e.Next() {
		e.Value.(*ticket).cancel(ErrClosed)
	}
	q.mu.Unlock()
	q.busy.Wait()
}
