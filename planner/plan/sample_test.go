package plan_test

import (
	"bufio"
	"container/heap"
	"fmt"
	"io"
	"math"
	"time"
)

// sampleOptions say how large an invented access log is: browsers, programs, a crawler
// and one client that hammers, all with addresses that are set aside for documentation.
// The same options give the same bytes.
type sampleOptions struct {
	// Requests is about how many there are. The default value is 9,000.
	Requests int
	// Clients is how many browsers there are. The default value is 480.
	Clients int
	// Length is how long the log is. The default value is 2 days.
	Length time.Duration
	// Seed makes another log. The default value is 0.
	Seed uint64
	// Plain leaves out what tests want and benchmarks do not: lines that
	// cannot be read.
	Plain bool
}

// sampleStart is when every log begins: a Monday.
var sampleStart = time.Date(2025, time.March, 3, 0, 0, 0, 0, time.UTC)

// A random source, by Sebastiano Vigna's splitmix64: its numbers are the same
// in every version of Go.
type random uint64

func (r *random) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// below returns a number from 0 to n − 1.
func (r *random) below(n int) int { return int(r.next() % uint64(n)) }

// chance is true once in n.
func (r *random) chance(n int) bool { return r.below(n) == 0 }

// A visitor is a client that will send a request at a moment.
type visitor struct {
	at    int64 // seconds from the start
	id    int
	kind  kind
	left  int // requests of the visit or the run at hand
	until int64
}

type kind uint8

const (
	person kind = iota
	program
	crawler
	hammer
)

// queue has the visitors by their moment.
type queue []*visitor

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].id < q[j].id
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

// Push and Pop are for package heap.
func (q *queue) Push(x any) { *q = append(*q, x.(*visitor)) }

// Pop is for package heap.
func (q *queue) Pop() any {
	last := len(*q) - 1
	v := (*q)[last]
	*q = (*q)[:last]
	return v
}

// A writer is one log in the making.
type writer struct {
	sampleOptions
	random
	out     *bufio.Writer
	end     int64
	gap     int64 // between visits of one person, on average
	late    string
	lateFor int
	written int
}

// writeSample writes a log in the combined format, in order of when requests ended,
// so that some lines are seconds late.
func writeSample(to io.Writer, o sampleOptions) error {
	if o.Requests == 0 {
		o.Requests = 9000
	}
	if o.Clients == 0 {
		o.Clients = 480
	}
	if o.Length == 0 {
		o.Length = 48 * time.Hour
	}
	w := &writer{sampleOptions: o, random: random(o.Seed), out: bufio.NewWriterSize(to, 1<<20), end: int64(o.Length / time.Second)}
	const perVisit = 20
	visits := max(o.Requests*7/10/perVisit/o.Clients, 1)
	w.gap = max(w.end/int64(visits), 1)
	q := w.visitors()
	heap.Init(&q)
	for len(q) > 0 && w.written < o.Requests*2 {
		v := q[0]
		w.request(v)
		w.again(v)
		if v.at < w.end {
			heap.Fix(&q, 0)
		} else {
			heap.Pop(&q)
		}
	}
	w.flushLate()
	return w.out.Flush()
}

func (w *writer) visitors() (q queue) {
	for i := range w.Clients {
		q = append(q, &visitor{at: int64(w.below(int(w.gap))), id: i, kind: person})
	}
	n := w.Clients
	for range max(w.Requests/3000, 1) {
		q = append(q, &visitor{at: int64(w.below(3600)), id: n, kind: program, left: 40})
		n++
	}
	q = append(q, &visitor{at: 600, id: n, kind: crawler})
	q = append(q, &visitor{at: w.end * 6 / 10, id: n + 1, kind: hammer, until: w.end*6/10 + 60})
	return q
}

// again says when a visitor comes next.
func (w *writer) again(v *visitor) {
	switch v.kind {
	case person: // a page and what belongs to it, then another
		if v.left > 0 {
			v.left--
			v.at += int64(w.below(2))
			return
		}
		v.left = w.below(9)
		if w.chance(4) {
			v.at += int64(w.below(int(2 * w.gap * 4 / 5)))
			v.at = w.daytime(v.at)
		} else {
			v.at += 8 + int64(w.below(80))
		}
	case program: // a run of one request each two seconds
		if v.left--; v.left > 0 {
			v.at += 2
			return
		}
		v.left = 40
		v.at += 4 * 3600
	case crawler:
		v.at += 200 + int64(w.below(200))
	case hammer: // ten a second for a minute
		if w.chance(10) {
			v.at++
		}
		if v.at >= v.until {
			v.at = w.end
		}
	}
}

// daytime moves most of what falls into the night to the morning.
func (w *writer) daytime(at int64) int64 {
	hour := at / 3600 % 24
	if hour < 6 && !w.chance(6) {
		at += (6 - hour) * 3600
	}
	return at
}

// address returns an address for documentation: some of IPv6, the others of
// RFC 5737 as long as they last, and beyond it private ones.
func address(id int, k kind) string {
	nets := [...]string{"192.0.2", "198.51.100", "203.0.113"}
	switch {
	case k == person && id%10 == 9:
		return fmt.Sprintf("2001:db8:%x:%x::%x", id>>16, id&0xffff, id%7+1)
	case id < len(nets)*254:
		return fmt.Sprintf("%s.%d", nets[id%len(nets)], id/len(nets)+1)
	}
	return fmt.Sprintf("10.%d.%d.%d", id>>16&255, id>>8&255, id&255)
}

var (
	pages  = [...]string{"/", "/products", "/products/7", "/about", "/search?q=lamp", "/cart", "/blog/2025/03/spring"}
	assets = [...]string{"/static/site.css", "/static/site.js", "/img/logo.svg", "/img/lamp-1.jpg", "/img/lamp-2.jpg", "/fonts/text.woff2", "/favicon.ico"}
	agents = [...]string{
		"Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
		"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.4 Safari/605.1.15",
		"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/122.0.0.0 Safari/537.36",
	}
)

// request writes a line, or holds it back for a while.
func (w *writer) request(v *visitor) {
	target, agent, referer, method, status := pages[w.below(len(pages))], agents[v.id%len(agents)], "-", "GET", 200
	switch {
	case v.kind == program:
		target, agent = fmt.Sprintf("/api/orders/%d", 100+w.below(900)), "orders-sync/1.4"
	case v.kind == crawler:
		agent = "Mozilla/5.0 (compatible; ExampleBot/2.1; +http://www.example.com/bot)"
	case v.kind == hammer:
		target, agent, method, status = "/api/login", "python-requests/2.31.0", "POST", 401
	case v.left > 0:
		target, referer = assets[w.below(len(assets))], "https://www.example.com/"
	}
	if status == 200 && w.chance(40) {
		status = 404
	}
	size := int(math.Pow(2, 8+float64(w.below(60))/10))
	stamp := sampleStart.Add(time.Duration(v.at) * time.Second).Format("02/Jan/2006:15:04:05 -0700")
	line := fmt.Sprintf("%s - - [%s] \"%s %s HTTP/1.1\" %d %d \"%s\" \"%s\"\n", address(v.id, v.kind), stamp, method, target, status, size, referer, agent)
	w.written++
	if !w.Plain && w.written%3001 == 0 {
		line = line[:len(line)/3] + "\n"
	}
	if w.late == "" && w.chance(12) {
		w.late, w.lateFor = line, 1+w.below(5)
		return
	}
	fmt.Fprint(w.out, line) // Flush returns the error
	if w.lateFor--; w.lateFor <= 0 {
		w.flushLate()
	}
}

// flushLate writes the line that was held back.
func (w *writer) flushLate() {
	fmt.Fprint(w.out, w.late)
	w.late, w.lateFor = "", 0
}
