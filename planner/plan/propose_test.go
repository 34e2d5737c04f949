package plan_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/internal/testkit/race"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/planner/plan"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/service/rules"
	"github.com/stint-dev/stint/simulate"
)

// A visit is a request of which is known who sent it.
type visit struct {
	at                              time.Duration
	who, ip, user, method, path, ua string
	status                          int
}

// A truth is a log of which is known who abuses.
type truth struct {
	*rand.Rand
	visits []visit
	length time.Duration
}

func newTruth(seed uint64) *truth {
	t := &truth{Rand: rand.New(rand.NewPCG(seed, 99)), length: 2 * time.Hour}
	for i := range 300 {
		t.person(fmt.Sprintf("10.0.%d.%d", i/250, i%250), fmt.Sprintf("Mozilla/5.0 (%d)", i%9), t.IntN(7200), 3+t.IntN(12))
	}
	for office := range 3 {
		for i := range 25 {
			t.person(fmt.Sprintf("198.51.100.%d", office+1), fmt.Sprintf("Mozilla/5.0 (%d)", i), t.IntN(7200), 4+t.IntN(8))
		}
	}
	for i := range 200 { // a flash crowd
		t.person(fmt.Sprintf("10.1.%d.%d", i/100, i%100), fmt.Sprintf("Mozilla/5.0 (%d)", i%9), 3600+t.IntN(120), 2)
	}
	for i := range 25 {
		for at := t.IntN(300); at < 7200; at += 240 + t.IntN(120) {
			for k := range 5 + t.IntN(6) {
				t.send(float64(at)+float64(k)*0.3, "app", fmt.Sprintf("10.2.0.%d", i), "-", "GET", fmt.Sprintf("/api/orders/%d", t.IntN(10000)), "shop-app/3", 200)
			}
		}
	}
	for i := range 3 {
		for at := i; at < 7200; at += 5 {
			t.send(float64(at), "monitor", fmt.Sprintf("10.3.0.%d", i), "-", "GET", "/healthz", "kube-probe/1.29", 200)
		}
	}
	for i := range 7200 * 5 {
		t.send(float64(i)/5, "partner", "203.0.113.5", "acme", "GET", fmt.Sprintf("/api/orders/%d", t.IntN(10000)), "acme-sync/2.1", 200)
	}
	for i := range 5 {
		for k := range 2 * 3600 {
			t.send(600+float64(k)/2, "scraper", fmt.Sprintf("203.0.113.%d", 20+i), "-", "GET", fmt.Sprintf("/products/%d", k), "python-requests/2.31", 200)
		}
	}
	for k := range 1500 {
		t.send(900+3*float64(k), "guesser", "203.0.113.66", "-", "POST", "/login", "Mozilla/5.0 (1)", 401)
	}
	slices.SortStableFunc(t.visits, func(a, b visit) int { return int(min(max(a.at-b.at, -1), 1)) })
	return t
}

// person looks at some pages, each with what belongs to it, searches now and
// then, and logs in once, sometimes with an attempt that fails.
func (t *truth) person(ip, ua string, start, pages int) {
	at := float64(start)
	for page := range pages {
		t.send(at, "user", ip, "-", "GET", fmt.Sprintf("/products/%d", t.IntN(900)), ua, 200)
		for k := range 4 + t.IntN(8) {
			t.send(at+0.1+0.1*float64(k), "user", ip, "-", "GET", fmt.Sprintf("/static/%d.js", k), ua, 200)
		}
		if t.IntN(5) == 0 {
			t.send(at+4, "user", ip, "-", "GET", "/search", ua, 200)
		}
		if page == 1 {
			if t.IntN(4) == 0 {
				t.send(at+5, "user", ip, "-", "POST", "/login", ua, 401)
			}
			t.send(at+12, "user", ip, "-", "POST", "/login", ua, 200)
		}
		at += 8 + float64(t.IntN(90))
	}
}

func (t *truth) send(at float64, who, ip, user, method, path, ua string, status int) {
	when := time.Duration(at * float64(time.Second))
	if when < t.length {
		t.visits = append(t.visits, visit{when, who, ip, user, method, path, ua, status})
	}
}

var truthStart = time.Date(2025, 3, 5, 9, 0, 0, 0, time.UTC)

func (t *truth) log() []byte {
	var b strings.Builder
	for _, v := range t.visits {
		fmt.Fprintf(&b, "%s - %s [%s] \"%s %s HTTP/1.1\" %d 512 \"-\" \"%s\"\n", v.ip, v.user, truthStart.Add(v.at).Format("02/Jan/2006:15:04:05 -0700"), v.method, v.path, v.status, v.ua)
	}
	return []byte(b.String())
}

// A sentence is what rules do to each kind of client: how many of how many
// requests are denied.
type sentence map[string][2]int

// try decides every visit by the rules, those in shadow as if they were not.
func (t *truth) try(tb testing.TB, file string) sentence {
	tb.Helper()
	f, err := rules.Decode("stint.yaml", []byte(strings.ReplaceAll(file, "shadow: true", "shadow: false")))
	if err != nil {
		tb.Fatalf("%v in\n%s", err, file)
	}
	var clock simulate.Clock
	store := memstore.New(memstore.Options{Now: clock.Now})
	defer store.Close()
	p := made.Policy(tb, store, f.Rules, policy.Options{})
	var result policy.Result
	found := make(sentence)
	for _, v := range t.visits {
		clock.Advance(truthStart.Add(v.at.Truncate(time.Second)).UnixNano())
		seen := visitAttributes{"ip": v.ip, "method": v.method, "path": v.path, "user": v.user}
		if err := p.Decide(context.Background(), seen, 1, &result); err != nil {
			tb.Fatal(err)
		}
		n := found[v.who]
		if n[1]++; !result.Decision.Allowed {
			n[0]++
		}
		found[v.who] = n
	}
	return found
}

type visitAttributes map[string]string

// Attribute implements [policy.Attributes].
func (a visitAttributes) Attribute(name string) (string, bool) {
	v, ok := a[name]
	return v, ok && v != "-"
}

var culprits = []string{"guesser", "scraper"}

// others is the part of the requests of all but the abusers that is denied.
func (s sentence) others() float64 {
	denied, all := 0, 0
	for who, n := range s {
		if !slices.Contains(culprits, who) {
			denied, all = denied+n[0], all+n[1]
		}
	}
	return float64(denied) / float64(all)
}

func (s sentence) String() string {
	var b strings.Builder
	for _, who := range []string{"guesser", "scraper", "partner", "app", "monitor", "user"} {
		fmt.Fprintf(&b, "%s %5.1f%%  ", who, 100*float64(s[who][0])/float64(s[who][1]))
	}
	return fmt.Sprintf("%sothers %.3f%%", &b, 100*s.others())
}

// expert is what an expert who knows this shop would write.
const expert = `
rules:
  - {name: health, match: {path: /healthz}, unlimited: true}
  - {name: login, match: {path: /login, method: POST}, key: [ip], limits: ['20/h burst 30']}
  - name: api
    match: {path: /api/**}
    key: [ip]
    limits: ['1/s burst 20']
    overrides: [{name: acme, when: {ip: 203.0.113.5}, limits: ['8/s burst 20']}]
  - {name: pages, unless: {path: [/login, /api/**, /healthz]}, key: [ip], limits: ['1/s burst 200']}
`

// In a log of people, no client that sends a handful of requests is abuse.
func TestProposeSpares(t *testing.T) {
	p, err := plan.Propose(t.Context(), plan.Options{Files: []string{shipped}, Margin: 0.2})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range p.Routes {
		for _, a := range r.Apart {
			if a.Key != "198.51.100.162" && a.Verdict == "abuse" {
				t.Errorf("%s: %s is %s: %s", r.Name, a.Key, a.Verdict, a.Evidence)
			}
		}
	}
}

// A client that stands apart and is answered well is heavy, and no abuse: people who
// look at slides are not.
func TestProposeCallsNobodyNames(t *testing.T) {
	const slides = "Mozilla/5.0 (Windows NT 6.1; WOW64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/32.0 Safari/537.36"
	var log strings.Builder
	for i := range 1800 {
		at := truthStart.Add(time.Duration(i) * time.Second).Format("02/Jan/2006:15:04:05 -0700")
		fmt.Fprintf(&log, "10.0.0.%d - - [%s] \"GET /page HTTP/1.1\" 200 9 \"-\" \"%s\"\n", i%60, at, slides)
		if i >= 900 && i < 960 {
			for k := range 5 {
				fmt.Fprintf(&log, "203.0.113.66 - - [%s] \"GET /slides/%d HTTP/1.1\" %d 9 \"-\" \"%s\"\n", at, k, 200+104*(k%2), slides)
			}
		}
	}
	p, err := plan.Propose(t.Context(), plan.Options{Files: []string{"-"}, Stdin: strings.NewReader(log.String()), Margin: 0.2})
	if err != nil || p.File == "" {
		t.Fatalf("%v, %+v", err, p)
	}
	n := 0
	for _, r := range p.Routes {
		for _, a := range r.Apart {
			n++
			if a.Verdict == "abuse" || !strings.Contains(a.Evidence.Looks, "with a browser: a person") {
				t.Errorf("%s is %s: %s", a.Key, a.Verdict, a.Evidence)
			}
		}
	}
	if n == 0 || strings.Contains(p.File, "abuse") {
		t.Errorf("%d stand apart\n%s", n, p.File)
	}
}

// TestProposeCounts has each client counted once, on however many routes it was; a path
// that one client alone asked for makes no rule.
func TestProposeCounts(t *testing.T) {
	var log strings.Builder
	for i := range 1800 {
		at := truthStart.Add(time.Duration(i) * time.Second).Format("02/Jan/2006:15:04:05 -0700")
		for _, path := range []string{"/search", "/api/orders", "/page"} {
			fmt.Fprintf(&log, "10.0.0.%d - - [%s] \"GET %s HTTP/1.1\" 200 9 \"-\" \"-\"\n", i%60, at, path)
		}
		fmt.Fprintf(&log, "203.0.113.66 - - [%s] \"POST /login HTTP/1.1\" 401 9 \"-\" \"-\"\n", at)
	}
	p, err := plan.Propose(t.Context(), plan.Options{Files: []string{"-"}, Stdin: strings.NewReader(log.String()), Margin: 0.2})
	if err != nil || p.File == "" {
		t.Fatalf("%v, %+v", err, p)
	}
	if p.Log.Clients != 61 {
		t.Errorf("%d clients of 61", p.Log.Clients)
	}
	var text strings.Builder
	if err := p.Text(&text, "stint.yaml"); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text.String()) {
		if strings.HasPrefix(line, "login ") || strings.HasPrefix(line, "  203.0.113.66 ") && strings.HasSuffix(line, " 0 of 1,800 requests denied\n") {
			t.Errorf("one client alone makes no route: %s", line)
		}
	}
}

// What clients write into a log makes no rule more lenient: paths that they made up, names
// and user agents.
func TestProposeNotSteered(t *testing.T) {
	log := func(plant func(i int, at string) string) string {
		var b strings.Builder
		for i := range 3600 {
			at := truthStart.Add(time.Duration(i) * time.Second).Format("02/Jan/2006:15:04:05 -0700")
			fmt.Fprintf(&b, "10.0.0.%d - - [%s] \"GET /page/%d HTTP/1.1\" 200 9 \"-\" \"Mozilla/5.0\"\n", i%60, at, i)
			fmt.Fprintf(&b, "10.0.0.%d - - [%s] \"GET /static/%d.js HTTP/1.1\" 200 9 \"-\" \"Mozilla/5.0\"\n", i%60, at, i)
			b.WriteString(plant(i, at))
		}
		return b.String()
	}
	scraper := func(user, agent string) func(int, string) string {
		return func(i int, at string) string {
			if strings.Contains(agent, "%d") {
				agent := fmt.Sprintf(agent, i%40)
				return strings.Repeat(fmt.Sprintf("203.0.113.66 - %s [%s] \"GET /page/%d HTTP/1.1\" 200 9 \"-\" \"%s\"\n", user, at, i, agent), 8)
			}
			return strings.Repeat(fmt.Sprintf("203.0.113.66 - %s [%s] \"GET /page/%d HTTP/1.1\" 200 9 \"-\" \"%s\"\n", user, at, i, agent), 8)
		}
	}
	once := func(line string) func(int, string) string {
		return func(i int, at string) string {
			if i%1800 != 5 {
				return ""
			}
			return fmt.Sprintf("203.0.113.9 - - [%s] %s 9 \"-\" \"curl\"\n", at, line)
		}
	}
	rulesOf := func(text string) string {
		p, err := plan.Propose(t.Context(), plan.Options{Files: []string{"-"}, Stdin: strings.NewReader(text), Margin: 0.2})
		if err != nil || p.File == "" {
			t.Fatalf("%v, %+v", err, p)
		}
		var kept []string
		for line := range strings.Lines(p.File) {
			if !strings.HasPrefix(strings.TrimSpace(line), "#") {
				kept = append(kept, line)
			}
		}
		if rules := strings.Join(kept, ""); strings.Count(rules, "- name:") != strings.Count(rules, "shadow: true") {
			t.Errorf("not all in shadow:\n%s", rules)
		}
		return strings.Join(kept, "")
	}
	want := rulesOf(log(func(int, string) string { return "" }))
	for what, plant := range map[string]func(int, string) string{
		"a path like a health check's":   once(`"GET /a/b/ping HTTP/1.1" 404`),
		"a health check's, answered":     once(`"GET /healthz HTTP/1.1" 200`),
		"a file behind a program":        once(`"POST /login.php/x.css HTTP/1.1" 200`),
		"a log-in that is none":          once(`"GET /page/login HTTP/1.1" 200`),
		"a scraper":                      scraper("-", "x"),
		"a scraper with a name":          scraper("bob", "x"),
		"a scraper of forty user agents": scraper("-", "Mozilla/5.0 (%d)"),
	} {
		if got := rulesOf(log(plant)); got != want {
			t.Errorf("%s changes the rules:\n%s\nwant\n%s", what, got, want)
		}
	}
}

// A few clients that set a limit by themselves are named, though each sends too little to
// stand apart: of every rule, and whatever else is asked.
func TestProposeAsksWhoSets(t *testing.T) {
	var b strings.Builder
	for i := range 3600 {
		at := truthStart.Add(time.Duration(i) * time.Second).Format("02/Jan/2006:15:04:05 -0700")
		fmt.Fprintf(&b, "10.0.0.%d - - [%s] \"GET /page HTTP/1.1\" 200 9 \"-\" \"-\"\n", i%60, at)
		if i%60 == 0 {
			fmt.Fprintf(&b, "10.0.0.%d - - [%s] \"POST /login HTTP/1.1\" 200 9 \"-\" \"-\"\n", i/60, at)
		}
		if i == 1800 {
			for range 99 {
				fmt.Fprintf(&b, "203.0.113.9 - - [%s] \"GET /page HTTP/1.1\" 200 9 \"-\" \"-\"\n", at)
				fmt.Fprintf(&b, "203.0.113.9 - - [%s] \"GET /login HTTP/1.1\" 200 9 \"-\" \"-\"\n", at)
			}
		}
	}
	p, err := plan.Propose(t.Context(), plan.Options{Files: []string{"-"}, Stdin: strings.NewReader(b.String()), Margin: 0.2})
	if err != nil || p.File == "" {
		t.Fatalf("%v, %+v", err, p)
	}
	for _, name := range []string{"login", "pages"} {
		if !slices.ContainsFunc(p.Questions, func(q string) bool {
			return strings.HasPrefix(q, name+" lets ") && strings.Contains(q, "because of 203.0.113.9, and without ")
		}) {
			t.Errorf("nobody is named of %s: %q\n%s", name, p.Questions, p.File)
		}
	}
}

// TestProposeAsksAboutMany: clients of up to half of the networks that let a limit grow are named, though
// each needs a little more than the last, or no more in a minute, but in an hour, and however many
// addresses one network has.
func TestProposeAsksAboutMany(t *testing.T) {
	for _, c := range []struct {
		what  string
		from  string
		n     int
		sends func(i, k int) int // how many requests client k of n sends in second i
		want  string
	}{
		{"a little more each", "203.0.113.%d", 25, func(i, k int) int {
			if i == 60*k {
				return 30 + 3*k
			}
			return 0
		}, " at once pass because of 203.0.113."},
		{"one network", "2001:db8:1:%x::1", 150, func(i, k int) int {
			if i == 20*k {
				return 90
			}
			return 0
		}, " at once pass because of 2001:db8:1:"},
		{"all hour long", "203.0.113.%d", 25, func(i, k int) int {
			if i%12 == 0 {
				return 1
			}
			return 0
		}, " an hour pass because of 203.0.113."},
		{"some at once, others all the time", "203.%d.0.9", 15, func(i, k int) int {
			switch {
			case k < 5 && i == 60*k:
				return 90
			case k >= 5 && i%2 == 0:
				return 1
			}
			return 0
		}, " an hour pass because of 203.5.0.9, 203.6.0.9"},
	} {
		var b strings.Builder
		for i := range 3600 {
			at := truthStart.Add(time.Duration(i) * time.Second).Format("02/Jan/2006:15:04:05 -0700")
			send := func(who string, n int) {
				for range n {
					fmt.Fprintf(&b, "%s - - [%s] \"GET /page HTTP/1.1\" 200 9 \"-\" \"-\"\n", who, at)
				}
			}
			if i%36 == 0 { // each of 100 clients once
				send(fmt.Sprintf("10.0.0.%d", i/36), 30)
			}
			for k := range c.n {
				send(fmt.Sprintf(c.from, k), c.sends(i, k))
			}
		}
		p, err := plan.Propose(t.Context(), plan.Options{Files: []string{"-"}, Stdin: strings.NewReader(b.String()), Margin: 0.2})
		if err != nil || p.File == "" {
			t.Fatalf("%s: %v, %+v", c.what, err, p)
		}
		if !slices.ContainsFunc(p.Questions, func(q string) bool { return strings.Contains(q, c.want) }) {
			t.Errorf("%s: nobody is named: %q\n%s", c.what, p.Questions, p.File)
		}
	}
}

// A rule of pages by name may let more pass than that by address: there is no path to ask
// about. Servers log names that they have not checked, so the file asks who does.
func TestProposeNamedPages(t *testing.T) {
	truth := &truth{length: time.Hour}
	for i := range 3600 {
		truth.send(float64(i), "user", fmt.Sprintf("10.0.0.%d", i%60), "-", "GET", "/page", "-", 200)
		for k := range 9 {
			truth.send(float64(i), "app", fmt.Sprintf("10.1.0.%d", i%30), fmt.Sprintf("ann-%d", i%30), "GET", fmt.Sprintf("/page/%d", k), "-", 200)
		}
	}
	p, err := plan.Propose(t.Context(), plan.Options{Files: []string{"-"}, Stdin: strings.NewReader(string(truth.log())), Margin: 0.2})
	if err != nil || !strings.Contains(p.File, "pages-by-user") || !slices.ContainsFunc(p.Questions, func(q string) bool { return strings.Contains(q, "counts by user") }) {
		t.Fatalf("%v, %+v", err, p)
	}
}

// On its own log, a proposal denies nobody who does not stand apart: no rule by address
// holds those whom another rule holds by their names.
func TestProposeHoldsOwnLog(t *testing.T) {
	truth := &truth{length: time.Hour}
	for i := range 3600 {
		truth.send(float64(i), "user", fmt.Sprintf("10.0.0.%d", i%60), "-", "GET", "/page", "-", 200)
		if i%100 < 50 {
			for k := range 8 {
				truth.send(float64(i), "app", fmt.Sprintf("10.1.0.%d", k%4*20+i%20), fmt.Sprintf("key-%d", (i*8+k)%40), "GET", "/api/orders", "-", 200)
			}
		}
	}
	p, err := plan.Propose(t.Context(), plan.Options{Files: []string{"-"}, Stdin: strings.NewReader(string(truth.log())), Margin: 0.2})
	if err != nil || !strings.Contains(p.File, "api-by-user") || strings.Contains(p.File, "stands apart") {
		t.Fatalf("%v, %+v", err, p)
	}
	if found := truth.try(t, p.File); found["user"][0]+found["app"][0] > 0 {
		t.Errorf("%v\n%s", found, p.File)
	}
}

// Paths that strangers make up neither break the file nor widen a pattern, and those of one
// address keep no other's out.
func TestProposePaths(t *testing.T) {
	var b strings.Builder
	for k := range 70_000 {
		fmt.Fprintf(&b, "203.0.113.9 - - [%s] \"GET /%d/login HTTP/1.1\" 200 9 \"-\" \"-\"\n", truthStart.Format("02/Jan/2006:15:04:05 -0700"), k)
	}
	for i := range 3600 {
		at := truthStart.Add(time.Duration(i) * time.Second).Format("02/Jan/2006:15:04:05 -0700")
		for _, path := range []string{"/page", "//signin", "/q;y/login", "/q#y/login", "/{a...}/login", "/{a}/login", "/q{y/login", "/api/../login"} {
			fmt.Fprintf(&b, "10.0.0.%d - - [%s] \"GET %s HTTP/1.1\" 200 9 \"-\" \"-\"\n", i%60, at, path)
		}
	}
	p, err := plan.Propose(t.Context(), plan.Options{Files: []string{"-"}, Stdin: strings.NewReader(b.String()), Margin: 0.2})
	if err != nil || !strings.Contains(p.File, "match: {path: ['/login', '/signin']}") {
		t.Fatalf("%v, %+v", err, p)
	}
	if _, err := rules.Decode("stint.yaml", []byte(p.File)); err != nil {
		t.Errorf("%v in\n%s", err, p.File)
	}
}

// Of a stuffer's forty addresses, each is said to be denied what it is, and they stand as
// one network.
func TestProposeNeighbours(t *testing.T) {
	var b strings.Builder
	for i := range 7200 {
		at := truthStart.Add(time.Duration(i) * time.Second).Format("02/Jan/2006:15:04:05 -0700")
		fmt.Fprintf(&b, "10.0.0.%d - - [%s] \"GET /page HTTP/1.1\" 200 9 \"-\" \"-\"\n", i%60, at)
		if i%60 == 0 {
			fmt.Fprintf(&b, "10.0.0.%d - - [%s] \"POST /wp-login.php HTTP/1.1\" 200 9 \"-\" \"-\"\n", i/60%60, at)
		}
		if i%30 == 0 {
			for k := range 40 {
				fmt.Fprintf(&b, "192.0.2.%d - - [%s] \"POST /wp-login.php HTTP/1.1\" 401 9 \"-\" \"-\"\n", k+1, at)
			}
		}
	}
	p, err := plan.Propose(t.Context(), plan.Options{Files: []string{"-"}, Stdin: strings.NewReader(b.String()), Margin: 0.2})
	if err != nil || p.File == "" {
		t.Fatalf("%v, %+v", err, p)
	}
	if n := strings.Count(p.File, "stands apart"); n != 1 || !strings.Contains(p.File, "192.0.2.0/24, ") || strings.Contains(p.File, "is denied") {
		t.Errorf("%d stand apart\n%s", n, p.File)
	}
}

// Of logs whose abusers are known, a proposed file denies these most of what
// they send, and at most 0.1% of the requests of all others.
func TestPropose(t *testing.T) {
	need.Time(t)
	if race.On {
		t.Skip("takes long with the race detector: make test runs it without")
	}
	for seed := range uint64(3) {
		truth := newTruth(seed + 1)
		log := truth.log()
		o := plan.Options{Files: []string{"-"}, Stdin: strings.NewReader(string(log)), Margin: 0.2}
		p, err := plan.Propose(t.Context(), o)
		if err != nil || p.File == "" || len(p.Questions) == 0 {
			t.Fatalf("seed %d: %v, %+v", seed, err, p)
		}
		for _, r := range p.Routes { // the reader answers the question who is known
			for _, a := range r.Apart {
				if strings.HasPrefix(a.Key, "203.0.113.5") && len(a.Key) == len("203.0.113.5") || strings.HasPrefix(a.Key, "198.51.100.") || strings.HasPrefix(a.Key, "10.3.0.") {
					o.Exempt = append(o.Exempt, a.Key)
				}
			}
		}
		o.Stdin = strings.NewReader(string(log))
		if p, err = plan.Propose(t.Context(), o); err != nil || p.File == "" {
			t.Fatalf("seed %d: %v, %+v", seed, err, p)
		}
		proposed := truth.try(t, p.File)
		single := truth.try(t, planText(t, log, plan.Options{Choose: &plan.Target{Share: 0.001}, Margin: 0.2, Brief: true}).Choice.Rule)
		later := newTruth(seed+11).try(t, p.File)
		t.Logf("seed %d, requests denied\nproposed file  %v\n  another day  %v\none limit      %v\nan expert's    %v", seed, proposed, later, single, truth.try(t, expert))
		for _, who := range culprits {
			if n := proposed[who]; n[0]*2 < n[1] {
				t.Errorf("seed %d: %d of %d of the %s denied\n%s", seed, n[0], n[1], who, p.File)
			}
		}
		if part := proposed.others(); part > 0.001 {
			t.Errorf("seed %d: %.3f%% of the others' requests are denied\n%s", seed, 100*part, p.File)
		}
	}
}
