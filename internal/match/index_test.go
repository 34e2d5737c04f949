package match_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/match"
	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/internal/testkit/cputime"
)

type pathOnly string

func (p pathOnly) Attribute(name string) (string, bool) { return string(p), name == "path" }

func requestOf(t *testing.T, path string) *match.Request {
	t.Helper()
	q := match.NewRequest(pathOnly(path))
	if _, reason := q.Clean(&match.Looks{Path: true}); reason != "" {
		t.Fatal(path, reason)
	}
	return q
}

func indexOf(t *testing.T, patterns []string) (*match.Index, []match.Conjunction) {
	t.Helper()
	all, items := make([]match.Conjunction, len(patterns)), make([]int32, len(patterns))
	for i, p := range patterns {
		c := match.Condition{Attribute: request.Of("path")}
		if reason, _ := c.Add(p); reason != "" {
			t.Fatal(p, reason)
		}
		all[i], items[i] = match.Conjunction{c}, int32(i)
	}
	return match.NewIndex(all, items), all
}

// TestIndexPaths looks paths up among patterns of every form: the index finds all patterns that match.
func TestIndexPaths(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 3))
	text := func(of string, most int) string {
		var b strings.Builder
		for range 1 + rnd.IntN(most) {
			b.WriteString("/" + strings.Fields(of)[rnd.IntN(len(strings.Fields(of)))])
		}
		return b.String()
	}
	patterns := []string{"/", "/**", "/**/**", "/*"}
	for range 400 {
		patterns = append(patterns, text("a b c * ** a*", 5))
	}
	index, all := indexOf(t, patterns)
	for range 2000 {
		path := text("a b c ab d", 6)
		if rnd.IntN(50) == 0 {
			path = "/"
		}
		q := requestOf(t, path)
		var found, want []int32
		for _, i := range index.Find(q, nil) {
			if item, ok := index.Holds(i, q); ok {
				found = append(found, item)
			}
		}
		for i := range all {
			if all[i].Miss(q) == nil {
				want = append(want, int32(i))
			}
		}
		if !slices.Equal(found, want) {
			t.Fatalf("%s: found %d, want %d", path, found, want)
		}
	}
}

// TestIndexTriesFew finds few of a thousand patterns to try, wherever their names stand.
func TestIndexTriesFew(t *testing.T) {
	for _, form := range []string{"/name%d/**", "/*/name%d", "/**/name%d", "/**/name%d/*", "/api/**/name%d", "/api/**/name%d/x"} {
		var patterns []string
		for i := range 1000 {
			patterns = append(patterns, fmt.Sprintf(form, i))
		}
		index, _ := indexOf(t, patterns)
		if n := len(index.Find(requestOf(t, "/api/v1/name7/x"), nil)); n > 1 {
			t.Errorf("%s: %d of 1000 are tried", form, n)
		}
	}
}

// asked counts the attributes that are read. It has none.
type asked int

func (n *asked) Attribute(string) (string, bool) { *n++; return "", false }

// TestIndexAsksForFew files conjunctions under an attribute that all of them name, though a few share
// each of its values, and not each under an attribute of its own: a lookup reads few attributes.
func TestIndexAsksForFew(t *testing.T) {
	var all []match.Conjunction
	for i := range 1000 {
		key := fmt.Sprintf("key-%d", i/4)
		var conj match.Conjunction
		for _, c := range [...][2]string{{"domain", "shop"}, {"descriptor.keys", key}, {key, fmt.Sprint(i)}} {
			one := match.Condition{Attribute: request.Of(c[0])}
			one.Add(c[1])
			conj = append(conj, one)
		}
		all = append(all, conj)
	}
	index, n := match.NewIndex(all, make([]int32, len(all))), new(asked)
	if index.Find(match.NewRequest(n), nil); *n > 3 {
		t.Errorf("asked for %d attributes", *n)
	}
}

// TestIndexOfManyAttributes files eight times as many conjunctions, each under an attribute of its own,
// for little more than eight times the work. If each looked through the attributes before it, the work
// would be more than forty times as much.
func TestIndexOfManyAttributes(t *testing.T) {
	work := func(n int) time.Duration {
		all := make([]match.Conjunction, n)
		for i := range all {
			one := match.Condition{Attribute: request.Of(fmt.Sprint("key-", i))}
			one.Add("a")
			all[i] = match.Conjunction{one}
		}
		runtime.GC()
		before := cputime.Used(t)
		match.NewIndex(all, make([]int32, n))
		return cputime.Used(t) - before
	}
	if few, many := work(4000), work(32_000); many > 24*few {
		t.Errorf("4,000 take %v of a processor, 32,000 %v", few, many)
	}
}
