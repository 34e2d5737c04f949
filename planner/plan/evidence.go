package plan

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/stint-dev/stint/internal/wording"
	"github.com/stint-dev/stint/planner/accesslog"
)

// An Evidence is what a client did, by which people tell abuse from a customer.
type Evidence struct {
	Requests int64 `json:"requests"`
	// Share is the client's fraction of all requests, from 0 to 1.
	Share float64 `json:"share"`
	// From is its first request, Span the time from there to its last, and Minute the most it sent
	// in a minute of the clock.
	From   time.Time `json:"from"`
	Span   Duration  `json:"span"`
	Minute int64     `json:"most_per_minute"`
	// Agents and Paths are the most frequent ones. Path segments that are numbers or names of
	// single things are written as *.
	Agents []Part `json:"user_agents"`
	Paths  []Part `json:"paths"`
	// Kinds is how many user agents there were: an address with many has many people behind it.
	Kinds int `json:"user_agent_kinds"`
	// Statuses are the statuses of the answers, the most frequent first.
	Statuses []Part `json:"statuses"`
	// Looks says in words what a client like this usually is.
	Looks string `json:"looks"`
}

// A Part is one value, such as a path, and how many of a client's requests had it.
type Part struct {
	Text  string  `json:"text"`
	Share float64 `json:"share"`
}

// Rate returns how many requests came in a second, on average.
func (e *Evidence) Rate() float64 {
	if s := time.Duration(e.Span).Seconds(); s > 0 {
		return float64(e.Requests) / s
	}
	return float64(e.Requests)
}

// shown are the attributes that evidence consists of.
var shown = []string{"status", "path", "method", "header.user-agent"}

// mostKinds bounds how many different paths and user agents of a client are counted, and mostNamed
// how many clients are looked at.
const (
	mostKinds = 256
	mostNamed = 64
)

// A dossier collects the evidence on one client.
type dossier struct {
	requests, first, last    int64
	minutes                  map[int64]int64
	agents, paths, responses map[string]int64
}

func newDossier() *dossier {
	return &dossier{minutes: make(map[int64]int64), agents: make(map[string]int64), paths: make(map[string]int64), responses: make(map[string]int64)}
}

// tick counts one request of a kind, unless the kind is new and there are too many.
func tick(kinds map[string]int64, kind []byte) {
	if kind == nil {
		return
	}
	if n, ok := kinds[string(kind)]; ok || len(kinds) < mostKinds {
		kinds[string(kind)] = n + 1
	}
}

func (d *dossier) add(r *accesslog.Record) {
	if d.requests == 0 || r.At < d.first {
		d.first = r.At
	}
	d.requests++
	d.last = max(d.last, r.At)
	d.minutes[r.At/int64(time.Minute)]++
	tick(d.responses, r.Values[0])
	tick(d.agents, r.Values[3])
	if path := r.Values[1]; path != nil {
		tick(d.paths, []byte(strings.TrimSpace(string(r.Values[2])+" "+foldPath(string(path)))))
	}
}

// join adds the counts of another worker.
func (d *dossier) join(o *dossier) {
	if o.requests == 0 {
		return
	}
	if d.requests == 0 || o.first < d.first {
		d.first = o.first
	}
	d.requests += o.requests
	d.last = max(d.last, o.last)
	for _, k := range [...][2]map[string]int64{{d.agents, o.agents}, {d.paths, o.paths}, {d.responses, o.responses}} {
		for text, n := range k[1] {
			k[0][text] += n
		}
	}
	for minute, n := range o.minutes {
		d.minutes[minute] += n
	}
}

func (d *dossier) evidence(o *Options, of int64) *Evidence {
	e := &Evidence{
		Requests: d.requests, Share: float64(d.requests) / float64(max(of, 1)),
		From: o.when(d.first), Span: Duration(d.last - d.first), Kinds: len(d.agents),
		Agents: mostFrequent(d.agents, d.requests, 2), Paths: mostFrequent(d.paths, d.requests, 3), Statuses: mostFrequent(d.responses, d.requests, 4),
	}
	for _, n := range d.minutes {
		e.Minute = max(e.Minute, n)
	}
	e.Looks = e.looks(d)
	return e
}

// mostFrequent returns the most frequent kinds.
func mostFrequent(kinds map[string]int64, of int64, most int) []Part {
	names := slices.SortedFunc(maps.Keys(kinds), func(a, b string) int { return cmp.Or(cmp.Compare(kinds[b], kinds[a]), strings.Compare(a, b)) })
	all := []Part{}
	for _, name := range names[:min(len(names), most)] {
		all = append(all, Part{strings.ToValidUTF8(name, "?"), float64(kinds[name]) / float64(max(of, 1))})
	}
	return all
}

// Thresholds of looks: the fraction that is most of the requests, and more kinds of user agents
// than a single program has.
const (
	mostlyPart = 0.5
	nearlyPart = 0.95
	fewErrors  = 0.05
	manyAgents = 5
)

// looks says what a client like this usually is. It is a hint, not a verdict.
func (e *Evidence) looks(d *dossier) string {
	of := func(codes ...string) float64 {
		n := int64(0)
		for _, c := range codes {
			n += d.responses[c]
		}
		return float64(n) / float64(max(d.requests, 1))
	}
	bad := int64(0)
	for code, n := range d.responses {
		if code >= "400" {
			bad += n
		}
	}
	switch {
	case len(d.responses) == 0:
		return ""
	case of("401", "403") >= mostlyPart:
		return "mostly refused: guessing, or a broken program"
	case of("404") >= mostlyPart:
		return "mostly not found: a scan, or a broken program"
	case of("429") >= mostlyPart:
		return "mostly denied before: it does not slow down"
	case e.Kinds >= manyAgents:
		return "many user agents: many people behind one address, or one that pretends"
	case float64(bad) <= fewErrors*float64(d.requests):
		if e.browser() {
			return "answered well, with a browser: a person, or a program that pretends"
		}
		return "answered well: a program, a crawler or a partner"
	}
	return ""
}

// browser reports whether nearly all requests have the user agents of browsers.
func (e *Evidence) browser() bool {
	fraction := 0.0
	for _, a := range e.Agents {
		text := strings.ToLower(a.Text)
		if strings.HasPrefix(text, "mozilla/") && !strings.Contains(text, "bot") && !strings.Contains(text, "crawl") && !strings.Contains(text, "spider") && !strings.Contains(text, "+http") {
			fraction += a.Share
		}
	}
	return fraction >= nearlyPart
}

// String returns the evidence in a line.
func (e *Evidence) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s of all) in %s, %.3g/s, up to %s a minute", wording.Count(e.Requests, "request"), percentOf(e.Share), e.Span, e.Rate(), wording.Grouped(e.Minute))
	for _, list := range [...][]Part{e.Statuses, e.Paths, e.Agents} {
		for i, p := range list {
			joint := ", "
			if i == 0 {
				joint = "; "
			}
			fmt.Fprintf(&b, "%s%s %s", joint, clip(plainText(p.Text), 48), percentOf(p.Share))
		}
	}
	if e.Kinds > len(e.Agents) {
		fmt.Fprintf(&b, ", %d user agents", e.Kinds)
	}
	if e.Looks != "" {
		b.WriteString("; " + e.Looks)
	}
	return b.String()
}

// percentOf writes a fraction in percent.
func percentOf(fraction float64) string { return share(int64(fraction*1e6+0.5), 1e6) }

// plainText replaces unprintable characters: they could end a line or a comment, control a
// terminal, or reverse the text after them.
func plainText(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}

// plainLines is plainText for several lines.
func plainLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = plainText(lines[i])
	}
	return strings.Join(lines, "\n")
}

// look reads the logs again and returns the evidence on clients, by name.
func (w *run) look(ctx context.Context, ids []uint32) (map[string]*Evidence, error) {
	index, n := make(map[string][]int), 0
	for _, id := range ids {
		if key := w.clients.key(id); n < mostNamed && index[key] == nil {
			index[key], n = []int{n}, n+1
		}
	}
	all, err := w.lookFor(ctx, index, n)
	if err != nil {
		return nil, err
	}
	found := make(map[string]*Evidence)
	for key, at := range index {
		found[strings.ToValidUTF8(w.extraction.name(key), "?")] = all[at[0]].evidence(w.options, w.requests+w.excluded)
	}
	return found, nil
}

// lookFor reads the logs again for n dossiers. The index says to which of them the lines with a key
// belong.
func (w *run) lookFor(ctx context.Context, index map[string][]int, n int) ([]*dossier, error) {
	all := make([]*dossier, n)
	for i := range all {
		all[i] = newDossier()
	}
	if len(index) == 0 {
		return all, nil
	}
	for _, in := range w.inputs {
		if err := w.lookIn(ctx, in, index, all); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// lookIn looks into one log with all workers. Each worker reads blocks and looks at them at once.
func (w *run) lookIn(ctx context.Context, in *input, index map[string][]int, all []*dossier) error {
	file, err := in.open()
	if err != nil {
		return err
	}
	defer file.Close()
	var mu sync.Mutex
	next := func(block []byte) ([]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return file.Next(block)
	}
	var workers sync.WaitGroup
	for range w.workers {
		workers.Go(func() {
			own := make([]*dossier, len(all))
			for i := range own {
				own[i] = newDossier()
			}
			r := newWitness(w.extraction, in)
			for block, err := next(nil); err == nil; block, err = next(block) {
				r.read(block, index, own)
			}
			mu.Lock()
			defer mu.Unlock()
			for i := range all {
				all[i].join(own[i])
			}
		})
	}
	workers.Wait()
	return ctx.Err() // the first reading has reported any other error
}

// A witness finds the lines of wanted clients, and reads all their attributes.
type witness struct {
	extractor   *extractor
	key, detail accesslog.Parser
	line, whole accesslog.Record
}

func newWitness(q *extraction, in *input) *witness {
	return &witness{
		extractor: q.extractor(), key: in.format.Parser(), detail: in.format.With(shown).Parser(),
		line:  accesslog.Record{Values: make([][]byte, len(q.attributes), len(q.attributes)+apart)},
		whole: accesslog.Record{Values: make([][]byte, len(shown))},
	}
}

func (w *witness) read(block []byte, index map[string][]int, to []*dossier) {
	for len(block) > 0 {
		var line []byte
		line, block = accesslog.Line(block)
		if w.key.Parse(line, &w.line) != nil || w.line.At < w.extractor.from || w.line.At >= w.extractor.to {
			continue
		}
		w.extractor.client(w.line.Values)
		all := index[string(w.extractor.keyOf(w.line.Values))]
		if len(all) == 0 || !w.extractor.counts(w.line.Values) || w.detail.Parse(line, &w.whole) != nil {
			continue
		}
		for _, i := range all {
			to[i].add(&w.whole)
		}
	}
}
