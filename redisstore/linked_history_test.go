package redisstore_test

import (
	"fmt"
	"math"
	"math/rand/v2"
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

// TestListsHistory has processes that share a name change at random between lists of
// limits, there and back, at once or one by one, and asks all of them about a few keys.
// Some know all the lists, and some start with their own alone and have the others from
// the record in Redis, which those that run read again when another is new to it. Every
// decision is judged by what each limit must
// count by its definition: it passes no more than its own rule allows after all that
// others let pass, and denies only for what may be in use.
func TestListsHistory(t *testing.T) {
	c := client(t, redistest.Start(t).Addr) // of all processes: thousands are started
	rounds := 60
	if testing.Short() {
		rounds = 20
	}
	passed, denied := 0, 0
	found := []int{152, 952} // where a link was lost
	for round := range rounds + len(found) {
		if round >= rounds {
			round = found[round-rounds]
		}
		h := &history{TB: t, client: c, rnd: rand.New(rand.NewPCG(uint64(round), 5)), now: 1_790_000_000_000_000_000, round: round}
		h.run()
		for _, p := range h.processes {
			_ = p.store.Close()
		}
		passed, denied = passed+h.passed, denied+h.denied
	}
	if passed < rounds*40 || denied < rounds*15 {
		t.Errorf("%d passed and %d were denied: too little to tell", passed, denied)
	}
}

// A history is what processes do and what must be in use after it.
type history struct {
	testing.TB
	client         rueidis.Client
	rnd            *rand.Rand
	now            int64
	round          int
	lists          []string
	processes      []running
	counts         map[string][]*counting // of each key, the limits of all lists that have been asked
	asked          map[int]int64          // when each list was last
	log            []string
	passed, denied int
}

// running is a process that has a list.
type running struct {
	store *redisstore.Store
	bound stint.Bound
	list  int
}

// counting is what one limit has in use of a key: between low and high, in units.
type counting struct {
	limit     stint.Limit
	list      int
	low, high float64
	at        int64 // as of
	unsure    bool  // whether it counted the last charges
	lost      bool  // whether others do, as it has left the record
}

func (c *counting) fixed() bool { return c.limit.Algorithm() == meter.FixedWindow }

// pass lets time pass.
func (c *counting) pass(now int64) {
	drained := float64(now-c.at) * float64(c.limit.Count()) / float64(c.limit.Period())
	if c.fixed() {
		drained = 0
		if period := int64(c.limit.Period()); now/period != c.at/period {
			drained = math.Inf(1)
		}
	}
	c.low, c.high, c.at = max(c.low-drained, 0), max(c.high-drained, 0), now
	c.lost = c.lost && c.high > 0
}

var histories = [][]string{
	{"10/20ms", "6/1s", "8/30s fixed_window", "20/1h"},
	{"10/1m", "12/1h", "8/1s fixed_window"},
	{"10/1m, 14/1h", "12/30s", "9/2h fixed_window"},
	{"5/1s, 20/1m fixed_window", "15/10s"},
	{"10/1h", "10/2h"},
}

func (h *history) run() {
	h.lists = histories[h.round%len(histories)]
	h.counts, h.asked = map[string][]*counting{}, map[int]int64{}
	for range 2 {
		h.deploy(-1, 0)
	}
	for range 150 {
		switch h.rnd.IntN(14) {
		case 0: // a process is replaced
			h.deploy(h.rnd.IntN(len(h.processes)), h.rnd.IntN(len(h.lists)))
		case 1: // all are
			list := h.rnd.IntN(len(h.lists))
			for i := range h.processes {
				h.deploy(i, list)
			}
		case 2, 3, 4:
			h.now += h.rnd.Int64N([]int64{int64(time.Millisecond), int64(time.Second), int64(10 * time.Second), int64(time.Minute), int64(time.Hour)}[h.rnd.IntN(5)]) / 1000 * 1000
		default:
			h.take(h.processes[h.rnd.IntN(len(h.processes))], fmt.Sprint("key ", h.rnd.IntN(3)), h.rnd.Int64N(5))
		}
	}
}

// deploy starts a process with a list, in the place of another if there is one.
func (h *history) deploy(i, of int) {
	s := open(h, "", redisstore.Options{Client: h.client, Prefix: fmt.Sprint("history", h.round), Now: func() int64 { return h.now }})
	p := running{store: s, list: of}
	alone := h.rnd.IntN(2) == 0
	for _, text := range h.lists {
		if !alone {
			bound(h, s, text)
		}
	}
	p.bound = bound(h, s, h.lists[of])
	if i < 0 {
		h.processes = append(h.processes, p)
	} else {
		_ = h.processes[i].store.Close()
		h.processes[i] = p
	}
	h.note("process %d has %q, alone: %v", i, h.lists[of], alone)
}

func (h *history) note(format string, a ...any) {
	h.log = append(h.log, fmt.Sprintf("%v: ", time.Duration(h.now-1_790_000_000_000_000_000))+fmt.Sprintf(format, a...))
}

// take asks a process, and judges what it says.
func (h *history) take(p running, key string, cost int64) {
	h.end()
	_, recorded := h.asked[p.list]
	h.asked[p.list] = h.now
	d := take(h, p.bound, key, cost)
	for _, other := range h.processes {
		if !recorded {
			other.store.ReadLists()
		}
	}
	h.note("%d of %s under %q: %v, %d left", cost, key, h.lists[p.list], d.Allowed, d.Remaining)
	if cost == 0 {
		return
	}
	for _, c := range h.counts[key] {
		c.pass(h.now)
	}
	own := h.own(key, p.list)
	const tolerance = 0.01 // a microsecond of the fastest is less
	may, must := true, false
	for _, c := range own {
		may = may && c.low+float64(cost) <= float64(c.limit.Capacity())+tolerance
		must = must || c.high+float64(cost) > float64(c.limit.Capacity())-tolerance
	}
	if d.Allowed && !may || !d.Allowed && !must {
		for _, c := range h.counts[key] {
			h.note("of %s %v has between %.3f and %.3f in use", key, c.limit, c.low, c.high)
		}
		h.log = slices.DeleteFunc(h.log, func(line string) bool { return !strings.Contains(line, " of "+key+" ") })
		h.Fatalf("round %d\n%s\n%+v", h.round, strings.Join(h.log, "\n"), d)
	}
	if !d.Allowed {
		h.denied++
		return
	}
	h.passed++
	for _, c := range h.counts[key] {
		c.unsure = c.unsure && !slices.Contains(own, c) || c.low == 0 && !slices.Contains(own, c)
		c.high += float64(cost)
		if !c.lost && !own[0].lost || slices.Contains(own, c) {
			c.low = min(c.low+float64(cost), 2*float64(c.limit.Capacity())) // the greatest debt
		}
	}
	for of := range h.lists { // their processes may have met the key with this
		if _, asked := h.asked[of]; asked && !slices.ContainsFunc(h.counts[key], func(c *counting) bool { return c.list == of }) {
			for _, c := range h.begin(key, of) {
				c.unsure = true
				c.high += float64(cost)
			}
		}
	}
}

// end has lists leave the record that have not been asked for as long as any counts.
// What they have in use since, or let pass when they are back, may be known or not.
func (h *history) end() {
	longest, most := make([]time.Duration, len(h.lists)), time.Duration(0)
	for of, last := range h.asked {
		for _, l := range list(h, h.lists[of]) {
			m, err := l.Meter()
			if err != nil {
				h.Fatal(err)
			}
			longest[of] = max(longest[of], m.Longest())
		}
		if time.Duration(h.now-last) <= longest[of] {
			most = max(most, longest[of])
		}
	}
	for of, last := range h.asked {
		if time.Duration(h.now-last) <= max(longest[of], most) {
			continue
		}
		delete(h.asked, of)
		for _, counts := range h.counts {
			for _, c := range counts {
				if c.list == of {
					c.low, c.unsure, c.lost = 0, true, true
				}
			}
		}
	}
}

// greatest returns the greatest use of a key under other lists.
func (h *history) greatest(key string, list int) (low, high float64) {
	for _, c := range h.counts[key] {
		if c.list != list {
			if !c.unsure {
				low = max(low, c.low)
			}
			high = max(high, c.high)
		}
	}
	return low, high
}

// begin returns the limits of a list that meet a key.
func (h *history) begin(key string, of int) (own []*counting) {
	low, high := h.greatest(key, of)
	for _, l := range list(h, h.lists[of]) {
		capacity, most := float64(l.Capacity()), math.Ceil(high*1000)/1000
		c := &counting{limit: l, list: of, low: min(low, capacity), high: min(most, capacity), at: h.now}
		if c.fixed() { // it counts whole units
			c.high = min(math.Ceil(high), capacity)
		}
		own = append(own, c)
	}
	h.counts[key] = append(h.counts[key], own...)
	return own
}

// own returns the limits of a list, which is asked about a key.
func (h *history) own(key string, of int) (own []*counting) {
	for _, c := range h.counts[key] {
		if c.list == of {
			own = append(own, c)
		}
	}
	if own == nil {
		return h.begin(key, of)
	}
	low, high := h.greatest(key, of)
	for _, c := range own {
		capacity := float64(c.limit.Capacity())
		if c.unsure {
			c.low = min(c.low, low, capacity)
		}
		if c.unsure || c.low == 0 {
			c.high = max(c.high, min(high, capacity))
		}
		c.unsure = false
	}
	return own
}
