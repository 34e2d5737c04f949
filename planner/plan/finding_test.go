package plan_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/planner/plan"
)

// plain is a log of n requests of the given number of clients, a few seconds apart,
// each line as the function writes it.
func plain(n, clients int, line func(at time.Time, client string) string) []byte {
	var b strings.Builder
	at := time.Date(2024, 3, 5, 12, 0, 0, 0, time.UTC)
	for i := range n {
		at = at.Add(2 * time.Second)
		b.WriteString(line(at, fmt.Sprintf("192.0.2.%d", (i*i+i/7)%clients+1)) + "\n")
	}
	return []byte(b.String())
}

func combined(at time.Time, client string) string {
	return client + " - - [" + at.Format("02/Jan/2006:15:04:05 -0700") + `] "GET / HTTP/1.1" 200 5 "-" "curl/8.5"`
}

// What is no log of clients gets no proposal, and the first lines of the report
// say why; what is known behind a prefix is read as it is without.
func TestGate(t *testing.T) {
	choose := func() plan.Options { return plan.Options{Choose: &plan.Target{Share: 0.01}, Margin: 0.2, Brief: true} }
	want := planText(t, plain(2000, 50, combined), choose())
	if want.Choice == nil || len(want.Findings) > 0 {
		t.Fatalf("a plain log: %+v", want.Findings)
	}
	if doubts := strings.Join(want.Choice.Doubts, "\n"); !strings.Contains(doubts, "one that tries again at once may be denied") {
		t.Errorf("no word of the burst in %s: %s", want.Choice.Limit, doubts)
	}
	for _, test := range []struct {
		name string
		line func(at time.Time, client string) string
		stop string // "" if it is read as the plain log
	}{
		{"containerd", func(at time.Time, c string) string {
			return at.Format("2006-01-02T15:04:05.000000000Z") + " stdout F " + combined(at, c)
		}, ""},
		{"docker compose", func(at time.Time, c string) string { return "web-1  | " + combined(at, c) }, ""},
		{"kubectl --prefix", func(at time.Time, c string) string { return "[pod/web/nginx] " + combined(at, c) }, ""},
		{"kubectl --timestamps", func(at time.Time, c string) string { return at.Format(time.RFC3339Nano) + " " + combined(at, c) }, ""},
		{"vhost_combined", func(at time.Time, c string) string { return "www.example.com:443 " + combined(at, c) }, ""},
		{"docker json-file", func(at time.Time, c string) string {
			return fmt.Sprintf(`{"log":%q,"stream":"stdout","time":%q}`, combined(at, c)+"\n", at.Format(time.RFC3339Nano))
		}, ""},
		{"Traefik", func(at time.Time, c string) string {
			return fmt.Sprintf(`{"ClientHost":%q,"StartUTC":%q}`, c, at.Format(time.RFC3339Nano))
		}, ""},
		{"JSON without an address", func(at time.Time, c string) string {
			return fmt.Sprintf(`{"remote_peer":%q,"time":%q}`, c, at.Format(time.RFC3339Nano))
		}, "no_key"},
		{"behind a proxy", func(at time.Time, c string) string { return combined(at, "10.0.0.1") + fmt.Sprintf(" %q", c) }, "proxy"},
		{"one client", func(at time.Time, c string) string { return combined(at, "192.0.2.7") }, "one_client"},
		{"no address", func(at time.Time, c string) string {
			return fmt.Sprintf(`{"ip":"user/%s","time":%q}`, c, at.Format(time.RFC3339Nano))
		}, "no_address"},
		{"now and then no address", func(at time.Time, c string) string {
			if at.Unix()%10 == 0 {
				c = "-"
			}
			return combined(at, c)
		}, "no_address"},
		{"a request's own number", func(at time.Time, c string) string {
			return fmt.Sprintf(`{"ip":"h%d","time":%q}`, at.UnixNano(), at.Format(time.RFC3339Nano))
		}, "each_once"},
	} {
		r := planText(t, plain(2000, 50, test.line), choose())
		if test.stop == "" {
			if r.Choice == nil || r.Choice.Limit != want.Choice.Limit || r.Log.Clients != want.Log.Clients || len(r.Findings) > 0 {
				t.Errorf("%s: %d clients, choice %+v, %+v; want %d, %s", test.name, r.Log.Clients, r.Choice, r.Findings, want.Log.Clients, want.Choice.Limit)
			}
			continue
		}
		if r.Choice != nil || !r.Refused() || r.Findings[0].What != test.stop || !r.Findings[0].Stops {
			t.Errorf("%s: choice %+v, %+v; want %s", test.name, r.Choice, r.Findings, test.stop)
		}
		var text strings.Builder
		if err := r.Text(&text); err != nil {
			t.Fatal(err)
		}
		if head := strings.Join(strings.SplitN(text.String(), "\n", 6)[:5], " "); !strings.Contains(head, "NO PROPOSAL") || strings.Contains(text.String(), "shadow") {
			t.Errorf("%s:\n%s", test.name, &text)
		}
	}
}

// A key that no line has is answered with what lines have instead, in formats
// whose fields have no names too.
func TestNoSuchKey(t *testing.T) {
	for name, test := range map[string]struct {
		line func(at time.Time, client string) string
		want string
	}{
		"combined": {combined, "2,000 of 2,000 had no nosuch. Its lines have ip, method, path, status, bytes, header.user-agent"},
		"a user and a referrer": {func(at time.Time, c string) string {
			return strings.NewReplacer(" - - ", " - ann ", `"-"`, `"https://example.com/"`).Replace(combined(at, c))
		}, "Its lines have ip, user, method, path, status, bytes, header.referer, header.user-agent"},
		"containerd": {func(at time.Time, c string) string {
			return at.Format(time.RFC3339Nano) + " stdout F " + combined(at, c)
		}, "Its lines have ip, method, path, status, bytes, header.user-agent"},
		"vhost_combined": {func(at time.Time, c string) string { return "www.example.com:443 " + combined(at, c) },
			"Its lines have ip, method, host, path, status, bytes, header.user-agent"},
		"Envoy text": {func(at time.Time, c string) string {
			return fmt.Sprintf(`[%s] "GET / HTTP/1.1" 200 - 0 5 1 1 "%s" "curl/8.5" "f1" "shop.example.com" "10.1.0.4:8080"`, at.Format("2006-01-02T15:04:05.000Z"), c)
		}, "method, host, path, status, bytes, header.user-agent, header.x-forwarded-for, protocol, received, duration, upstream_time, request_id, upstream"},
		"JSON": {func(at time.Time, c string) string {
			return fmt.Sprintf(`{"ip":%q,"time":%q}`, c, at.Format(time.RFC3339Nano))
		}, "The fields are ip, time: say which it is, such as --field nosuch="},
	} {
		log := plain(2000, 50, test.line)
		r := planText(t, log, plan.Options{Key: []string{"nosuch"}, Choose: &plan.Target{Share: 0.01}, Brief: true})
		if len(r.Findings) == 0 || r.Findings[0].What != "no_key" || !strings.Contains(r.Findings[0].Text, test.want) {
			t.Errorf("%s: %+v", name, r.Findings)
		}
	}
}

// Behind proxies that are trusted, the client is whom they name.
func TestBehindProxies(t *testing.T) {
	line := func(at time.Time, c string) string {
		return combined(at, "10.0.0.1") + fmt.Sprintf(` "203.0.113.99, %s, 10.0.0.9"`, c)
	}
	o := plan.Options{Limits: []string{"1/m"}, Brief: true}
	o.Client = httplimit.ClientIP{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	got, want := planText(t, plain(2000, 50, line), o), planText(t, plain(2000, 50, combined), plan.Options{Limits: o.Limits, Brief: true})
	if outcomeOf(got.Results[0]) != outcomeOf(want.Results[0]) || len(got.Findings) > 0 {
		t.Errorf("%+v and %+v; want %+v", outcomeOf(got.Results[0]), got.Findings, outcomeOf(want.Results[0]))
	}
}

// So it is with the logs of Envoy and Istio, which say it in fields of their own.
func TestBehindProxiesEnvoy(t *testing.T) {
	const list = "203.0.113.99, %s, 10.0.0.9"
	o := plan.Options{Limits: []string{"1/m"}, Brief: true}
	want := planText(t, plain(2000, 50, combined), o)
	o.Client = httplimit.ClientIP{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	for name, line := range map[string]func(at time.Time, c string) string{
		"Envoy JSON": func(at time.Time, c string) string {
			return fmt.Sprintf(`{"start_time":%q,"method":"GET","path":"/","response_code":200,"downstream_remote_address":"10.0.0.1:52014","x_forwarded_for":"`+list+`"}`, at.Format(time.RFC3339Nano), c)
		},
		"Envoy text": func(at time.Time, c string) string {
			return fmt.Sprintf(`[%s] "GET / HTTP/1.1" 200 - 0 5 1 1 "`+list+`, 10.0.0.1" "curl/8.5" "f1" "shop.example.com" "10.1.0.4:8080"`, at.Format("2006-01-02T15:04:05.000Z"), c)
		},
		"Istio text": func(at time.Time, c string) string {
			return fmt.Sprintf(`[%s] "GET / HTTP/1.1" 200 - via_upstream - "-" 0 5 1 1 "`+list+`" "curl/8.5" "f1" "shop.example.com" "10.1.0.4:8080" outbound|80||shop 10.1.0.9:3412 10.1.0.9:80 10.0.0.1:52014 - default`, at.Format("2006-01-02T15:04:05.000Z"), c)
		},
	} {
		got := planText(t, plain(2000, 50, line), o)
		if got.Log.Files[0].Format != name || outcomeOf(got.Results[0]) != outcomeOf(want.Results[0]) || len(got.Findings) > 0 {
			t.Errorf("%s: %s, %+v and %+v; want %+v", name, got.Log.Files[0].Format, outcomeOf(got.Results[0]), got.Findings, outcomeOf(want.Results[0]))
		}
	}
}

// A share of the clients is no measure where most came once.
func TestManyOnce(t *testing.T) {
	var b strings.Builder
	n := 0
	b.Write(plain(4000, 50, func(at time.Time, client string) string {
		n++
		return combined(at, client) + "\n" + combined(at, fmt.Sprintf("203.%d.%d.1", n/250, n%250))
	}))
	r := planText(t, []byte(b.String()), plan.Options{Choose: &plan.Target{Share: 0.001}, Brief: true})
	if doubts := strings.Join(r.Choice.Doubts, "\n"); !strings.Contains(doubts, "4,000 of 4,050 clients sent a single request") {
		t.Errorf("%s", doubts)
	}
}

// Requests that are far from the others at both ends are found.
func TestFarOff(t *testing.T) {
	log := string(plain(2000, 50, combined))
	stray := func(year int) string {
		return combined(time.Date(year, 6, 1, 0, 0, 0, 0, time.UTC), "192.0.2.1") + "\n"
	}
	for name, test := range map[string]struct{ log, want string }{
		"before": {stray(1999) + log, "1 request. If the date is wrong, leave that out, such as with --from 2024-"},
		"behind": {log + stray(2025), "1 request. If the date is wrong, leave that out, such as with --to 2024-"},
		"both":   {stray(1999) + log + stray(2025), "2 requests. If the date is wrong, leave that out, such as with --from 2024-"},
	} {
		found := ""
		for _, f := range planText(t, []byte(test.log), plan.Options{Limits: []string{"1/m"}, Brief: true}).Findings {
			if f.What == "far_off" {
				found = f.Text
			}
		}
		if !strings.Contains(found, test.want) {
			t.Errorf("%s: %q", name, found)
		}
	}
}

// What is odd about files is said: given twice, cut off, another zone, dates
// that cannot be, NUL bytes.
func TestOddFiles(t *testing.T) {
	dir := t.TempDir()
	log := string(plain(2000, 50, combined))
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		disk.Write(t, file, text)
		return file
	}
	whole := write("access.log", log)
	now := time.Now().Add(2 * time.Hour).UTC()
	ahead := write("ahead.log", strings.ReplaceAll(log, "05/Mar/2024", now.Format("02/Jan/2006")))
	mid := time.Date(now.Year(), now.Month(), now.Day(), 13, 6, 40, 0, time.UTC).Add(-2 * time.Hour)
	if err := os.Chtimes(ahead, mid, mid); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		files []string
		want  string
		stops bool
	}{
		{[]string{whole, whole}, "twice", true},
		{[]string{whole, write("copy.log", log[:len(log)/2])}, "twice", true},
		{[]string{write("empty.log", "")}, "too_little", true},
		{[]string{write("cut.log", log[:len(log)-60])}, "cut_off", false},
		{[]string{ahead}, "zone", false},
		{[]string{write("nul.log", strings.Repeat("\x00", 70_000)+log)}, "nuls", false},
		{[]string{write("2099.log", log+combined(time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC), "192.0.2.1")+"\n")}, "future", false},
		{[]string{write("half.log", log+strings.Repeat("garbage\n", 1500))}, "unreadable", true},
		{[]string{write("1999.log", combined(time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC), "192.0.2.1")+"\n"+log)}, "far_off", false},
	} {
		r, err := plan.Run(t.Context(), plan.Options{Files: test.files, Choose: &plan.Target{Share: 0.01}, Brief: true})
		if err != nil || len(r.Findings) == 0 || r.Findings[0].What != test.want || r.Findings[0].Stops != test.stops || (r.Choice == nil) != test.stops {
			t.Errorf("%s: %v, %+v", test.want, err, r)
		}
	}
}

// TestCutGzip reads a compressed log that is cut off, and whose lines are to be sorted,
// as far as it goes.
func TestCutGzip(t *testing.T) {
	log := plain(20_000, 50, combined)
	half := bytes.IndexByte(log[len(log)/2:], '\n') + len(log)/2 + 1
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write(append(bytes.Clone(log[half:]), log[:half]...))
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "access.log.gz")
	disk.Write(t, file, string(packed.Bytes()[:packed.Len()-60]))
	r, err := plan.Run(t.Context(), plan.Options{Files: []string{file}, Choose: &plan.Target{Share: 0.01}, Brief: true})
	if err != nil {
		t.Fatal(err)
	}
	if file := r.Log.Files[0]; file.Error == "" || r.Log.Reordered == 0 || r.Log.Requests < 15_000 {
		t.Errorf("%d requests, %d put back, %+v", r.Log.Requests, r.Log.Reordered, file)
	}
	if len(r.Findings) == 0 || r.Findings[0].What != "not_whole" || !r.Refused() || !r.Partial() {
		t.Errorf("it proposes from a part: %+v", r.Findings)
	}
}

// TestEqualLines takes equal lines for requests of their own: a program that sends four at
// once writes such lines.
func TestEqualLines(t *testing.T) {
	var b bytes.Buffer
	for line := range bytes.SplitSeq(plain(2000, 50, combined), []byte("\n")) {
		if len(line) > 0 {
			b.Write(bytes.Repeat(append(line, '\n'), 4))
		}
	}
	if r := planText(t, b.Bytes(), plan.Options{Choose: &plan.Target{Share: 0.01}, Brief: true}); r.Choice == nil || len(r.Findings) > 0 || r.Log.Requests != 8000 {
		t.Errorf("%d requests, %+v", r.Log.Requests, r.Findings)
	}
}

// What carries a log is said: refusals, one path, one stretch of time, and a crowd that
// stands apart but is too large to be left out unasked.
func TestCarried(t *testing.T) {
	log := func(extra func(i int) (n int, client, request string, status int)) []byte {
		var b strings.Builder
		for i := range 7200 {
			at := truthStart.Add(time.Duration(i) * time.Second).Format("02/Jan/2006:15:04:05 -0700")
			fmt.Fprintf(&b, "192.0.2.%d - - [%s] \"GET /page/%d HTTP/1.1\" 200 9\n", i%200, at, i)
			n, client, request, status := extra(i)
			for range n {
				fmt.Fprintf(&b, "%s - - [%s] \"%s HTTP/1.1\" %d 9\n", client, at, request, status)
			}
		}
		return []byte(b.String())
	}
	for name, test := range map[string]struct {
		extra      func(i int) (int, string, string, int)
		what, says string
	}{
		"nothing": {func(int) (int, string, string, int) { return 0, "", "", 0 }, "", ""},
		"guesses from everywhere": {func(i int) (int, string, string, int) {
			return i % 2, fmt.Sprintf("10.0.%d.%d", i/200, i%200), "POST /login", 401
		}, "refused", "of all requests were answered 401"},
		"one path": {func(i int) (int, string, string, int) {
			return 2, fmt.Sprintf("192.0.2.%d", i%200), "GET /poll", 200
		}, "one_path", "are of the path /poll"},
		"a burst": {func(i int) (int, string, string, int) {
			if i < 3600 || i >= 3900 {
				return 0, "", "", 0
			}
			return 30, fmt.Sprintf("192.0.2.%d", i%200), fmt.Sprintf("GET /sale/%d", i), 200
		}, "burst", "half of all requests came within 4m"},
	} {
		r := planText(t, log(test.extra), plan.Options{Choose: &plan.Target{}, Brief: true})
		what, says := "", ""
		for _, f := range r.Findings {
			what, says = what+f.What, says+f.Text
		}
		if what != test.what || !strings.Contains(says, test.says) || r.Choice == nil {
			t.Errorf("%s: %+v", name, r.Findings)
		}
	}
	crowd := func(i int) (int, string, string, int) {
		return 5, fmt.Sprintf("203.0.113.%d", i%40), fmt.Sprintf("GET /item/%d", i), 200
	}
	r := planText(t, log(crowd), plan.Options{Choose: &plan.Target{}, Brief: true})
	if doubts := strings.Join(r.Choice.Doubts, "\n"); !strings.Contains(doubts, "40 clients of 240 stand clearly apart") || !strings.Contains(doubts, "--deny-at-most 16.7%") {
		t.Errorf("no word of the crowd: %s", doubts)
	}
	p, err := plan.Propose(t.Context(), plan.Options{Files: []string{"-"}, Stdin: bytes.NewReader(log(crowd)), Margin: 0.2})
	if err != nil || !slices.ContainsFunc(p.Questions, func(q string) bool { return strings.Contains(q, "pages lets") && strings.Contains(q, "203.0.113.") }) {
		t.Errorf("%v, %q", err, p.Questions)
	}
}

// TestPlainText writes nothing of a log to a terminal, or into a rules file, that is not
// printed as itself: escape sequences, C1 controls, marks that turn text around.
func TestPlainText(t *testing.T) {
	const evil = "x\x1b]52;c;ZXZpbA==\x07\u009b31m\u202e\u2066\u200b"
	var log strings.Builder
	for i := range 3000 {
		user := fmt.Sprint("b", i%40)
		if i%3 == 0 {
			user = evil
		}
		line, err := json.Marshal(map[string]any{"ts": 1766000000 + i, "remote_addr": "192.0.2.1", "user": user, "method": "GET", "uri": "/a", "status": 200, "user_agent": evil})
		if err != nil {
			t.Fatal(err)
		}
		log.Write(append(line, '\n'))
	}
	o := plan.Options{Key: []string{"user"}, Choose: &plan.Target{Share: 0.1}, Limits: []string{"3/m"}, Exempt: []string{evil}}
	for _, exempt := range [][]string{nil, {evil}} {
		o.Exempt = exempt
		r := planText(t, []byte(log.String()), o)
		var text strings.Builder
		if err := r.Text(&text); err != nil || r.Choice == nil {
			t.Fatal(err, r.Findings)
		}
		for what, s := range map[string]string{"report": text.String(), "rules": r.Choice.Rule} {
			if i := strings.IndexFunc(s, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
				t.Errorf("%s has %q", what, s[max(0, i-40):i+10])
			}
		}
	}
}
