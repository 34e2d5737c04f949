package lab

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/stint-dev/stint/planner/trial"
)

// Arrivals say which client sends what: a shape and the parameters that [Shapes] lists for it.
// Parameters of other shapes must be absent.
type Arrivals struct {
	Shape string `json:"shape"`

	Rate   string `json:"rate"`   // requests in a time, such as "20/s"
	Other  string `json:"other"`  // the rate of each client but the first
	Size   int64  `json:"size"`   // requests of a burst
	Every  string `json:"every"`  // from burst to burst
	Period string `json:"period"` // from edge to edge
	Gap    string `json:"gap"`    // between the bursts at an edge; before a retry
	On     string `json:"on"`
	Off    string `json:"off"`
	Seed   uint64 `json:"seed"`
	Shared bool   `json:"shared"` // all clients share one key

	Clients int `json:"clients"` // how many there are

	Cell   string  `json:"cell"`   // the time that each count is for
	Counts []int64 `json:"counts"` // requests in each cell, evenly spread

	Text string `json:"text"` // phases as stint simulate takes them

	Times []int64  `json:"times"` // nanoseconds from the start, in order
	Costs []int64  `json:"costs"` // one for each time; the default value is 1
	Keys  []string `json:"keys"`  // one for each time; the default value is one key
}

// A send is a request to be sent.
type send struct {
	at   int64 // nanoseconds from the start
	cost int64
	who  int // the client
}

// retryAfter is the value of traffic.retry for a client that waits for Retry-After.
const retryAfter = -1

// traffic is the requests that arrive. With a retry, they are the requests of one client that sends
// one after another, and sends a denied one again.
type traffic struct {
	sends   []send // in order of time
	clients []string
	shared  bool  // all clients have one key
	retry   int64 // nanoseconds to the next try, or retryAfter; with 0 denied requests are dropped
	horizon int64
	lasts   int64  // nanoseconds that each request is in flight, for limits in flight
	phases  string // the sends as --arrivals of stint simulate takes them; "" if it cannot
}

// key returns the key that a client's requests count under.
func (t *traffic) key(who int) string {
	if t.shared {
		who = 0
	}
	return t.clients[who]
}

// traffic makes the requests of a shape up to the horizon. With horizon 0 the shape ends by itself.
func (a *Arrivals) traffic(horizon int64) (*traffic, error) {
	i := slices.IndexFunc(shapes, func(s Shape) bool { return s.Name == a.Shape })
	if i < 0 {
		return nil, fmt.Errorf("arrivals.shape: %q is unknown: want one of %s", clip(a.Shape), strings.Join(shapeNames(), ", "))
	}
	if err := a.checkParameters(shapes[i]); err != nil {
		return nil, err
	}
	if horizon == 0 && a.Shape != "text" && a.Shape != "list" {
		return nil, fmt.Errorf("horizon: missing: the shape %s has no end of its own", a.Shape)
	}
	t := &traffic{horizon: horizon, clients: []string{"client"}}
	if err := shapes[i].make(a, t); err != nil {
		return nil, err
	}
	return t, t.check()
}

// checkParameters refuses parameters that the shape does not have.
func (a *Arrivals) checkParameters(s Shape) error {
	v := reflect.ValueOf(*a)
	for i := range v.NumField() {
		name := v.Type().Field(i).Tag.Get("json")
		known := name == "shape" || slices.ContainsFunc(s.Parameters, func(p Parameter) bool { return p.Name == name })
		if !known && !v.Field(i).IsZero() {
			return fmt.Errorf("arrivals.%s: the shape %s has no such parameter", name, s.Name)
		}
	}
	return nil
}

// check drops requests after the horizon, and checks the bounds of the others.
func (t *traffic) check() error {
	n := sort.Search(len(t.sends), func(i int) bool { return t.sends[i].at >= t.horizon })
	if n < len(t.sends) {
		t.sends, t.phases = t.sends[:n], ""
	}
	switch {
	case n == 0:
		return errors.New("arrivals: no request before the horizon")
	case n > MaxArrivals:
		return errTooMany
	case t.retry != 0:
		t.phases = "" // the limit decides what is sent
	}
	return nil
}

var errTooMany = fmt.Errorf("arrivals: more than %d requests: take a lower rate or a shorter horizon", MaxArrivals)

// script writes phases one after another, up to a horizon.
type script struct {
	words   []string
	sent    int64
	at      int64
	horizon int64
}

func (s *script) pause(d int64) {
	if d = min(d, s.horizon-s.at); d > 0 {
		s.words = append(s.words, "+"+time.Duration(d).String())
		s.at += d
	}
}

// once sends n requests at one instant.
func (s *script) once(n int64) {
	if s.at < s.horizon && n > 0 {
		s.words = append(s.words, fmt.Sprintf("%d@once", n))
		s.sent += n
	}
}

// steady sends at a rate for a stretch of time: one request at each slot before its end.
func (s *script) steady(rate rate, stretch int64) {
	if n := rate.slots(min(stretch, s.horizon-s.at)); n > 0 {
		s.words = append(s.words, fmt.Sprintf("%d@%s", n, rate.text))
		s.sent += n
		s.at += rate.phase.Slot(n)
	}
}

// full reports that no further request counts: it would be behind the horizon or above MaxArrivals.
func (s *script) full() bool { return s.at >= s.horizon || s.sent > MaxArrivals }

// play puts the script into the traffic.
func (s *script) play(t *traffic) error {
	if s.sent > MaxArrivals {
		return errTooMany
	}
	s.pause(s.horizon - s.at)
	return t.play(strings.Join(s.words, " "))
}

// play puts phases into the traffic. Without a horizon the phases say how long it is.
func (t *traffic) play(text string) error {
	phases, err := trial.ParsePhases(text)
	if err != nil {
		return fmt.Errorf("arrivals: %w", err)
	}
	sent := int64(0)
	for _, p := range phases {
		sent += p.Requests
	}
	if sent > MaxArrivals {
		return errTooMany
	}
	arrivals, end := trial.Arrivals(phases)
	t.sends = slices.Grow(t.sends, len(arrivals))
	for _, a := range arrivals {
		t.sends = append(t.sends, send{at: a.At, cost: a.Cost})
	}
	if t.horizon == 0 {
		if end > maxHorizon {
			return fmt.Errorf("arrivals: the phases take more than %v", time.Duration(maxHorizon))
		}
		t.horizon = max(end, int64(time.Second))
	}
	t.phases = text
	return nil
}

// A rate is a number of requests in a stretch of time.
type rate struct {
	text  string
	phase trial.Phase // one request at that rate, to compute slots
}

func parseRate(name, text string) (rate, error) {
	if text == "" {
		return rate{}, fmt.Errorf("arrivals.%s: missing: want a rate such as 20/s", name)
	}
	phases, err := trial.ParsePhases("1@" + text)
	if err != nil || len(phases) != 1 || text == "once" {
		return rate{}, fmt.Errorf("arrivals.%s: %q is no rate: want one such as 20/s", name, clip(text))
	}
	return rate{text, phases[0]}, nil
}

// slots returns how many requests are due before the end of a stretch, at most MaxArrivals + 1.
func (r rate) slots(stretch int64) int64 {
	if stretch <= 0 {
		return 0
	}
	return int64(sort.Search(MaxArrivals+1, func(i int) bool { return r.phase.Slot(int64(i)) >= stretch }))
}

func (a *Arrivals) steady(t *traffic) error {
	r, err := parseRate("rate", a.Rate)
	if err != nil {
		return err
	}
	s := script{horizon: t.horizon}
	s.steady(r, t.horizon)
	return s.play(t)
}

func (a *Arrivals) bursts(t *traffic) error {
	every, err := length("arrivals.every", a.Every, 1)
	if err != nil {
		return err
	}
	if err := a.checkSize(); err != nil {
		return err
	}
	s := script{horizon: t.horizon}
	for !s.full() {
		s.once(a.Size)
		s.pause(every)
	}
	return s.play(t)
}

func (a *Arrivals) checkSize() error {
	if a.Size < 1 || a.Size > MaxArrivals {
		return fmt.Errorf("arrivals.size: %d, want from 1 to %d", a.Size, MaxArrivals)
	}
	return nil
}

// edge sends a burst on each side of the second edge of a window. One period later it sends requests
// at a rate, for two periods.
func (a *Arrivals) edge(t *traffic) error {
	period, err := length("arrivals.period", a.Period, 2)
	if err != nil {
		return err
	}
	gap, err := length("arrivals.gap", a.Gap, 1)
	if err != nil {
		return err
	}
	if gap >= 2*period {
		return fmt.Errorf("arrivals.gap: %s, want less than two periods", a.Gap)
	}
	r, err := parseRate("rate", a.Rate)
	if err != nil {
		return err
	}
	if err := a.checkSize(); err != nil {
		return err
	}
	s := script{horizon: t.horizon}
	s.pause(2*period - gap)
	s.once(a.Size)
	s.pause(gap)
	s.once(a.Size)
	s.pause(period)
	s.steady(r, 2*period)
	return s.play(t)
}

func (a *Arrivals) onOff(t *traffic) error {
	on, err := length("arrivals.on", a.On, 1)
	if err != nil {
		return err
	}
	off, err := length("arrivals.off", a.Off, 1)
	if err != nil {
		return err
	}
	r, err := parseRate("rate", a.Rate)
	if err != nil {
		return err
	}
	s := script{horizon: t.horizon}
	for begin := int64(0); !s.full(); begin = max(begin+on+off, s.at) {
		s.pause(begin - s.at)
		s.steady(r, on)
		s.pause(begin + on + off - s.at)
	}
	return s.play(t)
}

// poisson sends at random: the gaps are exponential, drawn from the seed.
func (a *Arrivals) poisson(t *traffic) error {
	r, err := parseRate("rate", a.Rate)
	if err != nil {
		return err
	}
	const many = 1000
	mean := float64(r.phase.Slot(many)) / many
	random := rand.New(rand.NewPCG(a.Seed, 0))
	for at := 0.0; ; {
		at += random.ExpFloat64() * mean
		if at >= float64(t.horizon) {
			return nil
		}
		if len(t.sends) == MaxArrivals {
			return errTooMany
		}
		t.sends = append(t.sends, send{at: int64(at), cost: 1})
	}
}

// hammer is a client that tries again a fixed gap after each denial.
func (a *Arrivals) hammer(t *traffic) error {
	gap, err := length("arrivals.gap", a.Gap, 1)
	if err != nil {
		return err
	}
	t.retry = gap
	return a.steady(t)
}

// polite is a client that waits for the Retry-After that it receives.
func (a *Arrivals) polite(t *traffic) error {
	t.retry = retryAfter
	return a.steady(t)
}

// several sends for several clients: the first at a rate of its own.
func (a *Arrivals) several(t *traffic) error {
	if a.Clients < 2 || a.Clients > MaxClients {
		return fmt.Errorf("arrivals.clients: %d, want from 2 to %d", a.Clients, MaxClients)
	}
	first, err := parseRate("rate", a.Rate)
	if err != nil {
		return err
	}
	other, err := parseRate("other", a.Other)
	if err != nil {
		return err
	}
	t.clients, t.shared = nil, a.Shared
	for who := range a.Clients {
		t.clients = append(t.clients, fmt.Sprintf("client %d", who+1))
		r := other
		if who == 0 {
			r = first
		}
		n := r.slots(t.horizon)
		if int64(len(t.sends))+n > MaxArrivals {
			return errTooMany
		}
		for i := range n {
			t.sends = append(t.sends, send{at: r.phase.Slot(i), cost: 1, who: who})
		}
	}
	slices.SortStableFunc(t.sends, func(a, b send) int { return int(min(max(a.at-b.at, -1), 1)) })
	return nil
}

// drawn sends the number of requests drawn in each cell, evenly spread.
func (a *Arrivals) drawn(t *traffic) error {
	cell, err := length("arrivals.cell", a.Cell, 1)
	if err != nil {
		return err
	}
	if len(a.Counts) == 0 || len(a.Counts) > MaxColumns {
		return fmt.Errorf("arrivals.counts: %d cells, want from 1 to %d", len(a.Counts), MaxColumns)
	}
	s := script{horizon: t.horizon}
	begin := int64(0)
	for i, n := range a.Counts {
		if n < 0 || n > MaxArrivals {
			return fmt.Errorf("arrivals.counts[%d]: %d, want from 0 to %d", i, n, MaxArrivals)
		}
		if n > 0 && begin < t.horizon {
			s.pause(begin - s.at)
			r, err := parseRate("counts", fmt.Sprintf("%d/%s", n, time.Duration(cell)))
			if err != nil {
				return err
			}
			s.steady(r, cell)
		}
		begin = min(begin+cell, maxHorizon)
	}
	if s.sent == 0 {
		return errors.New("arrivals.counts: no request is drawn before the horizon")
	}
	return s.play(t)
}

func (a *Arrivals) phases(t *traffic) error { return t.play(a.Text) }

// list sends each listed request at its time.
func (a *Arrivals) list(t *traffic) error {
	n := len(a.Times)
	switch {
	case n == 0 || n > MaxArrivals:
		return fmt.Errorf("arrivals.times: %d given, want from 1 to %d", n, MaxArrivals)
	case len(a.Costs) != 0 && len(a.Costs) != n:
		return fmt.Errorf("arrivals.costs: %d given for %d times", len(a.Costs), n)
	case len(a.Keys) != 0 && len(a.Keys) != n:
		return fmt.Errorf("arrivals.keys: %d given for %d times", len(a.Keys), n)
	case len(a.Keys) != 0:
		t.clients = nil
	}
	known := make(map[string]int)
	last := int64(0)
	for i, at := range a.Times {
		s := send{at: at, cost: 1}
		if at < last || at > maxHorizon {
			return fmt.Errorf("arrivals.times[%d]: %d: want nanoseconds in order, from 0 to %d", i, at, maxHorizon)
		}
		last = at
		if len(a.Costs) != 0 {
			s.cost = a.Costs[i]
		}
		if s.cost < 0 {
			return fmt.Errorf("arrivals.costs[%d]: %d is below 0", i, s.cost)
		}
		if len(a.Keys) != 0 {
			who, ok := known[a.Keys[i]]
			if !ok {
				who = len(t.clients)
				known[a.Keys[i]] = who
				t.clients = append(t.clients, a.Keys[i])
			}
			s.who = who
		}
		t.sends = append(t.sends, s)
	}
	if len(t.clients) > MaxClients {
		return fmt.Errorf("arrivals.keys: %d clients, want at most %d", len(t.clients), MaxClients)
	}
	if t.horizon == 0 {
		t.horizon = max(last+1, int64(time.Second))
	}
	return nil
}
