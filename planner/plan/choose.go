package plan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/wording"
)

// A Target is the most that a limit may deny.
type Target struct {
	// Share is the fraction of the clients, or of the requests.
	Share    float64
	Requests bool
	// Cliff allows a limit to deny the clients that stand clearly apart from the rest, even where
	// they are more than the share.
	Cliff bool
}

// DefaultTarget is the target of callers that name none.
var DefaultTarget = Target{Share: 0.001, Cliff: true}

// ParseTarget reads "0.1%", "0.1% of clients", "0.1% of requests" or "default".
func ParseTarget(text string) (Target, error) {
	if text == "default" {
		return DefaultTarget, nil
	}
	number, of, ok := strings.Cut(text, "%")
	share, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if !ok || err != nil || !(share >= 0 && share <= 100) {
		return Target{}, fmt.Errorf("%q: write a share such as 0.1%%, 0.1%% of clients or 0.1%% of requests", text)
	}
	t := Target{Share: share / 100}
	switch strings.TrimPrefix(strings.TrimSpace(of), "of ") {
	case "", "clients":
	case "requests":
		t.Requests = true
	default:
		return Target{}, fmt.Errorf("%q: a share is of clients or of requests", text)
	}
	return t, nil
}

// String returns the target in words.
func (t Target) String() string {
	of := "clients"
	if t.Requests {
		of = "requests"
	}
	return strconv.FormatFloat(t.Share*100, 'f', -1, 64) + "% of " + of
}

// most returns how many of n the target may deny, rounded down.
func (t Target) most(n int64) int64 { return int64(math.Floor(t.Share*float64(n) + 1e-9)) }

// A limit is tighter the less it lets pass in tightWithin: that counts burst and rate alike. A
// client that has used up its burst must recover within recoverWithin, or the tightest choice would
// be a burst as long as the log.
const (
	tightWithin   = time.Minute
	recoverWithin = time.Hour
)

// A Candidate is a rate and the least burst with which it keeps to the target.
type Candidate struct {
	Rate  string `json:"rate"`
	Burst int64  `json:"burst"`
	// Minute is the most that passes in any minute.
	Minute int64 `json:"most_per_minute"`
	// Recovers is how long an empty bucket takes to be full.
	Recovers Duration `json:"recovers"`
	// Fits reports whether the bucket recovers within recoverWithin.
	Fits bool `json:"fits"`

	rate Rate
}

func candidate(rate Rate, burst int64) Candidate {
	burst = max(burst, 1)
	recovers := time.Duration(math.MaxInt64)
	if burst < math.MaxInt64/rate.unit() {
		recovers = time.Duration(burst * rate.unit())
	}
	return Candidate{
		Rate: rate.String(), Burst: burst, rate: rate,
		Minute:   burst + int64(tightWithin)/rate.unit(),
		Recovers: Duration(recovers), Fits: recovers <= recoverWithin,
	}
}

// passes returns the most that passes within a time.
func (k Candidate) passes(within time.Duration) int64 { return k.Burst + int64(within)/k.rate.unit() }

// tightest returns the candidate that lets the least pass in a minute, among those that recover in
// time if there are any.
func tightest(all []Candidate) Candidate {
	return slices.MinFunc(all, func(a, b Candidate) int {
		if a.Fits != b.Fits {
			if a.Fits {
				return -1
			}
			return 1
		}
		if !a.Fits {
			return cmp.Compare(a.Recovers, b.Recovers)
		}
		return cmp.Or(cmp.Compare(a.Minute, b.Minute), cmp.Compare(a.Burst, b.Burst))
	})
}

// roundUp returns the next round number.
func roundUp(n int64) int64 {
	for unit := int64(1); ; unit *= 10 {
		for _, step := range [...]int64{10, 12, 15, 20, 25, 30, 40, 50, 60, 80} {
			if step*unit%10 == 0 && step*unit/10 >= n {
				return step * unit / 10
			}
		}
		if n <= 10 {
			return max(n, 1)
		}
		if unit > math.MaxInt64/1000 {
			return n
		}
	}
}

// A Choice is the limit to try, and how certain it is.
type Choice struct {
	Target string `json:"target"`
	// Tightest is the tightest limit that keeps to the target on this log. Limit is the same with
	// the margin for growth.
	Tightest   string      `json:"tightest"`
	Limit      string      `json:"limit"`
	Margin     float64     `json:"margin"`
	Candidates []Candidate `json:"candidates"`
	// Would is what Rule would have done to this log: to all clients, including those that had no
	// say; exempt clients are let through.
	Would Result `json:"would"`
	// Sets are the clients that determine the limit: a tighter one would deny them first.
	Sets []Setter `json:"set_by"`
	// Left is what the limit does to the clients that had no say.
	Left []Left `json:"left_out"`
	// Cliff shows which clients are denied as the limit tightens.
	Cliff *Cliff `json:"cliff"`
	// Doubts are sentences about what the choice depends on, and what this log cannot show.
	Doubts []string `json:"doubts"`
	// Rule is a rules file to paste, and Check is the command that tries the limit on a later log.
	Rule  string `json:"rule"`
	Check string `json:"check"`
}

// A Setter is a client for whose sake the limit is not tighter.
type Setter struct {
	Key      string `json:"key"`
	Requests int64  `json:"requests"`
	// Burst is the least burst that denies the client nothing, at the rate of the tightest limit.
	Burst    int64     `json:"burst"`
	Evidence *Evidence `json:"evidence"`

	id uint32
}

// setters returns, of the clients that a limit denies nothing, those that need the most.
func (c *chooser) setters(r *reading, demand *curve, best Candidate) []Setter {
	all := []Setter{}
	for _, packed := range demand.ranked(slices.Index(rates[:], best.rate)) {
		if id := idOf(packed); need(packed) <= best.Burst && len(all) < mostWho {
			all = append(all, Setter{Key: r.name(id), Requests: int64(r.sent[id]), Burst: need(packed), id: id})
		}
	}
	return all
}

// A Left is a client that had no say in a choice, and what the limit does to it.
type Left struct {
	Key      string `json:"key"`
	Requests int64  `json:"requests"`
	Denied   int64  `json:"denied"`
	Exempt   bool   `json:"exempt"`
}

// A chooser finds limits for the requests of a reading.
type chooser struct {
	target  Target
	margin  float64
	reading *reading

	outliers int   // how many clients are far from the rest
	most     int64 // how many clients may be denied, if the target is of clients
	apart    int64 // how many clients stand apart, if those may be denied
}

// text says in words what may be denied.
func (c *chooser) text() string {
	switch c.apart {
	case 0:
		return c.target.String()
	case 1:
		return "the 1 client that stands apart"
	}
	return "the " + wording.Grouped(c.apart) + " clients that stand apart"
}

var errNothing = errors.New("no requests to choose from")

// candidates returns the least burst for each rate.
func (c *chooser) candidates(ctx context.Context, demand *curve) (all []Candidate, err error) {
	demand.settle(c.keep)
	if len(demand.ranked(0)) == 0 {
		return nil, errNothing
	}
	if c.target.Requests {
		rising := ladder(demand)
		h := newHunt(demand, rising)
		err = c.search(ctx, rising, h)
		return h.candidates(rising), err
	}
	c.most = c.target.most(int64(demand.n))
	if apart := demand.apart(); c.target.Cliff && apart > c.most {
		c.most, c.apart = apart, apart
	}
	for i, r := range rates {
		needs, most := demand.ranked(i), int64(1)
		if c.most < int64(len(needs)) {
			most = need(needs[c.most])
		}
		all = append(all, candidate(r, roundUp(most)))
	}
	return all, nil
}

// withMargin returns the limit of a candidate with margin for growth. A count that is too small to
// grow by a fraction gets a longer period first.
func (c *chooser) withMargin(best Candidate) stint.Limit {
	grow := func(n int64) int64 { return int64(math.Ceil(float64(n)*(1+c.margin) - 1e-9)) }
	count, period := best.rate.Count, best.rate.Period
	for period < time.Hour && float64(grow(count)) > float64(count)*(1+c.margin)*1.05 {
		count, period = count*60, period*60
	}
	return stint.New(grow(count), period).WithBurst(roundUp(grow(best.Burst)))
}

// keep returns how many clients are kept when clients are ranked by need.
func (c *chooser) keep(n int) int {
	return max(int(c.target.most(int64(n)))+mostEdge, n/10)
}

// choose finds the limit.
func (c *chooser) choose(ctx context.Context, r *reading, demand *curve, who reportData) (*Choice, error) {
	all, err := c.candidates(ctx, demand)
	if err != nil {
		return nil, err
	}
	best := tightest(all)
	limit := c.withMargin(best)
	p, err := replayOf(limit.String(), limit)
	if err != nil {
		return nil, err
	}
	if err := r.replay(ctx, c.unmoved(r, demand, best), newLedger(p)); err != nil {
		return nil, err
	}
	who.clients, who.sent = int64(r.clients.len()), func(id uint32) int64 { return int64(r.sent[id]) }
	choice := &Choice{
		Target: c.text(), Margin: c.margin, Candidates: all,
		Tightest: limitOf(best.rate, best.Burst),
		Limit:    limit.String(), Would: p.report(who), Left: c.left(r, p), Sets: c.setters(r, demand, best),
	}
	choice.Would.Requests = r.requests + r.excluded
	choice.Would.Allowed = choice.Would.Requests - choice.Would.Denied
	choice.Cliff = demand.cliff(r, choice, int(c.most))
	choice.Doubts = c.doubts(r, r.counted(), choice)
	if crowd, without := demand.crowd(); crowd > c.most && !c.target.Requests {
		choice.Doubts = slices.Insert(choice.Doubts, 1, fmt.Sprintf("%s of %d stand clearly apart, too many to be left out unasked: they set the limit, and without them it were %s before the margin. If they are an attack, choose with --deny-at-most %.1f%%",
			wording.Count(crowd, "client"), demand.n, without.text(), math.Ceil(1000*float64(crowd)/float64(demand.n))/10))
	}
	choice.Check = r.options.command(limit)
	return choice, nil
}

// unmoved says which clients are denied nothing by the best limit or a looser one: exempt clients,
// and those that have a say and need no more.
func (c *chooser) unmoved(r *reading, demand *curve, best Candidate) []bool {
	skip := slices.Clone(r.exempt)
	rate := slices.Index(rates[:], best.rate)
	for id := range skip {
		if !r.ignored[id] && demand.demands.at(uint32(id)).within(rate, best.Burst) {
			skip[id] = true
		}
	}
	return skip
}

// left returns what the limit does to clients that had no say, the heaviest first.
func (c *chooser) left(r *reading, p *replay) []Left {
	all, denied := []Left{}, make(map[uint32]int64)
	for _, d := range p.denied[1:] {
		denied[d.id] = d.requests
	}
	for id, out := range r.ignored {
		if out {
			all = append(all, Left{r.name(uint32(id)), int64(r.sent[id]), denied[uint32(id)], r.exempt[id]})
		}
	}
	slices.SortStableFunc(all, func(a, b Left) int { return cmp.Compare(b.Requests, a.Requests) })
	return all[:min(len(all), mostHeavy)]
}

// lastLine is how long before its end a log of whole days may have its last line.
const lastLine = time.Minute

const wholeSeconds = "times are whole seconds: what came spread over a second is taken as at once, and what came around the turn of a second as a second apart. Limits by the second deny more or less than is said here"

// doubts returns what this log cannot show.
func (c *chooser) doubts(r *reading, n int64, choice *Choice) []string {
	doubts := []string{}
	say := func(format string, args ...any) { doubts = append(doubts, fmt.Sprintf(format, args...)) }
	span := time.Duration(r.last - r.first)
	say("it rests on %s of %s in %s", wording.Count(r.requests, "request"), wording.Count(n, "client"), Duration(span))
	switch {
	case span < 24*time.Hour-lastLine:
		say("the log is %s long: not a whole day, so its peak may be missing", Duration(span))
	case span < 7*24*time.Hour-lastLine:
		say("the log is %s long: not a whole week, so a busier day may be missing", Duration(span))
	}
	switch {
	case c.target.Requests, c.apart > 0:
	case c.target.Share > 0 && c.target.most(n) < 1:
		say("%s, of %d, is not even one: none may be denied", c.target, n)
	case n < 1000:
		say("%d clients are few: one more or less changes the share by %.2g%%", n, 100/float64(n))
	}
	if once := r.once(); !c.target.Requests && once*2 > n && c.most > 0 {
		say("%s of %s clients sent a single request: a share of the clients counts these too, and they may be one with many addresses", wording.Grouped(once), wording.Grouped(n))
	}
	if r.tally.subsecond == 0 {
		say("%s", wholeSeconds)
	}
	if w := choice.Would; float64(w.Denied) > muchDenied*float64(w.Requests) {
		say("it would deny %s of all requests: be sure that you know the %s behind them", share(w.Denied, w.Requests), wording.Count(w.ClientsDenied, "client"))
	}
	if c.outliers > 0 && c.apart == 0 {
		say("it is shaped by %s far from the rest, if let through: see above, and try --ignore-key", wording.Count(int64(c.outliers), "client"))
	}
	if l, err := stint.Parse(choice.Limit); err == nil && l.Capacity() < fewAtOnce {
		say("a burst of %d is all that the clients of this log need: one that tries again at once may be denied. A burst of %d would deny nobody more", l.Capacity(), fewAtOnce)
	}
	if !candidateFits(choice.Candidates) {
		say("no limit recovers within %s: some clients send more than any sensible one lets pass", Duration(recoverWithin))
	}
	return doubts
}

// once returns how many clients with a say sent a single request.
func (r *reading) once() (n int64) {
	for id, sent := range r.sent {
		if sent == 1 && !r.ignored[id] {
			n++
		}
	}
	return n
}

// fewAtOnce is a burst below which a retry, or a page with a few files, is denied.
const fewAtOnce = 5

// muchDenied is the fraction of all requests above which a warning is given.
const muchDenied = 0.05

func candidateFits(all []Candidate) bool {
	return slices.ContainsFunc(all, func(c Candidate) bool { return c.Fits })
}

// limitOf returns a bucket as text.
func limitOf(r Rate, burst int64) string {
	return stint.New(r.Count, r.Period).WithBurst(burst).String()
}
