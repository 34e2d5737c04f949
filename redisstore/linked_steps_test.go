package redisstore_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// TestLinkedSteps has three processes change among three lists of limits of one name
// while the clock goes on, to the edges of what counts, and steps back and forth.
// What passes is judged by docs/SEMANTICS.md alone: see stepsJudge.
func TestLinkedSteps(t *testing.T) {
	c := client(t, redistest.Start(t).Addr)
	found := []uint64{1803} // where a limit did not see what is linked to one that is idle
	runSteps(t, stepsRounds(200), found, func() *stepsRun { return &stepsRun{TB: t, client: c, virtual: 1_790_000_000_000_000} })
}

// TestLinkedStepsExpire does so on the clock of a server, which forgets states by it.
func TestLinkedStepsExpire(t *testing.T) {
	server, clock := redistest.StartClock(t)
	c := client(t, server.Addr)
	found := []uint64{370} // as above, where the state of one of the limits was forgotten
	runSteps(t, stepsRounds(30), found, func() *stepsRun { return &stepsRun{TB: t, client: c, clock: clock} })
}

// stepsRounds is how many rounds there are.
func stepsRounds(short int) int {
	switch {
	case os.Getenv("STINT_SOAK") != "":
		return short * 25
	case testing.Short():
		return short
	}
	return short * 5
}

// stepsLists are the lists of a round; the algorithms are those whose envelope
// stepsJudge knows.
var stepsLists = [][]string{
	{"10/1s", "5/1s burst 20, 100/1m", "30/1m fixed_window"},
	{"10/7s", "7/1m", "20/30s fixed_window"},
	{"10/1m, 6/1s", "12/20s", "8/1m fixed_window"},
	{"10/1s", "10/1s, 14/1m", "15/10s fixed_window"},
	{"9/2s, 20/1m fixed_window", "12/1m fixed_window", "11/3s"},
	{"3/1ms", "10/7ms burst 4, 20/1s", "12/20ms fixed_window"}, // from here on in less than a second
	{"5/1ms fixed_window", "7/3ms", "20/1s"},
}

// A stepsOp is what happens next. Ops are data, so that those that a failure does not
// take can be left out.
type stepsOp struct {
	what    string // take, wait, edge, step, change, restart
	process int
	key     int
	n       int64 // a cost, µs, a list
	flag    bool  // edge: when all is free again; restart: it knows its own list alone
}

func (o stepsOp) String() string {
	switch o.what {
	case "take":
		return fmt.Sprintf("process %d takes %d of key %d", o.process, o.n, o.key)
	case "edge":
		after := "retry after"
		if o.flag {
			after = "reset after"
		}
		return fmt.Sprintf("the last answer's %s passes, %+dµs", after, o.n)
	case "wait", "step":
		return fmt.Sprintf("%s %v", o.what, time.Duration(o.n)*time.Microsecond)
	case "restart":
		return fmt.Sprintf("process %d restarts with list %d, alone: %v", o.process, o.n, o.flag)
	}
	return fmt.Sprintf("process %d changes to list %d", o.process, o.n)
}

// stepsOps makes up a round.
func stepsOps(rnd *rand.Rand, subsecond bool) (ops []stepsOp) {
	millisecond := int64(1000)
	spans := []int64{1000 * millisecond, 10_000 * millisecond, 60_000 * millisecond, 200_000 * millisecond}
	if subsecond {
		spans = []int64{1, millisecond, 20 * millisecond, 2000 * millisecond}
	}
	for range 100 {
		o := stepsOp{what: "take", process: rnd.IntN(3), key: rnd.IntN(2)}
		span := spans[rnd.IntN(len(spans))]
		switch rnd.IntN(20) {
		case 0:
			o.what, o.n, o.flag = "restart", rnd.Int64N(3), rnd.IntN(2) == 0
		case 1, 2:
			o.what, o.n = "change", rnd.Int64N(3)
		case 3, 4:
			o.what, o.n = "wait", rnd.Int64N(span+1)
		case 5, 6, 7:
			o.what, o.n, o.flag = "edge", (rnd.Int64N(3)-1)*millisecond, rnd.IntN(2) == 0
		case 8:
			o.what, o.n = "step", rnd.Int64N(2*span+1)-span
			if rnd.IntN(4) == 0 {
				o.n *= 100
			}
		default:
			o.n = []int64{1, 1, 2, 3, 5, 8, 25}[rnd.IntN(7)]
		}
		ops = append(ops, o)
	}
	return ops
}

// runSteps plays rounds, each from its number, and shows the shortest part of one
// that fails which it finds.
func runSteps(t *testing.T, rounds int, found []uint64, start func() *stepsRun) {
	total := stepsRun{}
	families := len(stepsLists)
	if start().clock != nil {
		families = 5 // a server's clock goes on by itself
	}
	play := func(seed uint64, ops []stepsOp) (string, *stepsRun) {
		r := start()
		rnd := rand.New(rand.NewPCG(seed, 1))
		r.lists, r.aware = stepsLists[seed%uint64(families)], r.clock != nil || rnd.IntN(4) > 0
		return r.play(ops), r
	}
	for n := range uint64(rounds + len(found)) {
		seed := n
		if n < uint64(len(found)) {
			seed = found[n]
		}
		ops := stepsOps(rand.New(rand.NewPCG(seed, 2)), seed%uint64(families) >= 5)
		wrong, r := play(seed, ops)
		total.passed, total.denied, total.full = total.passed+r.passed, total.denied+r.denied, total.full+r.full
		if wrong == "" {
			continue
		}
		for some := len(ops) / 2; some > 0; some /= 2 { // a shorter one
			for i := 0; i+some <= len(ops); {
				fewer := slices.Delete(slices.Clone(ops), i, i+some)
				if why, shorter := play(seed, fewer); why != "" {
					ops, wrong, r = fewer, why, shorter
				} else {
					i += some
				}
			}
		}
		t.Fatalf("seed %d, lists %q, told of each other's: %v\n%s\n%s", seed, r.lists, r.aware, strings.Join(r.log, "\n"), wrong)
	}
	t.Logf("%d passed, %d of them up to the limit, and %d were denied", total.passed, total.full, total.denied)
	if total.passed < 15*rounds || total.denied < 10*rounds || total.full < rounds {
		t.Errorf("%d passed, %d of them up to the limit, and %d were denied: too little to tell", total.passed, total.full, total.denied)
	}
}

// A stepsRun plays one round.
type stepsRun struct {
	testing.TB
	client         rueidis.Client
	clock          *redistest.Clock // of the server; nil where the time is virtual
	virtual        int64            // µs
	back, ahead    int64            // by how much the clock has stepped back in all, and the latest that it has been
	forgets        int64            // how often it has, where states expire
	prefix         string
	lists          []string
	aware          bool // processes learn of each other's lists before the next request
	processes      [3]running
	asked          [3]bool // whether what the record says of a list is as new as can be
	last           stint.Decision
	ended          int64 // when that was
	judges         [2]*stepsJudge
	log            []string
	passed, denied int
	full           int // of those that passed, how many left less than a unit
}

func (r *stepsRun) play(ops []stepsOp) (wrong string) {
	r.prefix = fmt.Sprint("steps", prefixes.Add(1))
	for i := range r.judges {
		r.judges[i] = newStepsJudge(r, r.lists)
	}
	for i := range r.processes {
		r.restart(i, 0, r.clock == nil)
	}
	defer func() {
		for _, p := range r.processes {
			_ = p.store.Close()
		}
	}()
	for _, o := range ops {
		r.log = append(r.log, o.String())
		switch o.what {
		case "take":
			if wrong = r.take(o); wrong != "" {
				return wrong
			}
		case "wait":
			r.pass(o.n)
		case "edge":
			after := time.Duration(r.last.RetryAfter)
			if o.flag {
				after = r.last.ResetAfter
			}
			if after > 0 && after != time.Duration(stint.Never) {
				r.pass(r.ended + after.Microseconds() + o.n - r.now())
			}
		case "step":
			r.step(o.n)
		case "change":
			p := &r.processes[o.process]
			p.list, p.bound = int(o.n), bound(r, p.store, r.lists[o.n])
		case "restart":
			_ = r.processes[o.process].store.Close()
			r.restart(o.process, int(o.n), o.flag)
		}
	}
	return ""
}

// restart starts a process with a list. On a server's clock it knows all of them, as
// the record is read beside the decisions there.
func (r *stepsRun) restart(i, list int, alone bool) {
	o := redisstore.Options{Client: r.client, Prefix: r.prefix, Timeout: patience}
	if r.clock == nil {
		o.Now = func() int64 { return r.virtual * 1000 }
	}
	s := open(r, "", o)
	for _, text := range r.lists {
		if !alone || r.clock != nil {
			bound(r, s, text)
		}
	}
	r.processes[i] = running{store: s, list: list, bound: bound(r, s, r.lists[list])}
}

// now is the server's time in µs.
func (r *stepsRun) now() int64 {
	if r.clock == nil {
		return r.virtual
	}
	all, err := do(r, r.client, "TIME").AsIntSlice()
	if err != nil {
		r.Fatal(err)
	}
	return all[0]*1_000_000 + all[1]
}

// at is the time.
func (r *stepsRun) at() stepsTime {
	now := r.now()
	r.ahead = max(r.ahead, now)
	return stepsTime{now, now, r.back, r.ahead, r.forgets}
}

// pass has the time go on.
func (r *stepsRun) pass(by int64) {
	if by <= 0 {
		return
	}
	if r.clock == nil {
		r.virtual += by
	} else {
		r.clock.Step(r, time.Duration(by)*time.Microsecond)
	}
}

// step steps the clock. A step forth is time that passes.
func (r *stepsRun) step(by int64) {
	r.asked = [3]bool{}
	if by >= 0 {
		r.pass(by)
		return
	}
	before := r.at()
	if r.clock == nil {
		r.virtual += by
	} else {
		r.clock.Step(r, time.Duration(by)*time.Microsecond)
		r.forgets++
	}
	r.back -= by
	r.tell()
	for _, j := range r.judges {
		j.steppedBack(before, r.at())
	}
}

// tell has all processes read the record before their next decisions, as they do once
// a minute.
func (r *stepsRun) tell() {
	for _, p := range r.processes {
		if r.aware {
			p.store.ReadLists()
		}
	}
}

// take asks a process, and has its answer judged.
func (r *stepsRun) take(o stepsOp) (wrong string) {
	p := r.processes[o.process]
	at := r.at()
	r.last = take(r, p.bound, fmt.Sprint("key ", o.key), o.n)
	r.ended = r.now()
	at.to, at.ahead = r.ended, max(at.ahead, r.ended)
	if r.aware && !r.asked[p.list] {
		r.asked = [3]bool{}
		r.asked[p.list] = true
		r.tell()
	}
	r.log[len(r.log)-1] += fmt.Sprintf(" by list %d at %v: %v, %d left", p.list, time.Duration(at.from%3_600_000_000)*time.Microsecond, r.last.Allowed, r.last.Remaining)
	if r.last.Allowed {
		r.passed++
		if r.last.Remaining == 0 {
			r.full++
		}
	} else {
		r.denied++
	}
	return r.judges[o.key].judge(p.list, at, o.n, r.last.Allowed)
}

// stepsTime is when a request was decided: between these µs of the server's clock, which
// had stepped back by so much before. Both together never step back: in that time "a step
// back by itself adds nothing to what may pass", and a step forth is time that passes.
type stepsTime struct {
	from, to, back int64
	ahead          int64 // the latest that the clock has been
	forgets        int64 // how often it has stepped back where states expire: windows may begin again
}

// stepsPassed is a request that was let pass.
type stepsPassed struct {
	at   stepsTime
	cost int64
}

// stepsUse is what a limit has in use: units times its period in µs, so that what drains
// in a µs is its count, and nothing is rounded.
type stepsUse struct {
	use int64
	as  int64 // of a bucket: as of this time; of a window: its number
}

// A stepsForm is a limit with its numbers: one form of a limit.
type stepsForm struct {
	text, identity      string // "Without [a name], it is identified by its algorithm and period"
	fixed               bool
	count, most, period int64 // most is the burst, or the count of a window; the period in µs
	passed              []stepsPassed
	asked               bool     // ever
	met, sure           bool     // sure: the state holds it, as long as low is not 0
	low                 stepsUse // it counts at least, as of a time without steps back
	high                stepsUse // it counts at most, as of a time of the server's clock
}

// A stepsJudge judges what passes of one key, first by "what each form has let pass is a
// history that this form admits by itself": in every stretch no more than its burst and
// what drains, or than the windows in it. Secondly by "every form that a key has met
// counts every request of the key by its own rule, until none of the forms has anything
// left to count. The form that is asked decides", and starts with what is in use. From
// "In Redis" come what does not have to be counted:
//
//   - "A running process may need a minute to notice the new limits of another process":
//     in rounds where processes are not told at once, the first alone is judged.
//   - "Limits that were bound together stay apart. When one is taken out of the list, the
//     others do not start with the use under it, and it does not count until it is put
//     back": see apart.
//   - "A limit that has nothing left to count of a key is removed alone", and "a form that
//     was removed meets the key anew when it is asked": it may have counted what others
//     let pass since, or not, so the less of both is what it has in use at least.
//
// "Limits of different lists that meet a key in the same request" do not occur here, nor
// do more than four forms.
type stepsJudge struct {
	run      *stepsRun
	forms    []*stepsForm
	lists    [][]*stepsForm
	together map[[2]string]bool // identities that are in one list
	revived  map[string]bool    // identities that a step back may have given something to count again
}

func newStepsJudge(r *stepsRun, lists []string) *stepsJudge {
	j := &stepsJudge{run: r, together: map[[2]string]bool{}, revived: map[string]bool{}}
	for _, text := range lists {
		var all []*stepsForm
		for _, l := range list(r, text) {
			i := slices.IndexFunc(j.forms, func(f *stepsForm) bool { return f.text == fmt.Sprint(l) })
			if i < 0 {
				f := &stepsForm{text: fmt.Sprint(l), fixed: l.Algorithm() == meter.FixedWindow,
					count: l.Count(), most: l.Capacity(), period: l.Period().Microseconds()}
				f.identity = fmt.Sprint(l.Algorithm(), ":", l.Period())
				i, j.forms = len(j.forms), append(j.forms, f)
			}
			all = append(all, j.forms[i])
		}
		for _, f := range all {
			for _, g := range all {
				j.together[[2]string{f.identity, g.identity}] = true
			}
		}
		j.lists = append(j.lists, all)
	}
	return j
}

// judge judges a request, which was asked of a list.
func (j *stepsJudge) judge(list int, at stepsTime, cost int64, allowed bool) (wrong string) {
	own := j.lists[list]
	for _, f := range own {
		if allowed {
			f.passed = append(f.passed, stepsPassed{at, cost})
			wrong = cmp.Or(wrong, f.envelope())
		}
	}
	if wrong != "" || !j.run.aware {
		return wrong
	}
	counting := func(f *stepsForm) bool { return f.met && f.greatest(at) > 0 }
	if !slices.ContainsFunc(j.forms, counting) { // "none of the forms has anything left to count"
		for _, f := range j.forms {
			f.low.use, f.met, f.sure = 0, false, false
		}
		clear(j.revived)
	}
	for _, f := range own {
		j.meet(f, at, allowed)
		if use := f.drained(f.low, at.to+at.back, at.to).use; allowed && use+cost*f.period > f.most*f.period {
			return fmt.Sprintf("%d pass under %s, which has at least %.6f in use", cost, f.text, float64(use)/float64(f.period))
		}
	}
	for _, f := range j.forms {
		if allowed && f.met {
			j.charge(f, own, at, cost)
		}
	}
	return ""
}

// envelope judges every stretch that ends with the newest request that has passed.
func (f *stepsForm) envelope() string {
	last, sum := f.passed[len(f.passed)-1], int64(0)
	for i := len(f.passed) - 1; i >= 0; i-- {
		first := f.passed[i]
		sum += first.cost
		lasts := last.at.to + last.at.back - first.at.from - first.at.back
		most := f.most*f.period + f.count*lasts
		switch {
		case f.fixed && first.at.back == last.at.back:
			most = f.most * f.period * (last.at.to/f.period - first.at.from/f.period + 1)
		case f.fixed: // windows begin at least a period after each other, steps back or not, unless forgotten
			most = f.most * f.period * (lasts/f.period + 2 + last.at.forgets - first.at.forgets)
		}
		if sum*f.period > most {
			return fmt.Sprintf("%d have passed under %s in %v, at most %.6f may", sum, f.text, time.Duration(lasts)*time.Microsecond, float64(most)/float64(f.period))
		}
	}
	return ""
}

// drained returns what is left of a use at a time without steps back, and on the clock.
func (f *stepsForm) drained(u stepsUse, time, clock int64) stepsUse {
	if f.fixed {
		if window := clock / f.period; window > u.as {
			return stepsUse{0, window}
		}
		return u
	}
	return stepsUse{max(u.use-f.count*max(time-u.as, 0), 0), max(u.as, time)}
}

// least and greatest return what a form counts at least and at most: that at most on the
// server's clock, as a state ahead of it is moved back only by a call that reads it.
func (f *stepsForm) least(at stepsTime) int64 { return f.drained(f.low, at.to+at.back, at.to).use }
func (f *stepsForm) greatest(at stepsTime) int64 {
	switch {
	case !f.fixed:
		return max(f.high.use-f.count*(at.from-f.high.as), 0)
	case at.from/f.period > f.high.as:
		return 0
	}
	return f.high.use
}

// adopt returns a use under another form as one of this, up to what this admits.
func (f *stepsForm) adopt(g *stepsForm, use int64, up bool) int64 {
	use = min(use, f.most*g.period)
	switch {
	case f.fixed: // "the units in use, rounded up"
		return (use + g.period - 1) / g.period * f.period
	case up && use > 0: // "to the resolution of the new limit's state", which is at most a µs
		return min(use*f.period/g.period+1+f.count, f.most*f.period)
	}
	return use * f.period / g.period
}

// starts returns what a form that meets the key starts with, at least and at most: "the
// greatest use among" the forms "with the same identity" that the key has met, be it
// nothing, or where there are none among limits that it "was never bound together with".
func (j *stepsJudge) starts(f *stepsForm, at stepsTime) (low, high int64) {
	same, others, first := int64(0), int64(0), true
	for _, g := range j.forms {
		if g == f || !g.met {
			continue
		}
		high = max(high, f.adopt(g, g.greatest(at), true))
		use := int64(0)
		if g.sure {
			use = f.adopt(g, g.least(at), false)
		}
		switch {
		case g.identity == f.identity:
			same, first = max(same, use), false
		case !j.together[[2]string{f.identity, g.identity}]:
			others = max(others, use)
		}
	}
	if first {
		return others, high
	}
	return same, high
}

// meet has a form that is asked start, where it may not have met the key. Of one that has
// gone a denial is no proof that it has come back: a process may have known that denial.
func (j *stepsJudge) meet(f *stepsForm, at stepsTime, allowed bool) {
	low, high := j.starts(f, at)
	was, had := f.drained(f.low, at.from+at.back, at.from), f.greatest(at)
	if f.met && f.sure && f.least(at) > 0 {
		return
	}
	f.atMost(max(had, high), at)
	switch {
	case !f.met:
		f.low, f.met, f.sure, f.asked = f.atLeast(low, at), true, true, true
	case !f.sure:
		was.use = min(was.use, low)
		f.low, f.sure = was, allowed
	}
}

// atLeast returns a use that began by a decision.
func (f *stepsForm) atLeast(use int64, at stepsTime) stepsUse {
	if f.fixed {
		return stepsUse{use, at.from / f.period}
	}
	return stepsUse{use, at.from + at.back}
}

// atMost notes what a form has in use at most after a decision.
func (f *stepsForm) atMost(use int64, at stepsTime) {
	f.high = stepsUse{use, at.to}
	if f.fixed {
		f.high.as = at.ahead / f.period
	}
}

// charge charges what passes to a form that the key has met.
func (j *stepsJudge) charge(f *stepsForm, own []*stepsForm, at stepsTime, cost int64) {
	asked, counts := slices.Contains(own, f), false
	for _, g := range own {
		counts = counts || j.links(f.identity, g.identity)
	}
	f.sure = asked || f.sure && f.least(at) > 0
	low := f.drained(f.low, at.from+at.back, at.from)
	if counts {
		low.use += cost * f.period
	}
	if !f.fixed {
		low.use = min(low.use, 2*f.most*f.period) // "one more drain"
	}
	f.low = low
	f.atMost(f.greatest(at)+cost*f.period, at)
}

// steppedBack notes a step back: a bucket is "at most" two drains "ahead", a window at
// most "the next window", once a call has read it. What had nothing left to count may
// then have something again that it had before, and goes on with that, not with what
// others have in use. Those that it did not meet again do not count what it lets pass.
func (j *stepsJudge) steppedBack(before, now stepsTime) {
	for _, f := range j.forms {
		j.revived[f.identity] = j.revived[f.identity] || f.asked && !slices.ContainsFunc(j.forms, func(g *stepsForm) bool {
			return g.identity == f.identity && g.sure && g.least(before) > 0
		})
	}
	for _, f := range j.forms {
		counted := f.sure && f.least(before) > 0
		if f.met = f.asked; !counted {
			f.low, f.sure = f.atLeast(0, now), false
		}
		if f.fixed {
			f.low.as = min(f.low.as, now.from/f.period+1)
		}
	}
}

// links reports whether limits of two identities certainly count what the other lets pass.
func (j *stepsJudge) links(a, b string) bool {
	return a == b || !j.together[[2]string{a, b}] && !j.revived[a] && !j.revived[b]
}
