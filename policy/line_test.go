package policy_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
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
