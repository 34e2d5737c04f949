package page

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/stint-dev/stint/service/observe"
	"github.com/stint-dev/stint/service/operate"
	"github.com/stint-dev/stint/service/server"
)

const (
	tick        = 2 * time.Second // between events
	spansEvery  = 5               // in ticks
	shown       = 20              // rules
	shownKeys   = 10
	mostStreams = 8 // a bound, since probes and acts need connections of --admin too
	// sendWithin is how long a browser may take to read an event.
	sendWithin = 10 * time.Second
)

// live computes and encodes the events once for all browsers that watch, and does nothing while
// there are none.
type live struct {
	mu      sync.Mutex
	streams int
	closed  bool
	changed chan struct{} // closed and replaced at each new event
	now     []byte        // the encoded event "now"
	spans   []byte        // the encoded events "hour" and "day", and how many pairs there were
	pairs   int
	listed  int // number of rules in it
	rates   rates
}

// A now is the contents of an event "now". Keys are hashes.
type now struct {
	*operate.Page
	// NotReady says why the process should get no requests; "" if it should.
	NotReady string `json:"not_ready,omitzero"`
	// AllowedPerSecond and DeniedPerSecond count requests, in the last seconds.
	AllowedPerSecond float64 `json:"allowed_per_second"`
	DeniedPerSecond  float64 `json:"denied_per_second"`
	// RulesInForce is how many rules there are.
	RulesInForce int `json:"rules_in_force"`
}

// run makes events until ctx is done.
func (l *live) run(ctx context.Context, p *Page) {
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	for n := 0; ; n++ {
		l.publish(p, n%spansEvery == 0)
		select {
		case <-ctx.Done():
			l.mu.Lock()
			l.closed = true
			close(l.changed)
			l.mu.Unlock()
			return
		case <-ticks.C:
		}
	}
}

// publish records counts and sends events to the streams.
func (l *live) publish(p *Page, also bool) {
	at, requests := time.Now(), p.o.Observer.Requests()
	l.mu.Lock()
	l.rates.add(at, requests)
	watched := l.streams > 0
	l.mu.Unlock()
	if watched || also {
		said := p.o.Observer.CountsByRule()
		for _, s := range p.spans {
			s.add(at, requests, said)
		}
	}
	if watched {
		l.writeEvents(p, also)
	}
}

// writeEvents encodes the events.
func (l *live) writeEvents(p *Page, also bool) {
	var names []string
	var spans []byte
	for i, s := range p.spans {
		h := s.history(time.Now(), shown)
		for _, r := range h.Rules {
			names = append(names, r.Rule)
		}
		spans = append(spans, event([]string{"hour", "day"}[i], h)...)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	n := now{Page: p.o.Service.Page(context.Background(), shownKeys, names, false), RulesInForce: p.o.Service.RulesInForce()}
	if err := p.o.Ready(); err != nil {
		n.NotReady = err.Error()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n.AllowedPerSecond, n.DeniedPerSecond = l.rates.perSecond()
	l.now = event("now", n)
	if also || l.spans == nil || len(names) != l.listed { // a rule's first request appears at once
		l.spans, l.listed = spans, len(names)
		l.pairs++
	}
	if !l.closed {
		close(l.changed)
		l.changed = make(chan struct{})
	}
}

// event encodes an event of a stream.
func event(name string, data any) []byte {
	var b bytes.Buffer
	b.WriteString("event: " + name + "\ndata: ")
	encoder := json.NewEncoder(&b) // also ends the line
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(data); err != nil {
		panic(err) // unreachable: all types can be encoded
	}
	b.WriteByte('\n')
	return b.Bytes()
}

// enter counts a browser that begins to watch. It returns false if there is no room, or the server
// stops.
func (l *live) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.streams >= mostStreams {
		return false
	}
	l.streams++
	return true
}

func (l *live) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.streams--; l.streams == 0 {
		l.now, l.spans = nil, nil // so that the next browser gets no old events
	}
}

// stream answers GET live: it sends an event "now" every two seconds, and events "hour" and "day"
// first and every ten seconds.
func (p *Page) stream(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		server.WrongMethod(w, http.MethodGet)
		return
	}
	if !p.watches(r) {
		server.Unauthorized(w, r, "sign in first")
		return
	}
	if !p.live.enter() {
		w.Header().Set("Retry-After", "10")
		server.WriteProblem(w, http.StatusServiceUnavailable, "", "as many pages are open as this server has streams for")
		return
	}
	defer p.live.leave()
	out := http.NewResponseController(w)
	if err := out.SetReadDeadline(time.Time{}); err != nil { // the browser sends nothing for hours
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // otherwise nginx would buffer events
	p.follow(w, r, out)
}

// ruleHour answers GET hour?rule=NAME with the verdicts of a rule in the last hour.
func (p *Page) ruleHour(w http.ResponseWriter, r *http.Request) {
	if !p.watches(r) {
		server.Unauthorized(w, r, "sign in first")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(p.spans[0].rule(time.Now(), r.URL.Query().Get("rule"))) // a client that has gone needs no answer
}

// watches reports whether the request may read the stream.
func (p *Page) watches(r *http.Request) bool {
	_, role, err := p.may(r, "/v1/top")
	return err == nil && role != ""
}

// follow writes events until the browser has gone, its user may no longer watch, or the server
// stops.
func (p *Page) follow(w http.ResponseWriter, r *http.Request, out *http.ResponseController) {
	l, pairs := &p.live, -1
	for p.watches(r) { // a revoked token ends its streams at the next event
		l.mu.Lock()
		first := l.now == nil && !l.closed
		l.mu.Unlock()
		if first {
			l.writeEvents(p, true)
		}
		l.mu.Lock()
		changed, closed, send := l.changed, l.closed, l.now
		if l.pairs != pairs {
			pairs = l.pairs
			send = append(bytes.Clone(l.spans), send...)
		}
		l.mu.Unlock()
		if closed {
			return
		}
		if out.SetWriteDeadline(time.Now().Add(sendWithin)) != nil {
			return
		}
		if _, err := w.Write(send); err != nil || out.Flush() != nil {
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// rates has the counts of the last ten seconds.
type rates struct {
	marks [6]mark
	next  int
}

type mark struct {
	at time.Time
	observe.Requests
}

func (r *rates) add(at time.Time, requests observe.Requests) {
	r.marks[r.next%len(r.marks)] = mark{at, requests}
	r.next++
}

// perSecond returns how many requests passed and were denied.
func (r *rates) perSecond() (allowed, denied float64) {
	if r.next < 2 {
		return 0, 0
	}
	newest, oldest := r.marks[(r.next-1)%len(r.marks)], r.marks[max(r.next-len(r.marks), 0)%len(r.marks)]
	seconds := newest.at.Sub(oldest.at).Seconds()
	if seconds <= 0 {
		return 0, 0
	}
	rate := func(now, was uint64) float64 { return float64(int64(float64(since(now, was))/seconds*10+0.5)) / 10 }
	return rate(newest.Allowed, oldest.Allowed), rate(newest.Denied, oldest.Denied)
}
