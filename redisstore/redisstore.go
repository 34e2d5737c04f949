package redisstore

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-dev/stint"
)

// Options name the Redis server and the keys in it. URL, Client or Driver is
// required.
type Options struct {
	// URL is where the server is, such as redis://user:password@host:6379/0,
	// rediss:// for TLS, or unix://; [ParseURL] says what else it may hold. The
	// store makes a client of its own and closes it.
	URL string
	// Credentials, if set, returns what each new connection to the URL's servers
	// logs in with, instead of the user and password in the URL. It is called again
	// when the credentials expire. It may take a while; a connection fails with its
	// error. It is called from many goroutines at once.
	Credentials func(ctx context.Context) (Credentials, error)
	// Client is a client of yours, instead of URL; the store does not close it. It is a
	// *redis.Client of one server or a Sentinel set, a *redis.ClusterClient, or a type that
	// embeds one of these. It is no Ring, which has the keys of one call on several servers,
	// and no AutoPipeliner. Set ContextTimeoutEnabled in its options: without it go-redis
	// ignores a context while it reads, so that each call needs a goroutine, which is left
	// behind at the deadline. Give it the Dialer that [ParseURL] returns, which refuses a
	// reply that declares more than 64 MiB: go-redis allocates any length, and ends the
	// process. Without that Dialer, a failed write is an [ErrAmbiguous], though it sent
	// nothing. MaxRedirects is how often a cluster's client follows a call to another node
	// within its time; beyond that the call is an [ErrNotExecuted].
	Client redis.UniversalClient
	// Driver is a driver of another client library, instead of Client. The store
	// does not close it.
	Driver Driver
	// Prefix begins every key. It must not hold a brace. The default value is
	// "stint".
	Prefix string
	// Tag returns the text that decides in which slot of a cluster a key lies: keys
	// with the same tag are in one slot. It must always return the same tag for a
	// key. The default is the key itself.
	Tag func(key string) string
	// HashSecret, if it is not empty, hides keys and tags: Redis holds their
	// HMAC-SHA-256 under the secret. The default value is nil: Redis holds them as
	// they are, and hashed only if they are long or hold braces.
	HashSecret []byte
	// MaxLog is the largest count of a sliding_log that is accepted, and a quarter of
	// the entries that all states of sliding_log and sliding_buckets of one request
	// may hold together. The default value is 10,000.
	MaxLog int64
	// Timeout is how long an operation may take. If the context ends sooner, an
	// operation has three quarters of the time until then; the rest is left to decide
	// without the store. The default value is 15 ms.
	Timeout time.Duration
	// NewKeys is how many keys a second this store may create in Redis, and how many
	// at once. Further new keys share overflow keys, and existing keys do not:
	// together the new keys get at most 1,024 times each limit, and each at most
	// twice its limit, once on an overflow key and once on its own. A key that expires
	// within a second costs nothing. A value below zero is no bound. The default value,
	// 0, makes the bound depend on the memory that the server has left (INFO), of
	// which 85 % are for keys; it is 10,000 if the server does not report that, and
	// none with Now.
	NewKeys int
	// Lease is how long units in flight still count after a process that holds them
	// was killed or cut off. A process renews its units three times in a Lease. The
	// default value is 10 s.
	Lease time.Duration
	// Modes are for limits that are bound through [Store.Mode].
	Modes Modes
	// Now, if set, is the clock: nanoseconds since the Unix epoch, rounded down to
	// microseconds. Keys then never expire. It is for simulations and tests. The
	// default is the server's TIME.
	Now func() int64
}

// Store implements [stint.Store] in Redis.
type Store struct {
	driver  Driver
	own     bool // Close closes driver
	names   names
	maxLog  int64
	timeout time.Duration
	now     func() int64
	ahead   atomic.Int64 // how far the server's clock was ahead of this one's, in ns, when a calendar asked
	closed  atomic.Bool
	close   sync.Once

	born         time.Time
	calls        atomic.Int64 // on their way
	nodes        nodes
	newKeys      *budget
	byRoom       bool          // the room that the server has left decides, not the budget alone
	shared       atomic.Uint64 // decisions that overflow keys took part in
	sharedDenied atomic.Uint64 // how many of these an overflow key denied
	heart        heart
	batchers     batchers
	inFlight     int // calls on their way to one place before requests wait
	tally        tally

	mu     sync.Mutex        // guards limits
	limits map[string]*limit // by name

	modes   *modes
	flights *flights

	life    context.Context // ends when the store is closed
	end     context.CancelFunc
	beside  sync.Mutex // guards besides, until the store is closed
	besides sync.WaitGroup
}

var _ stint.Store = (*Store)(nil)

// New returns a store in the Redis that the options name. With a URL it tries to connect
// for up to a second. If the server does not answer, New still returns the store, which
// connects when it can; until then calls fail fast. It returns an error if the options
// cannot work, or the server refuses the password.
func New(o Options) (*Store, error) {
	if o.Prefix == "" {
		o.Prefix = "stint"
	}
	if strings.ContainsAny(o.Prefix, "{}") {
		return nil, errors.New("redisstore: Options.Prefix must not hold a brace: braces mark the slot of a cluster")
	}
	if o.MaxLog <= 0 {
		o.MaxLog = 10_000
	}
	if o.Timeout <= 0 {
		o.Timeout = 15 * time.Millisecond
	}
	byRoom := false
	switch {
	case o.NewKeys == 0 && o.Now != nil:
		o.NewKeys = -1
	case o.NewKeys == 0:
		o.NewKeys, byRoom = 10_000, true
	}
	s := &Store{
		driver:  o.Driver,
		names:   newNames(o.Prefix, o.Tag, o.HashSecret, tags),
		maxLog:  o.MaxLog,
		timeout: o.Timeout,
		now:     o.Now,
		born:    time.Now(), inFlight: maxInFlight,
		newKeys: newBudget(o.NewKeys), byRoom: byRoom,
		limits: make(map[string]*limit),
	}
	switch {
	case s.driver != nil:
	case o.Client != nil:
		given := newDriver(o.Client)
		if given.refusal != nil {
			return nil, given.refusal
		}
		s.driver = given
	case o.URL != "":
		options, err := optionsOf(o.URL, o.Timeout, o.Credentials)
		if err != nil {
			return nil, err
		}
		own := newConnector(options)
		s.driver, s.own = own, true
		if err := own.first(); err != nil {
			return nil, err
		}
	default:
		return nil, errors.New("redisstore: Options name no server: give a URL, a Client or a Driver")
	}
	s.life, s.end = context.WithCancel(context.Background())
	s.modes = newModes(s, o.Modes)
	s.flights = newFlights(s, o.Lease)
	return s, nil
}

// Bind implements [stint.Store]. It calls no server.
func (s *Store) Bind(name string, limits ...stint.Limit) (stint.Bound, error) {
	if s.closed.Load() {
		return nil, stint.ErrClosed
	}
	if err := stint.CheckBind(name, limits); err != nil {
		return nil, err
	}
	all, err := s.compileAll(limits)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := &bound{store: s, name: name, limits: make([]*limit, len(limits)), compiled: all}
	for i, f := range all {
		full := stateName(name, f.limit)
		l := s.limits[full]
		if l == nil {
			l = &limit{name: full, segment: escape(full)}
			s.limits[full] = l
		}
		if old := l.last.Load(); old != nil && old.limit == f.limit {
			b.compiled[i] = old
		} else {
			l.last.Store(f)
		}
		b.limits[i] = l
	}
	return b, nil
}

// compileAll returns limits in the form that the script takes, or why they cannot be bound.
func (s *Store) compileAll(limits []stint.Limit) (all []*compiled, err error) {
	all = make([]*compiled, len(limits))
	entries := int64(0)
	for i, l := range limits {
		if all[i], err = compile(l, s.maxLog); err != nil {
			return nil, err
		}
		entries += all[i].entries
	}
	return all, s.bearable(entries)
}

// Close implements [stint.Store]. What keys have used stays in Redis.
func (s *Store) Close() error {
	err := stint.ErrClosed
	s.close.Do(func() {
		s.modes.close()
		s.fallSilent()
		s.endBackground()
		if s.own {
			s.driver.Close()
		}
		err = nil
	})
	return err
}
