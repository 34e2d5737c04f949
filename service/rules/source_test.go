package rules_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/service/rules"
)

// A bench is a source on a file of a test, with what it logged and reported.
type bench struct {
	*rules.Source
	t     *testing.T
	path  string
	store *memstore.Store

	mu       sync.Mutex
	log      bytes.Buffer
	attempts []error
}

func (b *bench) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.Write(p)
}

// logged returns how often the log has the text.
func (b *bench) logged(text string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.log.String(), text)
}

// reported returns how often OnReload was called, and its last error.
func (b *bench) reported() (n int, last error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.attempts), b.attempts[len(b.attempts)-1]
}

func open(t *testing.T, path string, o rules.Options) *bench {
	t.Helper()
	b := &bench{t: t, path: path, store: memstore.New(memstore.Options{})}
	t.Cleanup(func() { b.store.Close() })
	o.Log = slog.New(slog.NewTextHandler(b, nil))
	o.OnReload = func(_ time.Time, err error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.attempts = append(b.attempts, err)
	}
	var err error
	if b.Source, err = openFile(b.store, path, o); err != nil {
		t.Fatal(err)
	}
	return b
}

// begin opens a new file of a text.
func begin(t *testing.T, text string) *bench {
	t.Helper()
	path := filepath.Join(t.TempDir(), "stint.yaml")
	disk.Write(t, path, text)
	return open(t, path, rules.Options{})
}

// reload writes a text that is taken.
func (b *bench) reload(text string) {
	b.t.Helper()
	disk.Write(b.t, b.path, text)
	if err := b.Reload(); err != nil {
		b.t.Fatal(err)
	}
}

// replace writes elsewhere and renames, as docs/RULES.md asks for.
func replace(t *testing.T, path, text string) {
	t.Helper()
	disk.Write(t, path+".new", text)
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// limited returns a file of one rule. What is left after one request tells counts
// apart.
func limited(count int) string {
	return fmt.Sprintf("rules:\n  - name: a\n    key: [jwt.sub]\n    limits: %d per day fixed_window\n", count)
}

// count returns the count in force.
func (b *bench) count() int64 {
	return b.Policy().Rules().Limits("a")[0].Limit.Capacity()
}

// take spends one unit of a key and returns what is left.
func (b *bench) take(key string) int64 {
	b.t.Helper()
	var r policy.Result
	if err := b.Policy().Decide(b.t.Context(), policy.Map{"jwt.sub": key}, 1, &r); err != nil || !r.Decision.Allowed {
		b.t.Fatalf("%v, %+v", err, r.Decision)
	}
	return r.Decision.Remaining
}

func TestReload(t *testing.T) {
	b := begin(t, limited(10))
	path := b.path
	if n, err := b.reported(); n != 1 || err != nil || b.Ready() != nil {
		t.Errorf("%d, %v, %v", n, err, b.Ready())
	}
	if left := b.take("x"); left != 9 {
		t.Errorf("left %d", left)
	}
	before := b.Policy()
	if b.reload(limited(20)); b.count() != 20 {
		t.Fatalf("%d", b.count())
	}
	if left := b.take("x"); left != 18 {
		t.Errorf("what was used is lost: left %d", left)
	}
	if err := before.Decide(t.Context(), policy.Map{"jwt.sub": "x"}, 1, new(policy.Result)); err != nil {
		t.Errorf("the policy before: %v", err)
	}

	// The same bad content is logged once, however often it is tried.
	for range 3 {
		disk.Write(t, path, "rules: [")
		if err := b.Reload(); err == nil || b.count() != 20 {
			t.Fatalf("%v, %d", err, b.count())
		}
	}
	if _, problem := b.Held(); !strings.Contains(problem, "the rules before stay in force: "+path) {
		t.Errorf("held with %q", problem)
	}
	if n, err := b.reported(); b.logged("not reloaded") != 1 || n != 5 || err == nil || b.Ready() != nil {
		t.Errorf("logged %d, reported %d of %v, ready %v", b.logged("not reloaded"), n, err, b.Ready())
	}
	disk.Write(t, path, "rules: {}")
	b.Reload()
	os.Remove(path)
	if err := b.Reload(); !errors.Is(err, os.ErrNotExist) || b.logged("not reloaded") != 3 {
		t.Errorf("%v, logged %d", err, b.logged("not reloaded"))
	}
	// What was in force before, back again, ends the trouble without a reload.
	p := b.Policy()
	if b.reload(limited(20)); b.Policy() != p {
		t.Error("reloaded")
	}
	if _, err := b.reported(); err != nil {
		t.Errorf("reported %v", err)
	}
	if _, problem := b.Held(); problem != "" {
		t.Errorf("held with %q", problem)
	}
}

// TestEditsInUse reloads what an operator edits while keys are in use: each
// edit takes effect at once, and what keys have used stays used; a limit of another
// algorithm, period or name starts unused.
func TestEditsInUse(t *testing.T) {
	const head = "rules:\n  - name: a\n    key: [jwt.sub]\n"
	bare := func(limits string) string { return head + "    limits: [" + limits + "]\n" }
	with := func(overrides string) string { return bare("9/24h") + "    overrides: [" + overrides + "]\n" }
	vip := func(limit string) string { return "{when: {jwt.sub: vip}, limits: [" + limit + "]}" }
	other := func(limit string) string { return "{when: {jwt.sub: other}, limits: [" + limit + "]}" }
	for _, c := range []struct {
		name, old, new string
		client         string // that has used 3 before
		limit, left    int64  // and the answer to its next request
	}{
		{"first override", bare("9/24h"), with(vip("50/24h")), "x", 9, 5},
		{"first override, of who has used the rule's own", bare("9/24h"), with(vip("50/24h")), "vip", 50, 46},
		{"numbers", with(vip("100/24h")), with(vip("200/24h")), "vip", 200, 196},
		{"numbers of one of two", with(vip("100/24h") + "," + other("50/24h")), with(other("50/24h") + "," + vip("200/24h")), "vip", 200, 196},
		{"the limits that another has", with(vip("100/24h") + "," + other("50/24h")), with(vip("50/24h") + "," + other("50/24h")), "other", 50, 46},
		{"a name for an override", with(vip("100/24h")), with("{name: vip, when: {jwt.sub: vip}, limits: [200/24h]}"), "vip", 200, 196},
		{"kind of an override", with(vip("100/24h")), with(vip("100/24h sliding_log")), "vip", 100, 99},
		{"kind", bare("10/24h"), bare("10/24h sliding_log"), "x", 10, 9},
		{"window", bare("10/24h fixed_window"), bare("20/48h fixed_window"), "x", 20, 19},
		{"rate of a bucket", bare("10/24h"), bare("20/48h"), "x", 20, 19},
		{"one limit more", bare("10/24h"), bare("10/24h, 100/48h"), "x", 10, 6},
		{"one limit less", bare("10/24h, 100/48h"), bare("10/24h"), "x", 10, 6},
		{"the kind of one of two, in another order", bare("10/24h, 100/48h"), bare("100/24h sliding_log, 10/24h"), "x", 10, 6},
		{"a name for a limit", bare("10/24h"), bare("{limit: 10/24h, name: daily}"), "x", 10, 9},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := begin(t, c.old)
			var r policy.Result
			decide := func() {
				if err := b.Policy().Decide(t.Context(), policy.Map{"jwt.sub": c.client}, 1, &r); err != nil {
					t.Fatal(err)
				}
			}
			for range 3 {
				decide()
			}
			for _, text := range []string{c.new, c.old, c.new} { // and there and back
				b.reload(text)
			}
			decide()
			if d := r.Decision; d.Limit != c.limit || d.Remaining != c.left {
				t.Errorf("limit %d, %d remain, want %d and %d", d.Limit, d.Remaining, c.limit, c.left)
			}
		})
	}
}

// TestSettingsStay holds settings to a restart, and the log to saying so.
func TestSettingsStay(t *testing.T) {
	b := begin(t, "trusted_proxies: 10.0.0.1\nstore: redis://:planted-secret@127.0.0.1\n"+limited(10))
	b.reload("trusted_proxies: 10.0.0.2\nstore: redis://:planted-secret2@127.0.0.1\n" + limited(10))
	if got := b.Settings().TrustedProxies[0].String(); got != "10.0.0.1/32" {
		t.Error(got)
	}
	if b.logged("trusted_proxies, store") != 1 || b.logged("planted-secret") != 0 {
		t.Errorf("logged %s", b.log.String())
	}
}

// TestNoSecrets keeps keys that rules name out of the log.
func TestNoSecrets(t *testing.T) {
	const text = `rules:
  - name: a
    match: {header.x-api-key: "planted-*"}
    key: [header.x-api-key]
    limits: 1/s
    overrides:
      - {when: {header.x-api-key: "planted-*"}, limits: 2/s}
      - {when: {header.x-api-key: planted-1}, limits: 3/s}
      - {when: {header.x-api-key: other-planted}, limits: 3/s}
`
	b := begin(t, text)
	b.reload(strings.Replace(text, "limits: 1/s", "limits: 5/s", 1))
	disk.Write(t, b.path, strings.Replace(text, "3/s", "x", 2))
	if err := b.Reload(); err == nil {
		t.Fatal("accepted")
	}
	if b.logged("level=WARN") < 3 || b.logged("planted") != 0 {
		t.Errorf("logged %s", b.log.String())
	}
}

func TestFixed(t *testing.T) {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	s, err := rules.Open(store, "", decode(t, limited(3)), rules.Options{})
	if err != nil || s.Reload() != nil || s.Ready() != nil || s.Policy() == nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Watch(ctx); err != nil {
		t.Error(err)
	}
}

// TestOpenRefuses says which file, and why it cannot begin.
func TestOpenRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stint.yaml")
	store := memstore.New(memstore.Options{})
	defer store.Close()
	for _, text := range []string{"rules: [", "rules: [{name: a, key: [ip], limits: 1/s, hash_key: true}]"} {
		disk.Write(t, path, text)
		if _, err := openFile(store, path, rules.Options{}); err == nil || !strings.HasPrefix(err.Error(), path) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestReloadUnderLoad flips between two files 200 times while goroutines decide:
// no decision may fail, and none may be lost.
func TestReloadUnderLoad(t *testing.T) {
	const most = 1_000_000_000
	texts := []string{
		limited(most),
		limited(most+7) + "  - name: b\n    key: []\n    limits: 1000000000/s\n",
	}
	b := begin(t, texts[0])
	const workers = 4
	var counts [workers]atomic.Int64
	decided := func() (sum int64) {
		for i := range counts {
			sum += counts[i].Load()
		}
		return sum
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			var r policy.Result
			attrs := policy.Map{"jwt.sub": fmt.Sprint("user", i%2)}
			for {
				if err := b.Policy().Decide(t.Context(), attrs, 1, &r); err != nil || !r.Decision.Allowed || r.StoreError != nil {
					t.Errorf("%v, %+v, %v", err, r.Decision, r.StoreError)
					counts[i].Add(most) // lets the reloads go on
					return
				}
				counts[i].Add(1)
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for i := range 200 {
		before := decided()
		disk.Write(t, b.path, texts[(i+1)%2])
		if err := b.Reload(); err != nil {
			t.Errorf("reload %d: %v", i, err)
		}
		for decided() < before+workers { // all reloads meet decisions
			runtime.Gosched()
		}
	}
	close(done)
	wg.Wait()
	for key := range 2 {
		var r policy.Result
		if err := b.Policy().Peek(t.Context(), policy.Map{"jwt.sub": fmt.Sprint("user", key)}, 1, &r); err != nil {
			t.Fatal(err)
		}
		if used, want := b.count()-r.Rules[0].Remaining, counts[key].Load()+counts[key+2].Load(); used != want {
			t.Errorf("user%d: %d used, %d decided", key, used, want)
		}
	}
}

// TestDeclared says that attributes which no HTTP request has are refused where there is
// HTTP alone, at the start and by a reload, declared or not, and are warnings elsewhere.
func TestDeclared(t *testing.T) {
	const misspelled = "rules:\n  - {name: a, match: {methd: POST}, key: [ip], limits: [\"1/m\"]}\n"
	path := filepath.Join(t.TempDir(), "stint.yaml")
	disk.Write(t, path, misspelled)
	store := memstore.New(memstore.Options{})
	defer store.Close()
	if _, err := openFile(store, path, rules.Options{By: request.Proxy}); err == nil || !strings.Contains(err.Error(), `did you mean "method"?`) {
		t.Errorf("opened: %v", err)
	}
	if _, err := openFile(store, path, rules.Options{}); err != nil {
		t.Errorf("without the option: %v", err)
	}
	good := strings.ReplaceAll(misspelled, "methd", "method")
	disk.Write(t, path, good)
	s, err := openFile(store, path, rules.Options{By: request.Proxy})
	if err != nil {
		t.Fatal(err)
	}
	disk.Write(t, path, misspelled)
	if err := s.Reload(); err == nil || !strings.Contains(err.Error(), path) || s.Policy().Rules().Reads("methd") {
		t.Errorf("reloaded: %v", err)
	}
	disk.Write(t, path, "attributes: [methd]\n"+misspelled)
	if err := s.Reload(); err == nil || s.Policy().Rules().Reads("methd") {
		t.Errorf("declared, which gives a proxy nothing: %v", err)
	}
}

// TestAsked refuses rules that go by the response or the body of a request where neither is
// seen.
func TestAsked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stint.yaml")
	store := memstore.New(memstore.Options{})
	defer store.Close()
	for _, rule := range []string{
		"{name: a, key: [ip], limits: 1/m, count: {status: 401}}",
		"{name: a, key: [ip], limits: 1/m, cost: {usage: openai, reserve: 1}}",
		"{name: a, key: [body./model], limits: 1/m}",
		"{name: a, match: {body./model: x}, key: [ip], limits: 1/m}",
		"{name: a, key: [ip], limits: 1/m, cost: {attribute: body./n}}",
		"{name: a, key: [ip], tiers: {by: body./plan, default: x, plans: {x: 1/m}}}",
		"{name: a, key: [ip], limits: 1/m, overrides: [{when: {body./n: x}, limits: 2/m}]}",
	} {
		disk.Write(t, path, "rules:\n  - "+rule+"\n")
		if _, err := openFile(store, path, rules.Options{By: request.Serve}); err == nil || !strings.Contains(err.Error(), "stint.yaml:2:") {
			t.Errorf("%s: %v", rule, err)
		}
		if _, err := openFile(store, path, rules.Options{}); err != nil {
			t.Errorf("%s: %v", rule, err)
		}
	}
	disk.Write(t, path, "rules:\n  - {name: a, key: [ip], limits: 1/m}\n")
	if _, err := openFile(store, path, rules.Options{By: request.Serve}); err != nil {
		t.Error(err)
	}
	disk.Write(t, path, "rules:\n  - {name: a, key: [], limits: 1/m}\n  - {name: b, key: [], limits: 1 in flight}\n  - {name: c, key: [], limits: 1 in flight, shadow: true}\n")
	for by, asked := range map[request.Interfaces]bool{request.Proxy: false, request.Serve: true} {
		var log strings.Builder
		if _, err := openFile(store, path, rules.Options{By: by, Log: slog.New(slog.NewTextHandler(&log, nil))}); err != nil {
			t.Error(err)
		}
		if warned := strings.Contains(log.String(), " rules=b\n"); warned != asked {
			t.Errorf("asked %v: %s", asked, &log)
		}
	}
}

// openFile reads a rules file and binds it to a store.
func openFile(store stint.Store, path string, o rules.Options) (*rules.Source, error) {
	f, err := rules.Read(path)
	if err != nil {
		return nil, err
	}
	return rules.Open(store, path, f, o)
}
