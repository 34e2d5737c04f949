package policy_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/inflight"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/policy"
)

// A waitLog notes what happened to requests that wait, and when.
type waitLog struct {
	sync.Mutex
	began time.Time
	lines []string
	all   sync.WaitGroup
}

// wait has a request wait, and then hold its places in flight for so long.
func (l *waitLog) wait(ctx context.Context, t *testing.T, p *policy.Policy, name string, attrs policy.Map, most, runs time.Duration) {
	l.all.Go(func() {
		r := &policy.Result{WillRelease: true}
		_, err := p.Wait(ctx, attrs, 1, most, r)
		what := map[bool]string{true: "starts", false: "denied"}[r.Decision.Allowed]
		if err != nil {
			what = err.Error()
		} else if !r.Decision.Allowed {
			what += fmt.Sprintf(" for %v by %s", time.Duration(r.Decision.RetryAfter), r.Rules[r.Tightest].Rule)
		}
		l.add(name + " " + what)
		if end := r.Release(); end != nil {
			time.Sleep(runs)
			end()
		}
	})
	synctest.Wait()
}

func (l *waitLog) add(what string) {
	l.Lock()
	defer l.Unlock()
	l.lines = append(l.lines, fmt.Sprintf("%v %s", time.Since(l.began), what))
}

// check compares the log with what is wanted; entries of one moment may come in any order.
func (l *waitLog) check(t *testing.T, want string) {
	t.Helper()
	l.all.Wait()
	lines := strings.Split(strings.TrimSpace(want), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	slices.Sort(lines)
	if slices.Sort(l.lines); !slices.Equal(l.lines, lines) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(l.lines, "\n"), strings.Join(lines, "\n"))
	}
}

// TestWaitInLine has requests wait under every kind of limit: each as long as its rule or its
// caller lets it, in order, until all its limits let it pass at one moment. A request that
// would wait longer is denied at once.
func TestWaitInLine(t *testing.T) {
	for name, test := range map[string]struct {
		rules string
		do    func(ctx context.Context, t *testing.T, p *policy.Policy, l *waitLog)
		want  string
	}{
		"a bucket": {`{"name":"b","key":[],"limits":["1/s burst 1"]}`, func(ctx context.Context, t *testing.T, p *policy.Policy, l *waitLog) {
			for i := range 4 {
				l.wait(ctx, t, p, fmt.Sprint(i), nil, 10*time.Second, 0)
			}
			l.wait(ctx, t, p, "too late", nil, 3*time.Second, 0)
			l.wait(ctx, t, p, "in time", nil, 4*time.Second, 0)
			soon, stop := context.WithTimeout(ctx, 3*time.Second)
			defer stop()
			l.wait(soon, t, p, "too late for its caller", nil, 10*time.Second, 0)
			l.wait(ctx, t, p, "not at all", nil, -1, 0)
		}, `0s 0 starts
			1s 1 starts
			2s 2 starts
			3s 3 starts
			0s too late denied for 4s by b
			4s in time starts
			0s too late for its caller denied for 5s by b
			0s not at all denied for 5s by b`},
		"the rule says": {`{"name":"b","key":[],"limits":["1/s burst 1"],"wait":"2s"}`, func(ctx context.Context, t *testing.T, p *policy.Policy, l *waitLog) {
			for i := range 4 {
				l.wait(ctx, t, p, fmt.Sprint(i), nil, 0, 0)
			}
			l.wait(ctx, t, p, "less", nil, time.Second, 0)
		}, `0s 0 starts
			1s 1 starts
			2s 2 starts
			0s 3 denied for 3s by b
			0s less denied for 3s by b`},
		"a window": {`{"name":"w","key":[],"limits":["2/s fixed_window"],"wait":"10s"}`, func(ctx context.Context, t *testing.T, p *policy.Policy, l *waitLog) {
			for i := range 5 {
				l.wait(ctx, t, p, fmt.Sprint(i), nil, 0, 0)
			}
		}, `0s 0 starts
			0s 1 starts
			1s 2 starts
			1s 3 starts
			2s 4 starts`},
		"a bucket and a place": {`{"name":"p","key":[],"limits":["1 in flight"],"wait":"20s"},{"name":"b","key":[],"limits":["1/s burst 1"],"wait":"20s"}`,
			func(ctx context.Context, t *testing.T, p *policy.Policy, l *waitLog) {
				l.wait(ctx, t, p, "long", nil, 0, 2500*time.Millisecond)
				l.wait(ctx, t, p, "short", nil, 0, 100*time.Millisecond)
				l.wait(ctx, t, p, "last", nil, 0, 0)
			}, `0s long starts
			2.5s short starts
			3.5s last starts`},
		"two keys": {`{"name":"each","key":["user"],"limits":["1/s burst 1"],"wait":"20s"},{"name":"all","key":[],"limits":["10/s burst 1"],"wait":"20s"}`,
			func(ctx context.Context, t *testing.T, p *policy.Policy, l *waitLog) {
				for _, user := range []string{"a", "a", "a", "b", "b"} {
					l.wait(ctx, t, p, user, policy.Map{"user": user}, 0, 0)
				}
			}, `0s a starts
			1s a starts
			2s a starts
			100ms b starts
			1.1s b starts`},
		"who leaves": {`{"name":"b","key":[],"limits":["1/s burst 1"],"wait":"1h"}`, func(ctx context.Context, t *testing.T, p *policy.Policy, l *waitLog) {
			l.wait(ctx, t, p, "0", nil, 0, 0)
			var leave []func()
			for i := range 6 {
				gone, cancel := context.WithCancel(ctx)
				leave = append(leave, cancel)
				l.wait(gone, t, p, fmt.Sprint(i+1), nil, 0, 0)
			}
			time.Sleep(500 * time.Millisecond)
			for _, i := range []int{0, 3, 5} {
				leave[i]()
			}
		}, `0s 0 starts
			500ms 1 context canceled
			1s 2 starts
			2s 3 starts
			500ms 4 context canceled
			3s 5 starts
			500ms 6 context canceled`},
		"no ban": {`{"name":"b","key":[],"limits":["1/s burst 1 ban 1h"],"wait":"1h"}`, func(ctx context.Context, t *testing.T, p *policy.Policy, l *waitLog) {
			for i := range 3 {
				l.wait(ctx, t, p, fmt.Sprint(i), nil, 0, 0)
			}
		}, `0s 0 starts
			1s 1 starts
			2s 2 starts`},
		"a reload": {`{"name":"b","key":[],"limits":["1/s burst 1"],"wait":"1h"}`, func(ctx context.Context, t *testing.T, p *policy.Policy, l *waitLog) {
			for i := range 3 {
				l.wait(ctx, t, p, fmt.Sprint(i), nil, 0, 0)
			}
			next, err := p.Reload(p.Rules())
			if err != nil {
				t.Fatal(err)
			}
			l.wait(ctx, t, next, "behind", nil, 0, 0)
		}, `0s 0 starts
			1s 1 starts
			2s 2 starts
			3s behind starts`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := inFlight(t, `{"attributes":["user"],"rules":[`+test.rules+`]}`)
				l := &waitLog{began: time.Now()}
				test.do(t.Context(), t, p, l)
				l.check(t, test.want)
			})
		})
	}
}

// TestWaitBeside: a request that does not wait is decided as if waiting requests had taken
// what they need; and new room goes to the first of the line at once.
func TestWaitBeside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := inFlight(t, `{"attributes":["user"],"rules":[{"name":"b","key":[],"limits":["1/h burst 3 ban 2h"],"wait":"1h"},{"name":"n","key":["user"],"limits":["1 in flight"]}]}`)
		l, r, attrs := &waitLog{began: time.Now()}, &policy.Result{WillRelease: true}, policy.Map{"user": "a"}
		other := policy.Map{"user": "z"}
		if err := p.Decide(t.Context(), attrs, 2, r); err != nil || !r.Decision.Allowed {
			t.Fatal(r.Decision, err)
		}
		end := r.Release()
		ctx, leave := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := p.Wait(ctx, policy.Map{"user": "b"}, 2, 0, &policy.Result{WillRelease: true})
			done <- err
		}()
		synctest.Wait()
		for range 2 {
			if err := p.Decide(t.Context(), other, 1, r); err != nil || r.Decision.Allowed || r.Rules[0].Banned || !r.Rules[0].Denied || r.Decision.RetryAfter != stint.Wait(2*time.Hour) || r.Tightest != 0 {
				t.Errorf("beside one that waits: %+v, %+v, %v", r.Decision, r.Rules, err)
			}
		}
		leave()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		end()
		if err := p.Decide(t.Context(), attrs, 1, r); err != nil || !r.Decision.Allowed {
			t.Errorf("when it has left: %+v, %v", r.Decision, err)
		}
		r.Release()()
		l.wait(t.Context(), t, p, "waits", policy.Map{"user": "c"}, 0, 0)
		time.Sleep(time.Second)
		if err := p.Refund(t.Context(), attrs, 1, r); err != nil {
			t.Error(err)
		}
		l.check(t, "1s waits starts")
	})
}

// A shaky store fails when told, and does not say when it makes room.
type shaky struct {
	stint.Store
	fails atomic.Bool
}

func (s *shaky) InFlight() *inflight.Room { return s.Store.(stint.RoomStore).InFlight() }
func (s *shaky) Bind(name string, limits ...stint.Limit) (stint.Bound, error) {
	b, err := s.Store.Bind(name, limits...)
	return &shakyBound{b, s}, err
}

type shakyBound struct {
	stint.Bound
	of *shaky
}

func (b *shakyBound) Decide(ctx context.Context, op meter.Op, key string, cost int64) (stint.Decision, error) {
	if b.of.fails.Load() {
		return stint.Decision{}, errGone
	}
	return b.Bound.Decide(ctx, op, key, cost)
}

func (s *shaky) layers(layers []stint.Layer) []stint.Layer {
	own := slices.Clone(layers)
	for i := range own {
		own[i].Bound = own[i].Bound.(*shakyBound).Bound
	}
	return own
}

func (s *shaky) Decide(ctx context.Context, op meter.Op, layers []stint.Layer, cost int64) (stint.Decision, error) {
	if s.fails.Load() {
		return stint.Decision{}, errGone
	}
	return s.Store.Decide(ctx, op, s.layers(layers), cost)
}

func (s *shaky) TakeTurn(ctx context.Context, layers []stint.Layer, cost int64, ttl, age time.Duration) (stint.Decision, stint.ReservationID, error) {
	if s.fails.Load() {
		return stint.Decision{}, "", errGone
	}
	return s.Store.(stint.TurnStore).TakeTurn(ctx, s.layers(layers), cost, ttl, age)
}

// TestWaitStoreFails lets a store fail and come back while many requests wait, and some of
// them leave. Each goes by its rule's on_store_failure, every caller hears what became of its
// request, and no more requests start than the limit, or the local share while the store is
// away, lets pass.
func TestWaitStoreFails(t *testing.T) {
	for word, most := range map[string]int{"local": 21 + 9, "closed": 21, "open": 60} {
		t.Run(word, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rules := made.Rules(t, `{"rules":[{"name":"b","key":[],"limits":["1/s burst 1"],"wait":"20s","on_store_failure":"`+word+`"}]}`)
				s := &shaky{Store: memstore.New(memstore.Options{})}
				p := made.Policy(t, s, rules, policy.Options{})
				defer p.Close()
				random := rand.New(rand.NewPCG(1, 1))
				var started, denied, left atomic.Int64
				var all sync.WaitGroup
				time.AfterFunc(5*time.Second, func() { s.fails.Store(true) })
				time.AfterFunc(12*time.Second, func() { s.fails.Store(false) })
				for i := range 60 {
					ctx, cancel := context.WithCancel(t.Context())
					if i%5 == 4 {
						time.AfterFunc(time.Duration(random.Int64N(int64(15*time.Second))), cancel)
					}
					all.Go(func() {
						defer cancel()
						var r policy.Result
						switch _, err := p.Wait(ctx, policy.Map{}, 1, 0, &r); {
						case errors.Is(err, context.Canceled):
							left.Add(1)
						case err != nil:
							t.Error(err)
						case r.Decision.Allowed:
							started.Add(1)
						default:
							denied.Add(1)
						}
					})
				}
				began := time.Now()
				all.Wait()
				if n := started.Load() + denied.Load() + left.Load(); n != 60 || int(started.Load()) > most || started.Load() < 10 || time.Since(began) > 21*time.Second {
					t.Errorf("%d started (at most %d), %d denied, %d left, in %v", started.Load(), most, denied.Load(), left.Load(), time.Since(began))
				}
			})
		})
	}
}

// TestWaitNothing: a cost of 0 passes at once beside others that wait, by whichever rule.
func TestWaitNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := inFlight(t, `{"rules":[{"name":"a","key":["ip"],"limits":["1/s burst 1"],"wait":"10s"},{"name":"b","key":["ip"],"limits":["9/s"]}]}`)
		l := &waitLog{began: time.Now()}
		l.wait(t.Context(), t, p, "1", policy.Map{"ip": "a"}, 0, 0)
		l.wait(t.Context(), t, p, "2", policy.Map{"ip": "a"}, 0, 0)
		for _, costs := range []policy.Costs{nil, {"a": 0, "b": 1}} {
			r := &policy.Result{Costs: costs}
			if waited, err := p.Wait(t.Context(), policy.Map{"ip": "a"}, 0, time.Minute, r); err != nil || waited != 0 || !r.Decision.Allowed {
				t.Errorf("%v: after %v: %v, %+v", costs, waited, err, r.Decision)
			}
		}
		l.check(t, "0s 1 starts\n1s 2 starts")
	})
}

// TestWaitDeadline: a request whose turn comes at its deadline starts, and is charged once.
func TestWaitDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := inFlight(t, `{"rules":[{"name":"b","key":[],"limits":["1/s burst 3"]}]}`)
		ctx, stop := context.WithTimeout(t.Context(), 2*time.Second)
		defer stop()
		r := new(policy.Result)
		if err := p.Decide(ctx, policy.Map{}, 3, r); err != nil || !r.Decision.Allowed {
			t.Fatal(err, r.Decision)
		}
		began := time.Now()
		if waited, err := p.Wait(ctx, policy.Map{}, 2, time.Minute, r); err != nil || !r.Decision.Allowed || waited != 2*time.Second {
			t.Errorf("after %v: %v, %v, %+v", time.Since(began), waited, err, r.Decision)
		}
		if err := p.Peek(t.Context(), policy.Map{}, 1, r); err != nil || r.Decision.Remaining != 0 || r.Decision.ResetAfter != 3*time.Second {
			t.Errorf("%v, %+v: want 3 in use", err, r.Decision)
		}
	})
}

// TestNewcomerBehind: even if there is room for a newcomer and all waiting requests, these
// pass first, though they have not heard of the room yet.
func TestNewcomerBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rules := made.Rules(t, `{"rules":[{"name":"b","key":[],"limits":["4/1h fixed_window"],"wait":"10m"}]}`)
		time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(58 * time.Minute)))
		s := memstore.New(memstore.Options{})
		p, err := policy.New(&shaky{Store: s}, rules, policy.Options{}) // a shaky store does not say when it makes room
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		l := &waitLog{began: time.Now()}
		for i := range 6 {
			l.wait(t.Context(), t, p, fmt.Sprint(i), nil, 0, 0)
		}
		direct := made.Limiter(t, s, "b", stint.PerHour(4).WithAlgorithm(stint.FixedWindow))
		time.Sleep(time.Second / 2)
		if err := direct.Reset(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		l.wait(t.Context(), t, p, "newcomer", nil, 0, 0)
		l.check(t, `0s 0 starts
			0s 1 starts
			0s 2 starts
			0s 3 starts
			1s 4 starts
			1s 5 starts
			1s newcomer starts`)
	})
}

// TestRoomElsewhere: who waits behind others under one rule is not denied by a rule that does not let
// it wait and has room for all of them.
func TestRoomElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rules := made.Rules(t, `{"rules":[{"name":"a","key":["ip"],"limits":["1/s"],"wait":"1h"},{"name":"b","key":[],"limits":["100/s"]}]}`)
		p, err := policy.New(memstore.New(memstore.Options{}), rules, policy.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		l := &waitLog{began: time.Now()}
		for i := range 5 {
			l.wait(t.Context(), t, p, fmt.Sprint(i), policy.Map{"ip": "192.0.2.1"}, 0, 0)
		}
		l.check(t, `0s 0 starts
			1s 1 starts
			2s 2 starts
			3s 3 starts
			4s 4 starts`)
	})
}

// TestHoldEnds: one that has room for a key and waits for another holds its room for a second. Who
// can start after that is not denied.
func TestHoldEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := inFlight(t, `{"rules":[{"name":"u","key":["u"],"limits":["1/5s burst 2"]},{"name":"v","key":["v"],"on_missing":"skip","limits":["1/5s"]}]}`)
		l := &waitLog{began: time.Now()}
		l.wait(t.Context(), t, p, "1", policy.Map{"v": "k"}, 0, 0)
		l.wait(t.Context(), t, p, "2", policy.Map{"u": "k", "v": "k"}, time.Hour, 0)
		r := &policy.Result{}
		if waited, err := p.Wait(t.Context(), policy.Map{"u": "k"}, 2, 3*time.Second, r); err != nil || !r.Decision.Allowed || waited != time.Second {
			t.Errorf("after %v: %v, %+v", waited, err, r.Decision)
		}
		l.check(t, "0s 1 starts\n6s 2 starts")
	})
}

// TestStartsBeside: one that has room for a key and waits for another holds back others there only until
// there is room for both; who may not wait for that is denied at once.
func TestStartsBeside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := inFlight(t, `{"rules":[{"name":"u","key":["u"],"limits":["1/s burst 2"]},{"name":"v","key":["v"],"limits":["1/h"],"on_missing":"skip"}]}`)
		l := &waitLog{began: time.Now()}
		at := func(after time.Duration) { time.Sleep(time.Until(l.began.Add(after))) }
		l.wait(t.Context(), t, p, "v", policy.Map{"v": "k"}, 0, 0)
		at(10 * time.Second)
		l.wait(t.Context(), t, p, "both", policy.Map{"u": "k", "v": "k"}, 2*time.Hour, 0)
		at(20 * time.Second)
		l.wait(t.Context(), t, p, "u", policy.Map{"u": "k"}, 0, 0)
		for i, most := range []time.Duration{time.Hour, time.Hour, 100 * time.Millisecond} {
			at(time.Duration(20_100+i*50) * time.Millisecond)
			l.wait(t.Context(), t, p, fmt.Sprint(i), policy.Map{"u": "k"}, most, 0)
		}
		at(23_100 * time.Millisecond) // the rest of two, which is held back
		l.wait(t.Context(), t, p, "late", policy.Map{"u": "k"}, time.Millisecond, 0)
		l.wait(t.Context(), t, p, "3", policy.Map{"u": "k"}, time.Hour, 0)
		l.wait(t.Context(), t, p, "soon", policy.Map{"u": "k"}, time.Millisecond, 0)
		l.check(t, `0s v starts
			20s u starts
			20.2s 2 denied for 2.8s by u
			21s 0 starts
			22s 1 starts
			23.1s late starts
			23.1s soon denied for 2s by u
			24.1s 3 starts
			1h0m0s both starts`)
	})
}

// TestWaitsByWhatDenies: a request waits as long as the rules say that are in its way now, not those
// that were.
func TestWaitsByWhatDenies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := inFlight(t, `{"rules":[{"name":"u","key":["u"],"limits":["1/500ms"],"wait":"1s","on_missing":"skip"},
			{"name":"v","key":["v"],"limits":["1/h"],"wait":"1h","on_missing":"skip"},
			{"name":"x","key":["x"],"limits":["1/h"],"wait":"1h","on_missing":"skip"}]}`)
		l := &waitLog{began: time.Now()}
		l.wait(t.Context(), t, p, "x", policy.Map{"x": "k"}, 0, 0)
		l.wait(t.Context(), t, p, "holds v", policy.Map{"v": "k", "x": "k"}, 0, 0)
		time.Sleep(10 * time.Second)
		l.wait(t.Context(), t, p, "u", policy.Map{"u": "k"}, 0, 0)
		l.wait(t.Context(), t, p, "both", policy.Map{"u": "k", "v": "k"}, 0, 0)
		l.check(t, `0s x starts
			10s u starts
			20s both starts
			1h0m0s holds v denied for 20s by v`)
	})
}

// TestLineFull: behind as many waiters as a line may have, a request is denied at once.
func TestLineFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPolicy(t, `{"name":"f","key":[],"limits":["1 in flight"],"wait":"1h"}`)
		ctx, stop := context.WithCancel(t.Context())
		denied := 0
		for range 1003 {
			go func() {
				r := policy.Result{WillRelease: true}
				if waited, err := p.Wait(ctx, policy.Map{}, 1, 0, &r); err == nil && !r.Decision.Allowed && waited == 0 {
					denied++
				}
			}()
			synctest.Wait()
		}
		if denied != 2 {
			t.Errorf("%d of 1,003 are denied, want 2", denied)
		}
		stop()
	})
}

// TestTurnTooLate: a request whose limits have room for all, and whose turn does not come, waits no longer
// than it may.
func TestTurnTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := inFlight(t, `{"rules":[{"name":"v","key":["v"],"limits":["3/h"],"on_missing":"skip","cost":{"header":"x-cost","max":9}},{"name":"x","key":["x"],"limits":["1/30m"],"on_missing":"skip"}]}`)
		l := &waitLog{began: time.Now()}
		l.wait(t.Context(), t, p, "x", policy.Map{"x": "k"}, 0, 0)
		l.wait(t.Context(), t, p, "holds two", policy.Map{"v": "k", "x": "k", "header.x-cost": "2"}, time.Hour, 0)
		time.Sleep(10 * time.Minute)
		l.wait(t.Context(), t, p, "two", policy.Map{"v": "k", "header.x-cost": "2"}, time.Hour, 0)
		l.wait(t.Context(), t, p, "one", policy.Map{"v": "k", "header.x-cost": "1"}, 100*time.Millisecond, 0)
		l.check(t, `0s x starts
			10m0.1s one denied for 40m0s by v
			20m0s two starts
			40m0s holds two starts`)
	})
}

// TestWaitIsCertain: no wait is refused that would have been long enough. Requests wait for an hour, then
// again for as long as they took, from any moment of a window on.
func TestWaitIsCertain(t *testing.T) {
	for _, limits := range []string{`"3/m fixed_window"`, `"3/m sliding_counter"`, `"3/m sliding_log"`, `"3/m token_bucket_interval"`, `"3/m burst 2"`, `"4/m sliding_counter","3/m burst 5"`} {
		for seed := range uint64(20) {
			synctest.Test(t, func(t *testing.T) {
				p := inFlight(t, `{"rules":[{"name":"l","key":[],"limits":[`+limits+`],"cost":{"header":"c","max":9},"wait":"1h"}]}`)
				random := rand.New(rand.NewPCG(seed, 8))
				began, later := random.Int64N(120), random.Int64N(90)
				costs, took := make([]string, 9), make([]time.Duration, 9)
				for i := range costs {
					costs[i] = strconv.Itoa(1 + random.IntN(2))
				}
				for round := range 2 {
					time.Sleep(time.Until(time.Now().Truncate(24 * time.Hour).Add(48*time.Hour + time.Duration(began)*time.Second)))
					pass := func(cost string, most time.Duration) (time.Duration, bool) {
						var r policy.Result
						waited, err := p.Wait(t.Context(), policy.Map{"header.c": cost}, 1, most, &r)
						return waited, err == nil && r.Decision.Allowed
					}
					pass("2", 0)
					time.Sleep(time.Duration(later) * time.Second)
					var all sync.WaitGroup
					for i, cost := range costs {
						most := time.Hour
						if round == 1 {
							most = took[i] + 1
						}
						all.Go(func() {
							waited, ok := pass(cost, most)
							if took[i] = waited; !ok {
								t.Errorf("%s, seed %d: costs %v: the one at %d is denied, after %v of %v", limits, seed, costs, i, waited, most)
							}
						})
						synctest.Wait()
					}
					all.Wait()
				}
			})
		}
	}
}

// A farStore is a memstore to which a call takes a few milliseconds each way.
type farStore struct {
	*memstore.Store
	mu     sync.Mutex
	random *rand.Rand
}

// Watch is not the method that waiters look for.
func (s *farStore) Watch() {}

func (s *farStore) way() {
	s.mu.Lock()
	d := time.Duration(1 + s.random.Int64N(int64(5*time.Millisecond)))
	s.mu.Unlock()
	time.Sleep(d)
}

func (s *farStore) Decide(ctx context.Context, op meter.Op, layers []stint.Layer, cost int64) (stint.Decision, error) {
	s.way()
	defer s.way()
	return s.Store.Decide(ctx, op, layers, cost)
}

func (s *farStore) TakeTurn(ctx context.Context, layers []stint.Layer, cost int64, ttl, age time.Duration) (stint.Decision, stint.ReservationID, error) {
	s.way()
	defer s.way()
	return s.Store.TakeTurn(ctx, layers, cost, ttl, age)
}

// TestWaitCrowd has forty come to a store that is far away, at once or one soon after the other.
// Those who can pass within their rule's wait do; the others are denied at once.
func TestWaitCrowd(t *testing.T) {
	for _, c := range []struct {
		within      time.Duration
		least, late int64 // one that came while others asked may not know
	}{{0, 7, 0}, {20 * time.Millisecond, 7, 0}, {500 * time.Millisecond, 8, 2}} {
		for seed := range uint64(20) {
			synctest.Test(t, func(t *testing.T) {
				rules := made.Rules(t, `{"rules":[{"name":"b","key":[],"limits":["4/s burst 1"],"wait":"1600ms"}]}`)
				store := &farStore{Store: memstore.New(memstore.Options{}), random: rand.New(rand.NewPCG(seed, 6))}
				p, err := policy.New(store, rules, policy.Options{})
				if err != nil {
					t.Fatal(err)
				}
				defer p.Close()
				random := rand.New(rand.NewPCG(seed, 7))
				var started, late atomic.Int64
				var all sync.WaitGroup
				for range 40 {
					after := time.Duration(random.Int64N(int64(c.within + 1)))
					all.Go(func() {
						time.Sleep(after)
						began, r := time.Now(), new(policy.Result)
						switch _, err := p.Wait(t.Context(), nil, 1, 0, r); {
						case err != nil:
							t.Error(err)
						case r.Decision.Allowed:
							started.Add(1)
						case time.Since(began) > 200*time.Millisecond:
							late.Add(1)
						}
					})
				}
				all.Wait()
				if started.Load() < c.least || started.Load() > c.least+1 || late.Load() > c.late {
					t.Errorf("within %v, seed %d: %d started, %d were denied late", c.within, seed, started.Load(), late.Load())
				}
			})
		}
	}
}

// TestRoomUnderOneLimit: what a line needs above the capacity of one limit is no wait under another
// limit, slower but with more room.
func TestRoomUnderOneLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rules := made.Rules(t, `{"rules":[{"name":"a","key":[],"limits":["1/s burst 1","2/m burst 100"],"wait":"1m"}]}`)
		p, err := policy.New(memstore.New(memstore.Options{}), rules, policy.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		l := &waitLog{began: time.Now()}
		for i := range 6 {
			l.wait(t.Context(), t, p, fmt.Sprint(i), nil, 0, 0)
		}
		l.check(t, `0s 0 starts
			1s 1 starts
			2s 2 starts
			3s 3 starts
			4s 4 starts
			5s 5 starts`)
	})
}

// TestWaitLowered: under rules with a lower burst and a faster rate, requests start as soon as the new
// numbers let them, and none is denied that may wait as long.
func TestWaitLowered(t *testing.T) {
	for _, most := range []time.Duration{time.Hour, 48*time.Minute + 3*time.Second} {
		synctest.Test(t, func(t *testing.T) {
			p := inFlight(t, `{"rules":[{"name":"r","key":[],"limits":["100/1h"],"wait":"1h"}]}`)
			var r policy.Result
			if err := p.Decide(t.Context(), policy.Map{}, 100, &r); err != nil || !r.Decision.Allowed {
				t.Fatal(err, r.Decision)
			}
			rules, err := policy.Parse([]byte(`{"rules":[{"name":"r","key":[],"limits":["36000/1h burst 20"],"wait":"1h"}]}`))
			if err != nil {
				t.Fatal(err)
			}
			if p, err = p.Reload(rules); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			var all sync.WaitGroup
			for i, want := range []time.Duration{48*time.Minute + 2*time.Second, 48*time.Minute + 2100*time.Millisecond} {
				all.Go(func() {
					var r policy.Result
					_, err := p.Wait(t.Context(), policy.Map{}, []int64{20, 1}[i], most, &r)
					if err != nil || !r.Decision.Allowed || time.Since(began) != want {
						t.Errorf("%v, allowed %v after %v, want %v", err, r.Decision.Allowed, time.Since(began), want)
					}
				})
				synctest.Wait()
			}
			all.Wait()
		})
	}
}

// TestNewcomerAfterChange: those ahead who came before a change go by the limits from before, and are not
// counted by the new ones: a request that may wait long enough is not denied.
func TestNewcomerAfterChange(t *testing.T) {
	file := func(limit string) string { return `{"rules":[{"name":"r","key":["ip"],"limits":["` + limit + `"]}]}` }
	attrs := policy.Map{"ip": "192.0.2.7"}
	for name, change := range map[string]func(t *testing.T, p *policy.Policy) *policy.Policy{
		"rules": func(t *testing.T, p *policy.Policy) *policy.Policy {
			next, err := p.Reload(made.Rules(t, file("5/3s fixed_window")))
			if err != nil {
				t.Fatal(err)
			}
			return next
		},
		"override": func(t *testing.T, p *policy.Policy) *policy.Policy {
			if err := p.SetOverride("r", "192.0.2.7", policy.Override{Limits: []stint.Limit{made.Limit(t, "5/3s fixed_window")}}); err != nil {
				t.Fatal(err)
			}
			return p
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := made.Policy(t, memstore.New(memstore.Options{}), made.Rules(t, file("20/3s fixed_window")), policy.Options{})
				var all sync.WaitGroup
				wait := func(p *policy.Policy, cost int64, most time.Duration) {
					all.Go(func() {
						var r policy.Result
						if _, err := p.Wait(t.Context(), attrs, cost, most, &r); err != nil || !r.Decision.Allowed && cost == 1 { // 20 are more than the override
							t.Errorf("cost %d: allowed %v, %v, retry after %v", cost, r.Decision.Allowed, err, r.Decision.RetryAfter)
						}
					})
					synctest.Wait()
				}
				var r policy.Result
				if err := p.Decide(t.Context(), attrs, 20, &r); err != nil || !r.Decision.Allowed {
					t.Fatal(err)
				}
				wait(p, 20, time.Hour)
				time.Sleep(time.Millisecond)
				wait(change(t, p), 1, 10*time.Second)
				all.Wait()
			})
		})
	}
}
