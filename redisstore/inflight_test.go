package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/fallback"
	"github.com/stint-dev/stint/inflight"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/redisstore"
)

func flying(limits ...int64) []inflight.Hold {
	var holds []inflight.Hold
	for i, limit := range limits {
		holds = append(holds, inflight.Hold{Name: fmt.Sprintf("rule %d\x00in_flight", i), Key: "k", Limit: limit, Units: 1})
	}
	return holds
}

// running returns how many units of the first limit are in flight, by the server.
func running(t *testing.T, s *redisstore.Store) int64 {
	t.Helper()
	look := flying(0) // which has no room: what runs is what runs without it
	if _, err := s.InFlight().Look(t.Context(), look); err != nil {
		t.Fatal(err)
	}
	return look[0].Running
}

func acquire(t *testing.T, s *redisstore.Store, holds []inflight.Hold) bool {
	t.Helper()
	ok, err := s.InFlight().Acquire(t.Context(), holds)
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

// gets reports whether holds are taken, by a server that may not answer.
func gets(t *testing.T, s *redisstore.Store, holds []inflight.Hold) bool {
	ok, err := s.InFlight().Acquire(t.Context(), holds)
	return ok && err == nil
}

// TestInFlightShared shares a limit among stores: all or none under several limits, what is
// denied writes nothing, and what is given back is there for the others.
func TestInFlightShared(t *testing.T) {
	for name, url := range map[string]string{"server": redistest.Start(t).URL(), "cluster": clusterURL(t)} {
		t.Run(name, func(t *testing.T) {
			a, b := open(t, url, redisstore.Options{Prefix: "shared"}), open(t, url, redisstore.Options{Prefix: "shared"})
			both, of := flying(3, 2), flying(3, 2)
			for want := range int64(2) {
				memory, look := inflight.NewMemory(), flying(3, 2)
				for range want {
					if ok, err := memory.Acquire(t.Context(), flying(3, 2)); !ok || err != nil {
						t.Fatal(ok, err)
					}
				}
				for _, counts := range []interface {
					Look(context.Context, []inflight.Hold) (bool, error)
				}{memory, a.InFlight()} {
					if ok, err := counts.Look(t.Context(), look); !ok || err != nil || look[0].Running != want || look[1].Running != want {
						t.Errorf("a look beside %d: %+v, %v, %v", want, look, ok, err)
					}
				}
				if want == 0 && !acquire(t, a, both) {
					t.Fatal("denied with nothing held")
				}
			}
			if !acquire(t, b, of) {
				t.Fatal("denied with room for both")
			}
			if both[0].Running != 1 || of[0].Running != 2 || of[1].Running != 2 {
				t.Errorf("answers %+v, %+v", both, of)
			}
			for range 20 {
				denied := flying(3, 2)
				if acquire(t, b, denied) || denied[0].Denied || !denied[1].Denied || denied[1].Running != 2 || denied[1].Left() != 0 || denied[0].Of != 0 { // of the first nobody asked
					t.Fatalf("a third: %+v", denied)
				}
			}
			one := flying(3)
			if !acquire(t, a, one) { // the denials hold nothing of the first limit
				t.Fatalf("the first limit alone: %+v", one)
			}
			if ok, err := b.InFlight().Look(t.Context(), flying(3)); ok || err != nil {
				t.Errorf("a look with all taken: %v, %v", ok, err)
			}
			b.InFlight().Release(of)
			eventually(t, "what b gave back is not there for a", func() bool { return acquire(t, a, flying(3, 2)) })
		})
	}
}

func clusterURL(t *testing.T) string { return redistest.StartCluster(t, 3, 0).URL() }

// TestInFlightAway fails in time while the server is away, and what was held when it went,
// ended meanwhile, or was taken for a request that got no answer, is given back when it
// answers again: by the process, and by leases.
func TestInFlightAway(t *testing.T) {
	for name, holding := range map[string]func(of string) []inflight.Hold{
		"own":   func(string) []inflight.Hold { return flying(1) },
		"lease": func(of string) []inflight.Hold { return leased(1, of, time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			proxy := redistest.NewProxy(t, server.Addr)
			s := open(t, proxy.URL(), redisstore.Options{Prefix: "away", Timeout: 100 * time.Millisecond, Lease: time.Second})
			other := open(t, server.URL(), redisstore.Options{Prefix: "away", Lease: time.Second})
			one := holding("x")
			eventually(t, "it takes no place", func() bool { return gets(t, s, one) })
			proxy.Set(redistest.Fault{Stall: true})
			if ok, err := s.InFlight().Acquire(t.Context(), holding("y")); ok || !errors.Is(err, redisstore.ErrNotExecuted) && !errors.Is(err, redisstore.ErrAmbiguous) {
				t.Errorf("with the server away: %v, %v", ok, err)
			}
			s.InFlight().Release(one)
			s.InFlight().Release(leased(2, "of another process", 0))
			theirs := holding("z")
			eventually(t, "the lease does not end", func() bool { return acquire(t, other, theirs) })
			proxy.Set(redistest.Fault{})
			other.InFlight().Release(theirs)
			again := holding("w")
			eventually(t, "it takes no place again", func() bool { return gets(t, s, again) })
			s.InFlight().Release(again)
			eventually(t, "the key stays", func() bool { return server.CLI(t, "DBSIZE") == "0\n" })
		})
	}
}

// leased is units of a limit that have a lease.
func leased(limit int64, name string, ttl time.Duration) []inflight.Hold {
	holds := flying(limit)
	holds[0].Lease, holds[0].TTL = name, ttl
	return holds
}

// flightKey returns the one key of limits in flight.
func flightKey(t *testing.T, server *redistest.Server) string {
	t.Helper()
	return strings.TrimSpace(server.CLI(t, "KEYS", "*:flight:*"))
}

// TestInFlightAdded tells the server, once it answers, what was let in without it, of this
// process and of a lease, and that it has ended.
func TestInFlightAdded(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	s := open(t, proxy.URL(), redisstore.Options{Prefix: "added", Timeout: 100 * time.Millisecond, Lease: time.Second})
	other := open(t, server.URL(), redisstore.Options{Prefix: "added"})
	proxy.Set(redistest.Fault{Stall: true})
	own, lease, ended := flying(3), leased(3, "x", time.Hour), flying(3)
	for _, holds := range [][]inflight.Hold{own, lease, ended} {
		s.InFlight().Add(holds)
	}
	s.InFlight().Release(ended)
	proxy.Set(redistest.Fault{})
	eventually(t, "the server is not told", func() bool { return running(t, other) == 2 })
	s.InFlight().Release(lease) // once: when it is told again of a lease that it has forgotten, it keeps that until its time ends
	eventually(t, "the server is not told of the end of the lease", func() bool { return running(t, other) == 1 })
	s.InFlight().Release(own)
	eventually(t, "the key stays", func() bool { return server.CLI(t, "DBSIZE") == "0\n" })
}

// pool returns a policy of one rule without a key.
func pool(t *testing.T, s stint.Store, rule, secret string) *policy.Policy {
	t.Helper()
	p := made.Policy(t, s, made.Rules(t, `{"rules":[{"name":"pool","key":[],`+rule+`}]}`), policy.Options{Secret: []byte(secret)})
	t.Cleanup(p.Close)
	return p
}

// TestInFlightToken settles in one process what another, which has gone, has reserved, if it
// has the other's secret.
func TestInFlightToken(t *testing.T) {
	server := redistest.Start(t)
	process := func(secret string) (*redisstore.Store, *policy.Policy) {
		s := open(t, server.URL(), redisstore.Options{Prefix: "token"})
		return s, pool(t, s, `"limits":["1 in flight"]`, secret)
	}
	store, a := process("0123456789abcdef")
	_, b := process("0123456789abcdef")
	_, stranger := process("fedcba9876543210")
	r := new(policy.Result)
	reserve := func(p *policy.Policy) stint.ReservationID {
		t.Helper()
		id, err := p.Reserve(t.Context(), policy.Map{}, 1, time.Hour, r)
		if err != nil || r.StoreError != nil {
			t.Fatal(err, r.StoreError)
		}
		return id
	}
	token := reserve(a)
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if token == "" || reserve(b) != "" {
		t.Fatal("not one at once")
	}
	if _, err := stranger.Settle(t.Context(), token, 0); !errors.Is(err, stint.ErrReservation) {
		t.Errorf("with another secret: %v", err)
	}
	for range 2 {
		if _, err := b.Settle(t.Context(), token, 0); err != nil {
			t.Error(err)
		}
	}
	eventually(t, "what was settled is not given back", func() bool { return reserve(b) != "" })
}

// TestInFlightTokenAway settles in one process what another has let in while it had no server,
// before that server is told: it stays settled, whether the rules or a [fallback.Store] know
// what to do without one.
func TestInFlightTokenAway(t *testing.T) {
	byItself := func(s *redisstore.Store) stint.Store { return s }
	overStore := func(s *redisstore.Store) stint.Store { return fallback.New(s, fallback.Options{}) }
	for name, store := range map[string]func(*redisstore.Store) stint.Store{"rules": byItself, "store": overStore} {
		t.Run(name, func(t *testing.T) { settledAway(t, store) })
	}
}

func settledAway(t *testing.T, store func(*redisstore.Store) stint.Store) {
	server := redistest.Start(t)
	process := func() (*lateFlight, *redisstore.Store, *policy.Policy) {
		l := &lateFlight{Driver: redisstore.NewDriver(client(t, server.Addr)), lost: make(chan func() (any, error), 1000)}
		s := open(t, "", redisstore.Options{Driver: l, Prefix: "away", Lease: time.Hour}) // no beat of its own
		return l, s, pool(t, store(s), `"limits":["2 in flight"],"on_store_failure":"local"`, "0123456789abcdef")
	}
	cut, a, gives := process()
	_, b, settles := process()
	cut.loses.Store(true)
	token, err := gives.Reserve(t.Context(), policy.Map{}, 1, time.Hour, new(policy.Result))
	if err != nil || token == "" || cut.told.Load() != 0 {
		t.Fatal(token, err)
	}
	if _, err := settles.Settle(t.Context(), token, 0); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server is not told that it is settled", func() bool { return b.Flights() == 0 })
	cut.loses.Store(false)
	for n := range int64(2) {
		eventually(t, "the server is not told of what was let in", func() bool {
			a.RenewFlights()
			return cut.told.Load() > n
		})
	}
	r := new(policy.Result)
	if err := settles.Peek(t.Context(), policy.Map{}, 1, r); err != nil || r.Rules[0].Remaining != 2 {
		t.Errorf("%d of 2 are left, %v", r.Rules[0].Remaining, err)
	}
}

// TestInFlightAwayForgets keeps nothing of keys that were asked for while the server is away,
// but for the calls that may have reached it.
func TestInFlightAwayForgets(t *testing.T) {
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr)
	s := open(t, proxy.URL(), redisstore.Options{Timeout: 10 * time.Millisecond, Lease: time.Hour})
	proxy.Set(redistest.Fault{Stall: true})
	const keys = 1000
	for i := range keys {
		holds := flying(1)
		holds[0].Key = strconv.Itoa(i)
		if _, err := s.InFlight().Acquire(t.Context(), holds); err == nil {
			t.Fatal("it answers")
		}
	}
	eventually(t, "it keeps most keys", func() bool { return s.Flights() < keys/2 })
}

// TestInFlightNames keeps names apart that read the same once a limit's own name follows.
func TestInFlightNames(t *testing.T) {
	s := open(t, redistest.Start(t).URL(), redisstore.Options{})
	for _, of := range [][2]string{{"x", "b.in"}, {"x.b", "in"}, {"x%2Eb", "in"}} {
		l := made.Limiter(t, s, of[0], stint.InFlight(1).WithName(of[1]))
		d, release, err := l.Acquire(t.Context(), "k")
		defer release()
		if err != nil || !d.Allowed {
			t.Errorf("%q: %+v, %v", of, d, err)
		}
	}
}

// A flightGate is a driver that notes the calls for limits in flight, and holds back those
// that it is told to.
type flightGate struct {
	redisstore.Driver
	mu    sync.Mutex
	calls [][]string
	holds func(args []string) bool // nil for none
	held  chan string              // the keys of those that are held back
	open  chan struct{}            // lets one of them go
}

func (g *flightGate) EvalSHA(ctx context.Context, sha string, keys, args []string) (any, error) {
	if args[0] == "F" {
		g.mu.Lock()
		g.calls = append(g.calls, args)
		holds := g.holds != nil && g.holds(args)
		g.mu.Unlock()
		if holds {
			g.held <- keys[0]
			<-g.open
		}
	}
	return g.Driver.EvalSHA(ctx, sha, keys, args)
}

func (g *flightGate) hold(what func(args []string) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.holds = what
}

// count returns how many calls were such.
func (g *flightGate) count(such func(args []string) bool) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, args := range g.calls {
		if such(args) {
			n++
		}
	}
	return n
}

// takesUnits reports whether a call asks for units; one without that tells what is held.
func takesUnits(args []string) bool { return len(args) > 5 }

func gatedFlights(t *testing.T) (*flightGate, *redisstore.Store) {
	g := &flightGate{Driver: redisstore.NewDriver(client(t, redistest.Start(t).Addr)), held: make(chan string, 1000), open: make(chan struct{})}
	return g, open(t, "", redisstore.Options{Driver: g, Lease: time.Hour}) // no beat of its own
}

// A lateFlight is a driver that loses the calls for limits in flight that it is told to, for
// a test to make them late, and counts the others that tell what is held.
type lateFlight struct {
	redisstore.Driver
	loses atomic.Bool
	lost  chan func() (any, error)
	told  atomic.Int64
}

func (l *lateFlight) EvalSHA(ctx context.Context, sha string, keys, args []string) (any, error) {
	if args[0] == "F" && l.loses.Load() {
		l.lost <- func() (any, error) { return l.Driver.EvalSHA(context.WithoutCancel(ctx), sha, keys, args) }
		return nil, io.ErrUnexpectedEOF
	}
	reply, err := l.Driver.EvalSHA(ctx, sha, keys, args)
	if args[0] == "F" && !takesUnits(args) {
		l.told.Add(1)
	}
	return reply, err
}

// TestInFlightLateCall has a process give a unit back by a call that is lost, and take one
// again, of its own, or by the same lease as if without the store: when the lost call runs,
// the unit stays the process's, and no other gets it.
func TestInFlightLateCall(t *testing.T) {
	for name, holding := range map[string]func() []inflight.Hold{
		"own":   func() []inflight.Hold { return flying(2) },
		"lease": func() []inflight.Hold { return leased(2, "x", time.Hour) },
	} {
		server := redistest.Start(t)
		l := &lateFlight{Driver: redisstore.NewDriver(client(t, server.Addr)), lost: make(chan func() (any, error), 1000)}
		s := open(t, "", redisstore.Options{Driver: l, Prefix: "late", Lease: time.Hour}) // no beat of its own
		if !acquire(t, s, flying(2)) || !acquire(t, s, holding()) {
			t.Fatal("denied")
		}
		eventually(t, "calls do not end", func() bool { return s.CallingFlights() == 0 })
		l.loses.Store(true)
		s.InFlight().Release(holding())
		late := <-l.lost
		l.loses.Store(false)
		if name == "own" && !acquire(t, s, flying(2)) {
			t.Fatal("denied what was given back")
		} else if name == "lease" {
			l.told.Store(0)
			s.InFlight().Add(holding())
			eventually(t, "the server is not told", func() bool {
				s.RenewFlights()
				return l.told.Load() > 0
			})
		}
		if _, err := late(); err != nil {
			t.Fatal(err)
		}
		if acquire(t, open(t, server.URL(), redisstore.Options{Prefix: "late"}), flying(2)) {
			t.Errorf("%s: three in flight of two", name)
		}
	}
}

// TestInFlightGone asks for nobody who has gone: what they would get would be missing to
// those who are there.
func TestInFlightGone(t *testing.T) {
	g, s := gatedFlights(t)
	g.hold(takesUnits)
	first := make(chan bool)
	go func() { first <- gets(t, s, flying(9)) }()
	<-g.held
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 5 { // behind the first, which is on its way
		if ok, err := s.InFlight().Acquire(gone, flying(9)); ok || !errors.Is(err, context.Canceled) {
			t.Errorf("one that has gone: %v, %v", ok, err)
		}
	}
	g.hold(nil)
	g.open <- struct{}{}
	if !<-first {
		t.Error("the first does not pass")
	}
	last := flying(9)
	if !acquire(t, s, last) || last[0].Running != 2 {
		t.Errorf("the last: %+v", last)
	}
	if n := g.count(func(args []string) bool { return len(args) > 5+2 }); n > 0 || g.count(takesUnits) != 2 {
		t.Errorf("asked %d times, %d of them for several; two asked", g.count(takesUnits), n)
	}
}

// TestInFlightBusy renews what is held of a key for which calls are being made: one that
// only denies renews nothing.
func TestInFlightBusy(t *testing.T) {
	g, s := gatedFlights(t)
	if !acquire(t, s, flying(1)) {
		t.Fatal("denied")
	}
	g.hold(takesUnits)
	denied := make(chan bool)
	go func() {
		ok, err := s.InFlight().Acquire(t.Context(), flying(1))
		denied <- !ok && err == nil
	}()
	<-g.held
	s.RenewFlights()
	g.open <- struct{}{}
	if !<-denied {
		t.Error("a second is not denied")
	}
	eventually(t, "it is not renewed", func() bool {
		return g.count(func(args []string) bool { return !takesUnits(args) && args[3] == "1" }) == 1
	})
}

// TestInFlightRenewalGoesOn has requests come for a key while it is renewed, and more while
// these are decided: the next renewal, of all other keys too, waits for none of them.
func TestInFlightRenewalGoesOn(t *testing.T) {
	g, s := gatedFlights(t)
	if !acquire(t, s, flying(2)) {
		t.Fatal("denied")
	}
	eventually(t, "calls do not end", func() bool { return s.CallingFlights() == 0 })
	g.hold(func([]string) bool { return true })
	renewed, second := make(chan struct{}), make(chan bool, 1)
	go func() {
		s.RenewFlights()
		close(renewed)
	}()
	<-g.held
	go func() { second <- gets(t, s, flying(2)) }()
	eventually(t, "nobody asks", func() bool { return s.AskingFlights() == 1 })
	g.open <- struct{}{}
	<-g.held // that of the second
	select {
	case <-renewed:
	case <-time.After(time.Minute):
		t.Error("the renewal waits for a request")
	}
	g.open <- struct{}{}
	if !<-second {
		t.Error("the second does not pass")
	}
	g.hold(nil)
}

// TestInFlightTurn lets requests take units of a key that is to be renewed and waits for its
// turn behind others, from which no answer comes.
func TestInFlightTurn(t *testing.T) {
	g, s := gatedFlights(t)
	of := func(key string) []inflight.Hold {
		return []inflight.Hold{{Name: "n\x00in_flight", Key: key, Limit: 2, Units: 1}}
	}
	left := make(map[string]bool)
	for i := range redisstore.MostRenewing + 1 {
		key := fmt.Sprint("k", i)
		if left[key] = true; !acquire(t, s, of(key)) {
			t.Fatal("denied")
		}
	}
	// Who still makes calls for a key would renew it beside those whose turn it is.
	eventually(t, "calls do not end", func() bool { return s.CallingFlights() == 0 })
	g.hold(func(args []string) bool { return !takesUnits(args) })
	renewed := make(chan struct{})
	go func() {
		s.RenewFlights()
		close(renewed)
	}()
	for range redisstore.MostRenewing {
		held := <-g.held
		delete(left, held[strings.LastIndexByte(held, ':')+1:])
	}
	for key := range left {
		if ok, err := s.InFlight().Acquire(t.Context(), of(key)); !ok || err != nil {
			t.Errorf("%s, beside others that are being renewed: %v, %v", key, ok, err)
		}
	}
	g.hold(nil)
	close(g.open)
	<-renewed
}

// TestInFlightClockBack has the server's clock go back an hour behind a process that was
// killed: what it held comes back within its lease all the same.
func TestInFlightClockBack(t *testing.T) {
	server := redistest.Start(t)
	a, b := open(t, server.URL(), redisstore.Options{Prefix: "back", Lease: time.Second}), open(t, server.URL(), redisstore.Options{Prefix: "back"})
	if !acquire(t, a, flying(1)) {
		t.Fatal("denied")
	}
	_ = a.Close() // it renews no more, and gives nothing back
	const hour = int64(time.Hour / time.Millisecond)
	held, until := flightKey(t, server), strings.TrimSpace(server.CLI(t, "KEYS", "*:until:*"))
	var sum, written, past int64
	if _, err := fmt.Sscan(server.CLI(t, "HGET", held, "="), &sum, &written, &past); err != nil {
		t.Fatal(err)
	}
	server.CLI(t, "HSET", held, "=", fmt.Sprint(sum, written+hour, past+hour))
	server.CLI(t, "ZINCRBY", until, fmt.Sprint(hour), strings.TrimSpace(server.CLI(t, "ZRANGE", until, "0", "0")))
	server.CLI(t, "PEXPIRE", held, "3600000")
	server.CLI(t, "PEXPIRE", until, "3600000")
	eventually(t, "the place is not back", func() bool { return acquire(t, b, flying(1)) })
}

// TestInFlightPrice has the server run as many commands for a call with 2,000 reservations
// open as with ten, and none that reads all of them; and when they end, all are dropped.
func TestInFlightPrice(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, server.URL(), redisstore.Options{Prefix: "price", Lease: time.Hour})
	const most = 5_000
	commands := func() int64 {
		before := callsOf(t, server, "hget") + callsOf(t, server, "zrange") + callsOf(t, server, "hset") + callsOf(t, server, "zadd")
		if look := flying(most); !acquire(t, s, look) {
			t.Fatal("denied with room")
		}
		return callsOf(t, server, "hget") + callsOf(t, server, "zrange") + callsOf(t, server, "hset") + callsOf(t, server, "zadd") - before
	}
	few := int64(0)
	for n := range 2_000 {
		if !acquire(t, s, leased(most, fmt.Sprint("lease", n), time.Hour)) {
			t.Fatal("denied with room")
		}
		if n == 10 {
			few = commands()
		}
	}
	if many := commands(); many != few || callsOf(t, server, "hgetall") > 0 {
		t.Errorf("%d commands for a call with many open, %d with few, and %d read all", many, few, callsOf(t, server, "hgetall"))
	}
	passTime(t, server, time.Hour+time.Second)
	eventually(t, "what has ended counts", func() bool { return running(t, s) == 0 })
}

// passTime has time pass for the one key of limits in flight: what is written looks older.
func passTime(t *testing.T, server *redistest.Server, d time.Duration) {
	t.Helper()
	key := flightKey(t, server)
	var sum, written, past int64
	if key == "" {
		return
	}
	if _, err := fmt.Sscan(server.CLI(t, "HGET", key, "="), &sum, &written, &past); err != nil {
		t.Fatal(err)
	}
	server.CLI(t, "HSET", key, "=", fmt.Sprint(sum, written, past+d.Milliseconds()))
}

// A flight is units in flight of the model.
type flight struct {
	holds []inflight.Hold
	ends  time.Duration
	owner *redisstore.Store // nil of a lease, which any process gives back
}

// TestInFlightModel has two processes take and give back units of a key while time passes, of
// their own and by leases, and compares what runs with a model: the sum of those that were
// not given back, nor have ended. What is denied writes nothing.
func TestInFlightModel(t *testing.T) {
	server := redistest.Start(t)
	stores := [2]*redisstore.Store{}
	for i := range stores {
		stores[i] = open(t, server.URL(), redisstore.Options{Prefix: "model", Lease: 1000 * time.Hour})
	}
	random, now, model := rand.New(rand.NewPCG(7, 7)), time.Duration(0), map[string]flight{}
	sum := func() (units int64) {
		for _, f := range model {
			units += f.holds[0].Units
		}
		return units
	}
	giveBack := func(s *redisstore.Store, name string) {
		f := model[name]
		if delete(model, name); f.owner != nil {
			f.owner.InFlight().Release(f.holds)
			return
		}
		for range 1 + random.IntN(2) { // again is the same
			s.InFlight().Release(f.holds)
			s.InFlight().Release(leased(20, "unknown", 0))
		}
	}
	for n := range 400 {
		s := stores[random.IntN(2)]
		switch random.IntN(4) {
		case 0:
			now += time.Minute
			passTime(t, server, time.Minute)
			for name, f := range model {
				if f.ends < now {
					delete(model, name)
				}
			}
		case 1:
			for name := range model {
				giveBack(s, name)
				break
			}
		default:
			f := flight{holds: flying(20), ends: 1000 * time.Hour, owner: s}
			if random.IntN(3) > 0 {
				f.holds = leased(20, fmt.Sprint("lease", n), time.Duration(1+random.IntN(8))*time.Minute+30*time.Second)
				f.ends, f.owner = now+f.holds[0].TTL, nil
			}
			f.holds[0].Units = 1 + random.Int64N(4)
			want, before := sum()+f.holds[0].Units <= 20, dirty(t, server)
			if acquire(t, s, f.holds) != want || !want && dirty(t, server) != before {
				t.Fatalf("step %d: %d units beside %d of 20: passes is not %t, or a denial writes", n, f.holds[0].Units, sum(), want)
			}
			if want {
				model[fmt.Sprint(n)] = f
			}
		}
		eventually(t, fmt.Sprintf("step %d: not %d in flight", n, sum()), func() bool { return running(t, s) == sum() })
	}
	for name := range model {
		giveBack(stores[0], name)
	}
	eventually(t, "what was given back counts", func() bool { return running(t, stores[0]) == 0 })
}

// TestInFlightMost refuses a limit that is greater than the server counts, by a library and
// by rules, when it is bound.
func TestInFlightMost(t *testing.T) {
	s := open(t, redistest.Start(t).URL(), redisstore.Options{})
	const want = "100001 in flight: this store counts at most 100000 for a key"
	if _, err := stint.NewLimiter(s, "pool", stint.InFlight(100_001)); err == nil || !strings.Contains(err.Error(), `limit "pool": `+want) {
		t.Errorf("a limiter: %v", err)
	}
	rules := made.Rules(t, `{"rules":[{"name":"pool","key":[],"limits":["100001 in flight"]}]}`)
	for _, store := range []stint.Store{s, fallback.New(s, fallback.Options{})} {
		if _, err := policy.New(store, rules, policy.Options{}); err == nil || !strings.Contains(err.Error(), `rule "pool": `+want) {
			t.Errorf("rules: %v", err)
		}
	}
	if _, err := stint.NewLimiter(s, "pool", stint.InFlight(100_000)); err != nil {
		t.Error(err)
	}
}

// TestInFlightLease takes the usual lease for one that is none.
func TestInFlightLease(t *testing.T) {
	server := redistest.Start(t)
	s, other := open(t, server.URL(), redisstore.Options{Prefix: "lease", Lease: -1}), open(t, server.URL(), redisstore.Options{Prefix: "lease"})
	if !acquire(t, s, flying(1)) || acquire(t, other, flying(1)) {
		t.Error("it does not hold what it takes")
	}
}
