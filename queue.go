package stint

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stint-dev/stint/internal/arrivals"
)

// ErrStale is for work that a [Queue] dropped because it would have started more than
// QueueOptions.MaxAge after it arrived.
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
	// MaxAge is how long after its arrival work may start. Work that would start
	// later is dropped with [ErrStale], at once if that is clear on arrival. The
	// default value is 0: nothing is too old.
	MaxAge time.Duration
	// MaxDepth is how many pieces of work may wait in this Queue. Under a leaky_queue
	// its burst is a bound too. The default value is the limit's own: the burst, or
	// the count of a window.
	MaxDepth int
}

// A Queue runs work at the pace of a limit, first come first served. Each piece
// of work takes one unit of one key; a [Job] may cost more, and go before others. Use a limit of algorithm [LeakyQueue],
// such as "10/s leaky_queue burst 50", for an even pace and a queue of 50; with
// any other algorithm a burst of work starts at once.
//
// A Queue shares the line of its key with [Limiter.Wait]. Work that is given up
// before it starts frees its place, and the work behind it moves up. When the
// queue is full, new work is refused at once.
//
// A Queue may be used from many goroutines at once. It runs one goroutine of
// its own, and only while submitted work waits. Giving up, and a
// start while jobs with priorities wait, take time in proportion to the waiters behind;
// every other operation takes constant time.
type Queue struct {
	limiter *Limiter
	key     string
	options QueueOptions

	submit sync.Mutex // orders Submits: they join the line as they are scheduled

	mu      sync.Mutex
	tickets list.List // *ticket: all that have not started, in order of arrival
	depth   int       // how many tickets are known to wait
	later   []*ticket // submitted work that waits, in order
	ranked  int       // how much of it has a priority other than 0
	running bool      // the scheduler runs
	closed  bool
	stats   QueueStats
	busy    sync.WaitGroup // counts tickets and the scheduler
}

// QueueStats is what a [Queue] holds and has done.
type QueueStats struct {
	// Depth is how many pieces of work wait.
	Depth int
	// Oldest is how long the oldest of them has waited.
	Oldest time.Duration
	// Next is how long until the next of them starts; 0 if none waits, or if that is
	// not known because other waiters of the key come first.
	Next time.Duration
	// Started is how much work has started, Refused how much found the queue full,
	// Dropped how much was dropped because it was too old, the store failed or the
	// queue closed, and Cancelled how much gave up because its context ended or would
	// end too soon.
	Started, Refused, Dropped, Cancelled uint64
	// Waited is how long all started work has waited together, and Longest the
	// longest wait.
	Waited, Longest time.Duration
}

// NewQueue returns a queue for one key of a limiter. Two queues for the same
// key of one limiter share the pace and the order. The error says what is missing or below 0.
func NewQueue(l *Limiter, key string, o QueueOptions) (*Queue, error) {
	if l == nil || l.bound == nil {
		return nil, errors.New("stint: NewQueue without a limiter: NewLimiter makes one")
	}
	if err := l.decides(); err != nil {
		return nil, err
	}
	if o.MaxAge < 0 || o.MaxDepth < 0 {
		return nil, fmt.Errorf("stint: NewQueue with MaxAge %v and MaxDepth %d: at least 0", o.MaxAge, o.MaxDepth)
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
	caller  context.Context // the caller's context
	open    context.Context // the same, but Close ends it too
	ctx     context.Context // the same as open, but MaxAge ends it too
	cancel  context.CancelCauseFunc
	stop    context.CancelFunc
	agesOut bool // MaxAge comes before the caller's deadline
	waits   bool // counted in depth
	job     Job  // zero for Do
}

// Do waits for its turn, then runs fn in this goroutine with ctx, and returns fn's error.
// If the wait fails, fn is not run, nothing stays charged, and the error is
//
//   - a [*FullError], at once, if the queue is full; it matches [ErrFull];
//   - [ErrStale] if the work is or would be older than MaxAge;
//   - [ErrClosed] after Close;
//   - otherwise that of [Limiter.Wait].
//
// When a context ends, its work gives up its place, and the work behind moves up. The
// queue goes on as soon as fn has started, and also if fn panics.
func (q *Queue) Do(ctx context.Context, fn func(context.Context) error) error {
	if fn == nil {
		return errNoWork
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	t, err := q.enter(ctx, 1)
	if err != nil {
		return err
	}
	_, err = t.waiter.Drive(t.ctx, false)
	if err := q.leave(t, err); err != nil {
		return err
	}
	return fn(ctx)
}

// Submit queues fn to run in a goroutine of its own when its turn comes, in one order with
// the work of Do. It returns nil once fn has a place. Otherwise it returns a [*FullError],
// [ErrStale] if fn would start too late, [ErrClosed] after Close, or the error of the store.
// After Submit has returned nil, fn may still be dropped, because it gets too old, the store
// fails or the queue closes. QueueStats.Dropped counts that.
//
// A panic in fn ends the program, as in any goroutine.
func (q *Queue) Submit(fn func()) error { return q.SubmitJob(Job{Run: fn}) }

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
		_, err := t.waiter.Drive(t.ctx, false)
		q.mu.Lock()
		if err == nil && q.ranked > 0 {
			q.promote(t)
		}
		if t.job.Priority != 0 {
			q.ranked--
		}
		q.mu.Unlock()
		q.start(t, err)
	}
}

// start runs submitted work if its wait has ended without an error, else its Dropped.
func (q *Queue) start(t *ticket, err error) {
	if err = q.leave(t, err); err == nil {
		go t.job.Run()
	} else if t.job.Dropped != nil {
		go t.job.Dropped(err)
	}
}

// enter makes a ticket and puts it in line.
func (q *Queue) enter(ctx context.Context, cost int64) (*ticket, error) {
	if q.limiter == nil {
		return nil, errNoQueue
	}
	t := &ticket{queue: q, caller: ctx, arrived: time.Now()}
	t.open, t.cancel = context.WithCancelCause(ctx)
	t.ctx, t.stop = t.open, func() {}
	t.age()
	t.waiter = &waiter{part: Part{q.limiter, q.key, cost}, terms: q.limiter.stand(q.limiter.terms.Load()), room: t.room}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		t.end()
		return nil, ErrClosed
	}
	q.busy.Add(1)
	t.place = q.tickets.PushBack(t)
	t.waiter.Join(t.waiter, arrivals.All, t.waiter.part.stand())
	return t, nil
}

// age ends the wait when the work is too old.
func (t *ticket) age() {
	if t.queue.options.MaxAge <= 0 {
		return
	}
	t.stop()
	end := t.arrived.Add(t.queue.options.MaxAge)
	deadline, bounded := t.caller.Deadline()
	t.agesOut = !bounded || end.Before(deadline)
	t.ctx, t.stop = context.WithDeadline(t.open, end)
}

// room returns an error if the queue has no room for a ticket that must wait. The waiter
// asks it once.
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
		if d.Allowed { // the limit lets it pass, but only later
			d.Allowed, d.Taken, d.Delay = false, 0, 0
			d.RetryAfter = Wait(max(q.next(), 1))
		}
		return &FullError{Decision: d}
	}
	q.depth++
	t.waits = true
	return nil
}

// leave counts how the wait of a ticket ended, and returns the error for the caller.
func (q *Queue) leave(t *ticket, err error) error {
	defer q.busy.Done()
	q.mu.Lock()
	defer q.mu.Unlock()
	err = t.verdict(err)
	gaveUp := t.gaveUp(err)
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
	case gaveUp:
		s.Cancelled++
	default:
		s.Dropped++
	}
	return err
}

// verdict returns the error of a wait that failed: ErrClosed, ErrStale, or err.
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

// gaveUp reports whether a verdict says that the caller's context has ended, or would end too
// soon. A store that fails may have the same errors.
func (t *ticket) gaveUp(err error) bool {
	var early *WaitError
	return ended(err) && (t.caller.Err() != nil || errors.As(err, &early))
}

// ended reports whether an error says that a context has ended, or would end too soon.
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
		if due, known := t.waiter.Due(); known {
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

// Close refuses new work, and drops the work that waits, which gives its places back. It
// returns when no work waits any more. It does not wait for started work, which may call
// it. Further calls do nothing.
func (q *Queue) Close() {
	q.mu.Lock()
	q.closed = true
	for e := q.tickets.Front(); e != nil; e = e.Next() {
		e.Value.(*ticket).cancel(ErrClosed)
	}
	q.mu.Unlock()
	q.busy.Wait()
}
