package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesource"

	"github.com/stint-dev/stint/service/observe"
	"github.com/stint-dev/stint/service/observe/topkeys"
	"github.com/stint-dev/stint/service/rulesapi"
)

// A Page is a summary of what is going on.
type Page struct {
	At      time.Time `json:"at"`
	Version Version   `json:"version"`
	// Minutes is how long denials of keys are counted.
	Minutes int `json:"minutes"`
	// Rules are counted since the start of the process, at all entrypoints; rates are those of the
	// last seconds.
	Rules   []RuleCount     `json:"rules"`
	Denied  []KeyCount      `json:"denied"`
	Nearest []KeyPart       `json:"nearest"`
	Stores  []Store         `json:"stores"`
	Nodes   []rulesapi.Node `json:"nodes"`
	// NodesError says why the nodes of the database are not known; "" if they are.
	NodesError string `json:"nodes_error,omitzero"`
}

// A RuleCount is how often a rule returned each verdict. Denied includes denials by blocks.
type RuleCount struct {
	Rule             string  `json:"rule"`
	Allowed          uint64  `json:"allowed"`
	Denied           uint64  `json:"denied"`
	ShadowDenied     uint64  `json:"shadow_denied,omitzero"`
	AllowedPerSecond float64 `json:"allowed_per_second"`
	DeniedPerSecond  float64 `json:"denied_per_second"`
}

// A KeyCount is a key that was denied in the last minutes. For a viewer its hash replaces the key.
type KeyCount struct {
	Rule    string    `json:"rule"`
	Key     string    `json:"key"`
	KeyHash string    `json:"key_hash"`
	Count   uint64    `json:"count"`
	Over    uint64    `json:"over,omitzero"`
	Since   time.Time `json:"since"`
	Last    time.Time `json:"last"`
	Shadow  bool      `json:"shadow,omitzero"`
}

// A KeyPart is a key that is near a limit. Used is as of its last request. Part is about the
// fraction used now, from 0 to 1.
type KeyPart struct {
	Rule    string    `json:"rule"`
	Key     string    `json:"key"`
	KeyHash string    `json:"key_hash"`
	Limit   string    `json:"limit"`
	Used    int64     `json:"used"`
	Of      int64     `json:"of"`
	Part    float64   `json:"part"`
	At      time.Time `json:"at"`
}

// A Store is the state of a store. Times are of the calls since the start.
type Store struct {
	Store    string  `json:"store"`
	Calls    uint64  `json:"calls,omitzero"`
	MeanMS   float64 `json:"mean_ms,omitzero"`
	P99MS    float64 `json:"p99_ms,omitzero"` // at most
	Failures uint64  `json:"failures,omitzero"`
	Open     int     `json:"breakers_open,omitzero"`
	Keys     int     `json:"keys,omitzero"`
	MaxKeys  int     `json:"max_keys,omitzero"`
	Bytes    int64   `json:"bytes,omitzero"`
}

const (
	pageSize  = 20
	maxPage   = 1000
	nodesFrom = 10 * time.Minute // how recently a node must have written
	// nodesWithin is how long a page waits for the nodes of a database.
	nodesWithin = 500 * time.Millisecond
)

// many reads the parameter n of a query.
func many(r *rulesapi.Request, otherwise int) (int, error) {
	text := r.Query.Get("n")
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxPage {
		return 0, &rulesapi.InputError{Field: "n", Err: fmt.Errorf("from 1 to %d", maxPage)}
	}
	return n, nil
}

// ByUsed is the word of /v1/top by which the keys nearest to a limit are those that have used
// most.
const ByUsed = "used"

// top answers GET /v1/top.
func (s *Service) top(r *rulesapi.Request) (int, any, error) {
	n, err := many(r, pageSize)
	if err != nil {
		return 0, nil, err
	}
	by := r.Query.Get("by")
	if by != "" && by != ByUsed {
		return 0, nil, &rulesapi.InputError{Field: "by", Err: errors.New("want used, or nothing")}
	}
	p := s.Page(r.Context, n, s.o.Source.Policy().Rules().Names(), r.Clear())
	p.Rules = p.Rules[:min(n, len(p.Rules))]
	if by != "" {
		p.Nearest = s.nearest(n, by, r.Clear())
	}
	return http.StatusOK, p, nil
}

// Page returns a summary, with the rules named and up to n keys of each kind. Keys are in clear if
// clear is true.
func (s *Service) Page(ctx context.Context, n int, rules []string, clear bool) *Page {
	p := &Page{At: time.Now().UTC(), Version: s.version(clear), Minutes: topkeys.Minutes, Rules: s.rates.rules(s.o.Observer.CountsByRule(), rules),
		Denied: s.denials(n, clear), Nearest: s.nearest(n, "", clear), Stores: s.o.Stores(), Nodes: []rulesapi.Node{}}
	ctx, stop := context.WithTimeout(ctx, nodesWithin)
	defer stop()
	nodes, err := s.o.Editor.Nodes(ctx, nodesFrom)
	if err != nil {
		s.o.Log.Debug("nodes", "error", err)
		p.NodesError = "the database does not say which nodes there are"
	}
	p.Nodes = rulesapi.Nodes(nodes, clear)
	return p
}

// denials returns the n keys denied most.
func (s *Service) denials(n int, clear bool) []KeyCount {
	all := []KeyCount{}
	for _, d := range s.o.TopKeys.Denied(n) {
		if d.Count == 0 {
			continue // the key is banned, and has not asked lately
		}
		key, hash := s.named(d.Rule, d.Key, clear)
		all = append(all, KeyCount{d.Rule, key, hash, d.Count, d.Over, d.Since.UTC(), d.Last.UTC(), d.Shadow})
	}
	return all
}

// nearest returns the n keys nearest to a limit, or those that have used most.
func (s *Service) nearest(n int, by string, clear bool) []KeyPart {
	all := []KeyPart{}
	for _, d := range s.o.TopKeys.Nearest(maxPage * 2) {
		key, hash := s.named(d.Rule, d.Key, clear)
		all = append(all, KeyPart{d.Rule, key, hash, d.Limit.Text, d.Used, d.Of, d.Part, d.At.UTC()})
	}
	sortParts(all, by)
	return all[:min(n, len(all))]
}

// sortParts puts those first that are nearest to a limit, or have used most.
func sortParts(all []KeyPart, by string) {
	slices.SortStableFunc(all, func(a, b KeyPart) int {
		if by == ByUsed {
			return cmp.Compare(b.Used, a.Used)
		}
		return cmp.Compare(b.Part, a.Part)
	})
}

// RulesInForce returns how many rules there are.
func (s *Service) RulesInForce() int { return len(s.o.Source.Policy().Rules().Names()) }

// named returns a key as it may be shown, in clear or as its hash, and its hash.
func (s *Service) named(rule, key string, clear bool) (shown, hash string) {
	hash = s.o.Source.Policy().KeyHash(rule, key)
	if !clear && key != "" {
		return hash, hash
	}
	if !utf8.ValidString(key) {
		return strconv.QuoteToASCII(key), hash
	}
	return key, hash
}

// rates remembers the counts of rules of some seconds ago.
type rates struct {
	mu    sync.Mutex
	marks []mark // oldest first
}

type mark struct {
	at   time.Time
	said map[string]observe.RuleCounts
}

const (
	markEvery = 2 * time.Second
	marks     = 6 // enough for the last ten seconds
)

// run takes a mark now and then, until ctx is done.
func (r *rates) run(ctx context.Context, said func() map[string]observe.RuleCounts) {
	ticks := time.NewTicker(markEvery)
	defer ticks.Stop()
	for {
		r.mu.Lock()
		r.marks = append(r.marks, mark{time.Now(), said()})
		if len(r.marks) > marks {
			r.marks = slices.Clone(r.marks[1:])
		}
		r.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
	}
}

// rules returns the counts of rules, ordered by their decisions in the last seconds, then by those
// in all.
func (r *rates) rules(now map[string]observe.RuleCounts, names []string) []RuleCount {
	r.mu.Lock()
	var before mark
	if len(r.marks) > 0 {
		before = r.marks[0]
	}
	r.mu.Unlock()
	seconds := time.Since(before.at).Seconds()
	all := make([]RuleCount, 0, len(names))
	for _, name := range names {
		n, was := now[name], before.said[name]
		c := RuleCount{Rule: name, Allowed: n.Allowed, Denied: n.Denied + n.Blocked, ShadowDenied: n.ShadowDenied}
		if !before.at.IsZero() && seconds > 0 {
			c.AllowedPerSecond = perSecond(n.Allowed, was.Allowed, seconds)
			c.DeniedPerSecond = perSecond(n.Denied+n.Blocked, was.Denied+was.Blocked, seconds)
		}
		all = append(all, c)
	}
	slices.SortStableFunc(all, byRate)
	return all
}

// byRate orders rules by how often they deny now, then by how often they decide.
func byRate(a, b RuleCount) int {
	return cmp.Or(cmp.Compare(b.DeniedPerSecond, a.DeniedPerSecond), cmp.Compare(b.AllowedPerSecond, a.AllowedPerSecond),
		cmp.Compare(b.Allowed+b.Denied, a.Allowed+a.Denied))
}

func perSecond(now, was uint64, seconds float64) float64 {
	if now < was { // the rule was removed meanwhile
		return 0
	}
	return float64(int64(float64(now-was)/seconds*100+0.5)) / 100
}

// A Blocked is a key that is denied now.
type Blocked struct {
	Rule    string `json:"rule"`
	Key     string `json:"key"`
	KeyHash string `json:"key_hash"`
	// Why is "block" for a key that an operator blocked, "ban" for one that a limit has banned,
	// "never" for one whose last request can never pass, since a rule blocks it or it costs more
	// than a limit holds, and otherwise "denied".
	Why string `json:"why"`
	// Until is when the key passes again; null is never.
	Until *time.Time `json:"until"`
	// Count is how often the key was denied in the last minutes.
	Count  uint64 `json:"count"`
	Author string `json:"author,omitzero"`
	Reason string `json:"reason,omitzero"`
	// Note says why a block denies nobody, as the rules in force are; "" if it denies.
	Note string `json:"note,omitzero"`
}

// mostLooked bounds how many overrides a page searches for blocks.
const mostLooked = 20_000

// blocked answers GET /v1/blocked: it lists the keys that rules deny, and then the keys that
// operators blocked, page by page.
func (s *Service) blocked(r *rulesapi.Request) (int, any, error) {
	n, err := many(r, 100)
	if err != nil {
		return 0, nil, err
	}
	answer := struct {
		Blocked []Blocked `json:"blocked"`
		Next    string    `json:"next,omitzero"`
	}{Blocked: []Blocked{}}
	clear := r.Clear()
	skip, behind := 0, rulesource.Override{}
	if after := r.Query.Get("after"); after != "" {
		number, isNumber := strings.CutPrefix(after, "d")
		if skip, err = strconv.Atoi(number); !isNumber || err != nil || skip < 0 {
			if behind, err = rulesapi.AfterPage(r.Context, after); err != nil {
				return 0, nil, err
			}
			skip = -1
		}
	}
	if skip >= 0 {
		denied := s.denied(clear)
		for _, d := range denied[min(skip, len(denied)):min(skip+n, len(denied))] {
			if s.denies(r.Context, &d.of) {
				answer.Blocked = append(answer.Blocked, d.Blocked)
			}
		}
		if skip+n < len(denied) {
			answer.Next = "d" + strconv.Itoa(skip+n)
			return http.StatusOK, answer, nil
		}
	}
	var more []Blocked
	more, answer.Next, err = s.blocks(r.Context, behind, n-len(answer.Blocked), clear)
	answer.Blocked = append(answer.Blocked, more...)
	return http.StatusOK, answer, err
}

// denies reports whether the reason for which a key was denied still holds. If the store does not
// answer, it is assumed to hold.
func (s *Service) denies(ctx context.Context, d *topkeys.Denied) bool {
	denies, err := s.o.Source.Policy().Denies(ctx, d.Rule, d.Key, d.Limit.Label, d.Limit.Variant, d.Cost)
	return denies || err != nil
}

// A deniedKey is a key with its denials.
type deniedKey struct {
	Blocked
	of topkeys.Denied
}

// denied returns the keys that limits deny now, or rules always deny, by their last answers.
func (s *Service) denied(clear bool) (all []deniedKey) {
	now := time.Now()
	for _, d := range s.o.TopKeys.Denied(maxPage * 2) {
		if d.Shadow || d.Own || !d.Until.IsZero() && !d.Until.After(now) {
			continue // blocks by operators are listed separately, with the author
		}
		one := Blocked{Rule: d.Rule, Why: "never", Count: d.Count}
		one.Key, one.KeyHash = s.named(d.Rule, d.Key, clear)
		if until := d.Until.UTC(); !until.IsZero() {
			one.Why, one.Until = "denied", &until
		}
		if d.Banned {
			one.Why = "ban"
		}
		all = append(all, deniedKey{one, d})
	}
	slices.SortFunc(all, func(a, b deniedKey) int { return byKey(a.Blocked, b.Blocked) })
	return all
}

// blocks returns up to n blocks by operators that follow an override, and where the next page
// begins.
func (s *Service) blocks(ctx context.Context, behind rulesource.Override, n int, clear bool) (all []Blocked, next string, err error) {
	for looked := 0; looked < mostLooked; looked += maxPage {
		some, err := s.o.Editor.Overrides(ctx, rulesdb.Page{AfterRule: behind.Rule, AfterKey: behind.Key, N: maxPage})
		if err != nil {
			return nil, "", err
		}
		for _, o := range some {
			if len(all) == n {
				return all, rulesapi.NextPage(ctx, behind), nil
			}
			if behind = o; !o.Block {
				continue
			}
			key, hash := s.named(o.Rule, o.Key, clear)
			b := Blocked{Rule: o.Rule, Key: key, KeyHash: hash, Why: "block", Author: o.Author, Reason: o.Reason, Note: rulesapi.Note(s.o.Source.Policy().Rules(), o.Rule)}
			if !o.Expires.IsZero() {
				b.Until = &o.Expires
			}
			if d, known := s.o.TopKeys.Of(o.Rule, o.Key); known {
				b.Count = d.Count
			}
			all = append(all, b)
		}
		if len(some) < maxPage {
			return all, "", nil
		}
	}
	return all, rulesapi.NextPage(ctx, behind), nil
}
