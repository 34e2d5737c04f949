package observe_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/leaktest"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/internal/testkit/pages"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/redisstore"
	"github.com/stint-dev/stint/service/observe"
	"github.com/stint-dev/stint/service/observe/topkeys"
	"github.com/stint-dev/stint/service/observe/warn"
)

func TestMain(m *testing.M) { leaktest.Main(m, goleak.Find) }

const rulesFile = `{"rules": [
	{"name": "shadowed", "match": {"path": "/a"}, "key": ["ip"], "limits": ["1/h"], "shadow": true},
	{"name": "login", "match": {"path": "/a"}, "key": ["ip"], "limits": ["2/h", "100/h sliding_log"]},
	{"name": "banned", "match": {"path": "/b"}, "block": true},
	{"name": "keyed", "match": {"path": "/c"}, "key": ["header.x-api-key"], "limits": ["2/h"], "on_missing": "deny"},
	{"name": "staff", "match": {"path": "/d"}, "unlimited": true},
	{"name": "strict", "match": {"path": "/e"}, "key": ["ip"], "limits": ["2/h"], "on_store_failure": "closed"}
]}`

func newPolicy(t testing.TB, store stint.Store, text string) *policy.Policy {
	t.Helper()
	p := made.Policy(t, store, made.Rules(t, text), policy.Options{})
	t.Cleanup(p.Close)
	return p
}

// ask makes one decision and tells the observer as an interface does.
func ask(o *observe.Observer, p *policy.Policy, attrs policy.Map) {
	var r policy.Result
	if err := p.Decide(context.Background(), attrs, 1, &r); err != nil {
		o.Failed("http", err)
		return
	}
	o.Decided("http", &r, observe.Request{Took: 3 * time.Microsecond})
}

// scrape returns the metrics as Prometheus reads them.
func scrape(t testing.TB, o *observe.Observer) string {
	t.Helper()
	w := httptest.NewRecorder()
	o.ServeMetrics(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// series returns the lines of one metric, sorted.
func series(text, name string) (lines []string) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, name+"{") || strings.HasPrefix(line, name+" ") {
			lines = append(lines, strings.TrimSpace(strings.TrimPrefix(line, name)))
		}
	}
	slices.Sort(lines)
	return lines
}

func check(t *testing.T, text, name string, want ...string) {
	t.Helper()
	if got := series(text, name); !slices.Equal(got, want) {
		t.Errorf("%s is\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestDecisions(t *testing.T) {
	store := memstore.New(memstore.Options{})
	p := newPolicy(t, store, rulesFile)
	o := observe.New(observe.Options{})
	defer o.Close()
	for range 4 {
		ask(o, p, policy.Map{"path": "/a", "ip": "192.0.2.7"})
	}
	for _, path := range []string{"/b", "/c", "/d", "/d", "/other", "/a%2fb"} {
		ask(o, p, policy.Map{"path": path, "ip": "192.0.2.7"})
	}
	ask(o, p, policy.Map{"path": "/c", "ip": "192.0.2.7", "header.x-api-key": "sesame"})
	text := scrape(t, o)
	check(t, text, "stint_decisions_total",
		`{decision="allowed",interface="http",rule=""} 1`,
		`{decision="allowed",interface="http",rule="banned"} 0`,
		`{decision="allowed",interface="http",rule="keyed"} 1`,
		`{decision="allowed",interface="http",rule="login"} 2`,
		`{decision="allowed",interface="http",rule="shadowed"} 1`,
		`{decision="allowed",interface="http",rule="staff"} 2`,
		`{decision="blocked",interface="http",rule="banned"} 1`,
		`{decision="blocked",interface="http",rule="keyed"} 1`,
		`{decision="denied",interface="http",rule="banned"} 0`,
		`{decision="denied",interface="http",rule="keyed"} 0`,
		`{decision="denied",interface="http",rule="login"} 2`,
		`{decision="denied",interface="http",rule="shadowed"} 0`,
		`{decision="denied",interface="http",rule="staff"} 0`,
		`{decision="shadow_denied",interface="http",rule="shadowed"} 3`,
	)
	check(t, text, "stint_decision_duration_seconds_count", `{interface="http"} 10`)
	check(t, text, "stint_undecided_total",
		`{interface="http",reason="attribute"} 0`, `{interface="http",reason="canceled"} 0`, `{interface="http",reason="overload"} 0`, `{interface="http",reason="request"} 1`, `{interface="http",reason="rules"} 0`, `{interface="http",reason="store"} 0`)
	check(t, text, "stint_store_errors_total", `{interface="http"} 0`)
	check(t, text, "stint_keys") // no store is watched
	for _, secret := range []string{"192.0.2.7", "sesame", "a%2fb"} {
		if strings.Contains(text, secret) {
			t.Errorf("the metrics show %s", secret)
		}
	}

	o.Watch(store)
	text = scrape(t, o)
	check(t, text, "stint_keys", fmt.Sprint(store.Stats().Keys))
	check(t, text, "stint_limits", fmt.Sprint(store.Stats().Limits))
	check(t, text, "stint_keys_max", "1.048576e+06")
	if store.Stats().Keys == 0 {
		t.Error("the store holds no keys: the test shows nothing")
	}
}

// TestRulesGo holds a reload to taking away the series of rules that are gone,
// and to keeping the others' counts.
func TestRulesGo(t *testing.T) {
	p := newPolicy(t, memstore.New(memstore.Options{}), rulesFile)
	o := observe.New(observe.Options{})
	for _, path := range []string{"/b", "/d", "/none"} {
		ask(o, p, policy.Map{"path": path})
	}
	o.Rules([]string{"login", "staff"})
	check(t, scrape(t, o), "stint_decisions_total",
		`{decision="allowed",interface="http",rule=""} 1`,
		`{decision="allowed",interface="http",rule="staff"} 1`,
		`{decision="denied",interface="http",rule="staff"} 0`,
	)
}

// TestSettled: what a response has cost warns, is among what keys have used, and is counted.
func TestSettled(t *testing.T) {
	var warned []int64
	keys := topkeys.New()
	o := observe.New(observe.Options{TopKeys: keys, Warner: warn.New(warn.Options{At: 80, Send: func(w *warn.Warning) { warned = append(warned, *w.About.Used) }})})
	p := newPolicy(t, memstore.New(memstore.Options{}), `{"rules": [{"name": "tokens", "key": ["ip"], "limits": ["100 per day fixed_window"], "cost": {"response": "bytes", "reserve": 1}}]}`)
	for ip, n := range map[string]int{"192.0.2.1": 130, "192.0.2.2": 20} {
		var r policy.Result
		d, _, err := p.Begin(t.Context(), policy.Map{"ip": ip}, 1, false, -1, &r)
		if err != nil {
			t.Fatal(err)
		}
		d.Settled = func(r *policy.Result) { o.Settled("proxy", r) }
		_, _ = d.Write(make([]byte, n))
		if err := d.End(t.Context(), true); err != nil {
			t.Fatal(err)
		}
	}
	var used []int64
	for _, k := range keys.Nearest(9) {
		used = append(used, k.Used)
	}
	if !slices.Equal(used, []int64{130, 20}) || !slices.Equal(warned, []int64{130}) {
		t.Errorf("used %v, warned of %v", used, warned)
	}
	check(t, scrape(t, o), "stint_settled_units_total", `{interface="proxy",rule="tokens"} 150`)
	check(t, scrape(t, o), "stint_decisions_total", `{decision="allowed",interface="proxy",rule="tokens"} 0`, `{decision="denied",interface="proxy",rule="tokens"} 0`)
}

// TestUsedOfShare: while the store is away, a key is near its limit, and its use is of that, by
// this process's share. What is not known warns of nothing and is no use.
func TestUsedOfShare(t *testing.T) {
	var warned []string
	keys := topkeys.New()
	o := observe.New(observe.Options{TopKeys: keys, Warner: warn.New(warn.Options{At: 80, Send: func(w *warn.Warning) {
		warned = append(warned, fmt.Sprint(w.About.Rule, " ", w.Type, " ", *w.About.Used, " of ", w.About.Of))
	}})})
	store := memstore.New(memstore.Options{})
	const file = `{"rules": [{"name": "share", "key": ["ip"], "limits": ["100 per day fixed_window"]}, {"name": "open", "key": ["ip"], "limits": ["1 per day"], "on_store_failure": "open"}]}`
	p := made.Policy(t, store, made.Rules(t, file), policy.Options{Local: memstore.New(memstore.Options{}), Nodes: 10})
	defer p.Close()
	_ = store.Close()
	var near []string
	for range 10 {
		ask(o, p, policy.Map{"ip": "192.0.2.1"})
		for _, k := range keys.Nearest(9) {
			near = append(near, fmt.Sprintf("%s %d of %d, %.1f", k.Rule, k.Used, k.Of, k.Part))
		}
	}
	if want := []string{"share 8 of 10, 0.8", "share 9 of 10, 0.9", "share 10 of 10, 1.0"}; !slices.Equal(near, want) {
		t.Errorf("near: %q, want %q", near, want)
	}
	if want := []string{"share stint.limit.near 8 of 10"}; !slices.Equal(warned, want) {
		t.Errorf("warned: %q, want %q", warned, want)
	}
}

// broken is a store that fails.
type broken struct {
	*memstore.Store
	err error
}

type brokenBound struct {
	stint.Bound
	err error
}

var errBroken = errors.New("store: no answer")

func (b broken) Bind(name string, limits ...stint.Limit) (stint.Bound, error) {
	bound, err := b.Store.Bind(name, limits...)
	return brokenBound{bound, b.err}, err
}

func (b broken) Decide(context.Context, meter.Op, []stint.Layer, int64) (stint.Decision, error) {
	return stint.Decision{}, b.err
}

func (b brokenBound) Decide(context.Context, meter.Op, string, int64) (stint.Decision, error) {
	return stint.Decision{}, b.err
}

// TestFallback holds rules that decide without their store to being counted
// twice: what they said, and on whose word.
func TestFallback(t *testing.T) {
	const file = `{"rules": [
		{"name": "a", "match": {"path": "/a"}, "key": ["ip"], "limits": ["1/h"]},
		{"name": "b", "match": {"path": "/b"}, "key": ["ip"], "limits": ["1/h"], "on_store_failure": "open"},
		{"name": "c", "match": {"path": "/c"}, "key": ["ip"], "limits": ["1/h"], "on_store_failure": "closed"},
		{"name": "d", "match": {"path": "/d"}, "key": ["ip"], "limits": ["1/h"], "shadow": true}
	]}`
	p := made.Policy(t, broken{memstore.New(memstore.Options{}), errBroken}, made.Rules(t, file), policy.Options{Local: memstore.New(memstore.Options{})})
	t.Cleanup(p.Close)
	o := observe.New(observe.Options{})
	for _, path := range []string{"/a", "/a", "/b", "/c", "/d", "/none"} {
		ask(o, p, policy.Map{"path": path, "ip": "192.0.2.7"})
	}
	text := scrape(t, o)
	check(t, text, "stint_fallback_total",
		`{fallback="closed",interface="http",rule="c"} 1`, `{fallback="local",interface="http",rule="a"} 2`,
		`{fallback="open",interface="http",rule="b"} 1`, `{fallback="open",interface="http",rule="d"} 1`)
	check(t, text, "stint_decisions_total",
		`{decision="allowed",interface="http",rule=""} 1`,
		`{decision="allowed",interface="http",rule="a"} 1`, `{decision="allowed",interface="http",rule="b"} 1`,
		`{decision="allowed",interface="http",rule="c"} 0`, `{decision="allowed",interface="http",rule="d"} 1`,
		`{decision="denied",interface="http",rule="a"} 1`, `{decision="denied",interface="http",rule="b"} 0`,
		`{decision="denied",interface="http",rule="c"} 1`, `{decision="denied",interface="http",rule="d"} 0`)
	check(t, text, "stint_store_errors_total", `{interface="http"} 5`)
}

func TestReloaded(t *testing.T) {
	o := observe.New(observe.Options{})
	const good, at = "stint_config_last_reload_successful", "stint_config_last_reload_success_timestamp_seconds"
	check(t, scrape(t, o), good)
	o.Reloaded(time.Unix(1000, 0), errors.New("line 3"))
	check(t, scrape(t, o), good, "0")
	check(t, scrape(t, o), at)
	o.Reloaded(time.Unix(2000, 0), nil)
	check(t, scrape(t, o), good, "1")
	o.Reloaded(time.Unix(3000, 0), errors.New("line 3"))
	text := scrape(t, o)
	check(t, text, good, "0")
	check(t, text, at, "2000")
}

func TestFailed(t *testing.T) {
	o := observe.New(observe.Options{})
	for _, err := range []error{
		errBroken, context.Canceled, fmt.Errorf("store: %w", context.DeadlineExceeded),
		stint.ErrCost, stint.ErrReservation, &policy.RequestError{Attribute: "path", Reason: "is odd"}, &policy.NotGivenError{Rule: "a", Attribute: "jwt.sub"}, policy.ErrNotReady,
	} {
		o.Failed("grpc", err)
	}
	o.Overloaded("grpc")
	text := scrape(t, o)
	check(t, text, "stint_undecided_total",
		`{interface="grpc",reason="attribute"} 1`, `{interface="grpc",reason="canceled"} 2`, `{interface="grpc",reason="overload"} 1`, `{interface="grpc",reason="request"} 3`, `{interface="grpc",reason="rules"} 1`, `{interface="grpc",reason="store"} 1`)
	check(t, text, "stint_store_errors_total", `{interface="grpc"} 1`)
}

// TestDocument holds docs/METRICS.md to the metrics that there are, their types
// and their labels, both ways.
func TestDocument(t *testing.T) {
	written := make(map[string]string)
	rows := regexp.MustCompile("(?m)^\\| `(stint_\\w+)` \\| (\\w+)(?: by)?([^|]*)\\|")
	for _, m := range rows.FindAllStringSubmatch(pages.Read(t, "docs/METRICS.md"), -1) {
		labels := strings.Fields(strings.NewReplacer("`", "", ",", "").Replace(m[3]))
		slices.Sort(labels)
		written[m[1]] = m[2] + " " + strings.Join(labels, " ")
	}

	store := memstore.New(memstore.Options{})
	warner := warn.New(warn.Options{At: 1})
	o := observe.New(observe.Options{Warner: warner})
	o.WatchWebhook(func() (sent, failed, dropped uint64) { return 1, 2, 3 })
	o.Watch(store)
	o.WatchInFlight(func() map[string]int64 { return map[string]int64{"pool": 3} })
	o.WatchShared(func() observe.Shared {
		return observe.Shared{Store: redisstore.Stats{Nodes: []redisstore.NodeStats{{}}}}
	})
	o.WatchWaiting(func() int { return 2 })
	o.WatchClaims(func(yield func(string, uint64) bool) { yield("valid", 2) })
	o.WatchSnapshot(time.Now)
	o.Reloaded(time.Now(), nil)
	p := newPolicy(t, broken{store, errBroken}, rulesFile)
	o.WatchRules(p.Rules)
	ask(o, p, policy.Map{"path": "/e", "ip": "192.0.2.7"})
	var settled policy.Result
	if err := newPolicy(t, store, rulesFile).Peek(t.Context(), policy.Map{"path": "/e", "ip": "192.0.2.7"}, 7, &settled); err != nil {
		t.Fatal(err)
	}
	o.Settled("proxy", &settled)
	there := make(map[string]string)
	text := scrape(t, o)
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (stint_\w+) (\w+)$`).FindAllStringSubmatch(text, -1) {
		sample := regexp.MustCompile(`(?m)^` + m[1] + `(?:_count)?(?:\{(.*)\})? `).FindStringSubmatch(text)
		if sample == nil {
			t.Fatalf("%s has no sample", m[1])
		}
		var labels []string
		for _, l := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(sample[1], -1) {
			labels = append(labels, l[1])
		}
		slices.Sort(labels)
		there[m[1]] = m[2] + " " + strings.Join(labels, " ")
	}
	for name, is := range there {
		if written[name] != is {
			t.Errorf("%s is a %q; docs/METRICS.md has %q", name, is, written[name])
		}
	}
	for name := range written {
		if there[name] == "" {
			t.Errorf("docs/METRICS.md has %s, which is not there", name)
		}
	}
}

func TestAllocations(t *testing.T) {
	p := newPolicy(t, memstore.New(memstore.Options{}), rulesFile)
	o := observe.New(observe.Options{Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	defer o.Close()
	for _, path := range []string{"/a", "/b", "/c", "/d", "/other"} {
		var r policy.Result
		for range 3 { // allowed, denied, and with its line in the log
			if err := p.Decide(context.Background(), policy.Map{"path": path, "ip": "192.0.2.7"}, 1, &r); err != nil {
				t.Fatal(err)
			}
			o.Decided("http", &r, observe.Request{Took: time.Microsecond})
		}
		if n := testing.AllocsPerRun(100, func() { o.Decided("http", &r, observe.Request{Took: time.Microsecond}) }); n > 0 {
			t.Errorf("%s: %v allocations", path, n)
		}
	}
}
