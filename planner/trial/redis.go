package trial

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/stint-dev/stint/redisstore"
)

// A Redis is the keys of one simulation in a server that others use too: they have a
// random prefix, and are removed at the end. It notes the name of each, so it is for
// thousands of keys, not for millions.
type Redis struct {
	// Prefix is what the names of the keys begin with, and no others.
	Prefix string

	client  rueidis.Client
	calls   sync.WaitGroup // on their way, also those whose caller has left
	mu      sync.Mutex
	keys    map[string]bool
	rooms   int
	removed bool // no call goes out any more
}

// NewRedis returns room for a simulation. The client stays the caller's to close.
func NewRedis(client rueidis.Client) *Redis {
	return &Redis{Prefix: "stint:scratch-" + strings.ToLower(rand.Text()[:10]), client: client, keys: make(map[string]bool)}
}

// room returns the prefix of stores that share keys with each other and no others.
func (r *Redis) room() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rooms++
	return r.Prefix + "-" + strconv.Itoa(r.rooms)
}

// Remove removes the keys, when all calls have ended, and lets no other call through.
func (r *Redis) Remove(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removed = true
	r.calls.Wait()
	for _, key := range slices.Sorted(maps.Keys(r.keys)) {
		if err := r.client.Do(ctx, r.client.B().Del().Key(key).Build()).Error(); err != nil {
			return fmt.Errorf("keys that begin with %s may be left there: %w", r.Prefix, err)
		}
		delete(r.keys, key)
	}
	return nil
}

// patience is how long a call may take: the times that matter are those of the
// simulation.
const patience = 10 * time.Second

// Open opens a store of one process, on a clock.
func (r *Redis) Open(now func() int64, modes redisstore.Modes) (*redisstore.Store, error) {
	return (&driver{redis: r, link: &link{}, now: now}).open(r.room(), modes)
}

// open opens what one process has of the server, in a room.
func (d *driver) open(room string, modes redisstore.Modes) (*redisstore.Store, error) {
	return redisstore.New(redisstore.Options{Driver: d, Prefix: room, Now: d.now, Timeout: patience, Modes: modes})
}

// A driver is one process's connection.
type driver struct {
	redis *Redis
	link  *link
	now   func() int64 // the process's clock
	// server is the server's clock, if it is another: its time goes with a call in
	// place of the process's. failed is then a call that should not have been.
	server func() int64
	failed *error
}

var _ redisstore.Driver = (*driver)(nil)

// errAway is what a server says that has done nothing. It opens no breaker: that
// would be tried again by the clock of this machine.
var errAway = redisstore.ReplyError("NOREPLICAS the server cannot be reached")

// EvalSHA implements [redisstore.Driver].
func (d *driver) EvalSHA(ctx context.Context, sha string, keys, args []string) (any, error) {
	if err := d.timed(args); err != nil {
		return nil, err
	}
	return d.run(ctx, "EVALSHA", sha, keys, args)
}

// Eval implements [redisstore.Driver]. Its time has been seen to: it is called where
// EvalSHA did not find the script.
func (d *driver) Eval(ctx context.Context, script string, keys, args []string) (any, error) {
	return d.run(ctx, "EVAL", script, keys, args)
}

// timed puts the server's time, which comes last, in place of the process's.
func (d *driver) timed(args []string) error {
	if d.server == nil || d.link.broken() {
		return nil
	}
	last := len(args) - 1
	if last < 0 || args[last] != strconv.FormatInt(d.now()/1000, 10) {
		*d.failed = fmt.Errorf("trial: a script was called without the time: %q", args)
		return *d.failed
	}
	args[last] = strconv.FormatInt(d.server()/1000, 10)
	return nil
}

func (d *driver) run(ctx context.Context, verb, script string, keys, args []string) (any, error) {
	if d.link.broken() {
		return nil, errAway
	}
	if verb == "EVALSHA" { // EVAL is the same call, where the script was not known
		d.link.calls.Add(1)
	}
	r := d.redis
	if !r.begin(keys) {
		return nil, errAway
	}
	defer r.calls.Done()
	// What was sent is waited for, though its caller has left: it may still write.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	v, err := r.client.Do(ctx, r.client.B().Arbitrary(verb, script, strconv.Itoa(len(keys))).Keys(keys...).Args(args...).Build()).ToAny()
	if rueidis.IsRedisNil(err) {
		return nil, nil
	}
	if reply, ok := rueidis.IsRedisErr(err); ok {
		err = redisstore.ReplyError(reply.Error())
	}
	return v, err
}

// begin notes the keys of a call that goes out now, unless they have been removed.
func (r *Redis) begin(keys []string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.removed {
		return false
	}
	for _, key := range keys {
		r.keys[strings.Clone(key)] = true
	}
	r.calls.Add(1)
	return true
}

// Cluster implements [redisstore.Driver].
func (d *driver) Cluster() bool { return d.redis.client.Mode() == rueidis.ClientModeCluster }

// Close implements [redisstore.Driver]. The client is everybody's.
func (d *driver) Close() {}
