package stint

import (
	"context"
	"errors"
	"time"

	"github.com/stint-dev/stint/meter"
)

// A Store keeps the state of keys under limits, and is the clock. Every store
// answers as docs/SEMANTICS.md says, and passes the suite of package storetest.
//
// A request may have several layers. It passes if all of them pass at one instant,
// and then every layer is charged. Otherwise no layer is charged, except layers with
// count_denied. A denial is a [Decision]; an error means that no decision could be
// made, and that nothing was charged unless the error says so.
//
// A store that no other process shares may have a method
//
//	Watch(b Bound, key string, wake func()) (stop func())
//
// that calls wake after anything but time may have made room for key under b: a
// settlement, a refund, a reset or a changed limit. Then a [Limiter] whose callers
// wait need not poll the store once a second. See [TurnStore] too.
//
// All methods may be called from many goroutines at once.
type Store interface {
	// Bind makes limits known under a name and returns a Bound that decides by them,
	// for any key. State belongs to the name: callers that bind the same name share it,
	// and two names never do. The [Limit.ID] identifies a limit under a name: limits of
	// one ID share the state of a key, whatever their count and burst are. The error
	// says which limit the store cannot hold, and why; [CheckBind] reports what every
	// store refuses.
	Bind(name string, limits ...Limit) (Bound, error)
	// Decide answers op for layers that may be on different keys.
	Decide(ctx context.Context, op meter.Op, layers []Layer, cost int64) (Decision, error)
	// Reserve takes cost and, if it is allowed, returns an ID to settle it by within
	// ttl. If it is not settled by then, the cost stands as charged.
	Reserve(ctx context.Context, layers []Layer, cost int64, ttl time.Duration) (Decision, ReservationID, error)
	// Settle replaces a reservation's cost by the actual one, once; a second call
	// gives the same answer. If the actual cost is higher, the difference is
	// charged now, even if there is no room for it; if it is lower, the state
	// becomes what it would be had the reservation cost that all along.
	Settle(ctx context.Context, id ReservationID, cost int64) (Decision, error)
	// Refund removes up to cost of the units that still count in every layer, newest
	// first.
	Refund(ctx context.Context, layers []Layer, cost int64) (Decision, error)
	// Reset makes the keys as if never seen.
	Reset(ctx context.Context, layers []Layer) error
	// Close releases what the store holds. Later calls fail with [ErrClosed].
	Close() error
}

// Bound is the limits that were bound to a store under one name. Each key is held to
// all of them; with a key it makes a [Layer]. It belongs to that store.
type Bound interface {
	// Decide answers op for one key.
	Decide(ctx context.Context, op meter.Op, key string, cost int64) (Decision, error)
	// Allow is Decide of [meter.OpTake], and returns only whether the request passed.
	Allow(ctx context.Context, key string, cost int64) (bool, error)
	// Limits returns the limits in order, as they stand now.
	Limits() []Limit
	// Name returns the name that they were bound under.
	Name() string
}

// A Layer is a key under bound limits, as one part of a request. In docs/SEMANTICS.md, a
// layer is one limit with a key: a Layer with several limits is several of those.
type Layer struct {
	Bound Bound
	Key   string
	// Weight is how many units one unit of the request's cost takes in this layer. The
	// default value, 0, is 1; a value below zero is [ErrCost]. A cost times Weight that
	// exceeds an int64 never passes. The joined answer is in units of the request; a
	// reservation keeps its weights.
	Weight int64
	// Excuses is for how long units that Reserve takes in this layer excuse denials, while
	// they are not settled: a request that is denied only because of them begins no ban and
	// is not counted, and its RetryAfter is at most a second. The default value, 0, excuses
	// no denial. Other calls ignore it.
	Excuses time.Duration
	// Raises is a reservation of Key under Bound that Reserve adds to: if it does not exist
	// any more, as after Reset, the error is [ErrReservation], and nothing is taken. Each of
	// the two is settled by itself. Other calls ignore it.
	Raises ReservationID
	// Answers, if not nil, receives the answer of each limit of Bound by itself, in its
	// own units; if it is too short, the error is [ErrLayers]. Allowed says whether that
	// limit alone would let the request pass. Taken is what the limit was charged if all
	// limits let it pass, else 0, even if the limit counted a denial. Denied has limit 0
	// if this limit denied. Settle, Reset, calls that fail, and the modes Open and Closed
	// of package fallback do not write it.
	Answers []Decision
}

// A ReservationID names a reservation in its store. It cannot be guessed.
type ReservationID string

// Errors of stores and limiters, for errors.Is.
var (
	// ErrCost is for a cost or a weight below zero: use Refund to give units back.
	ErrCost = errors.New("stint: cost below zero")
	// ErrLayers is for a request with no layers, with more than [MaxLimits],
	// with the same key under the same limit twice, with limits that were bound
	// to another store, or with too little room for answers.
	ErrLayers = errors.New("stint: layers")
	// ErrReservation is for a reservation that is unknown, expired or forgotten.
	ErrReservation = errors.New("stint: no such reservation")
	// ErrFull is for a store without room for one more reservation or ban, and for a
	// queue in which no more requests may wait.
	ErrFull = errors.New("stint: full")
	// ErrAmbiguous is for a call whose answer was lost on the way: the store may
	// have done what it asked for.
	ErrAmbiguous = errors.New("stint: the answer was lost")
	// ErrClosed is for a store or queue that has been closed.
	ErrClosed = errors.New("stint: closed")
)

// A LostReservation is the error of Reserve whose answer was lost ([ErrAmbiguous]), if the store
// knows which ID the reservation then has. Whoever decides without the store cancels it.
type LostReservation struct {
	ID  ReservationID
	Err error
}

// Error implements error.
func (l *LostReservation) Error() string { return l.Err.Error() }

// Unwrap returns l.Err, which matches [ErrAmbiguous].
func (l *LostReservation) Unwrap() error { return l.Err }
