package plan_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/httplimit"

	"github.com/stint-dev/stint/cmd/internal/planner/plan"
)

func proposed(t *testing.T, log []byte, o plan.Options) *plan.Proposal {
	t.Helper()
	o.Files, o.Stdin, o.Margin = []string{"-"}, strings.NewReader(string(log)), 0.2
	p, err := plan.Propose(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A rules file is held to what a single limit is: its clients are addresses,
// whatever their routes.
func TestProposeGate(t *testing.T) {
	n := 0
	on := func(line string) string { // a route after the other
		n++
		return strings.Replace(line, "GET / ", "GET "+[]string{"/", "/api/x", "/search", "/img/a.png"}[n%4]+" ", 1)
	}
	for _, test := range []struct {
		name string
		line func(at time.Time, client string) string
		stop string
	}{
		{"in order", combined, ""},
		{"behind proxies", func(at time.Time, c string) string {
			return combined(at, "10.0.0."+strings.TrimPrefix(c, "192.0.2.")) + fmt.Sprintf(" %q", c)
		}, "proxy"},
		{"one client", func(at time.Time, _ string) string { return combined(at, "192.0.2.7") }, "one_client"},
		{"no address", func(at time.Time, c string) string {
			return fmt.Sprintf(`{"ip":"user/%s","path":"/","time":%q}`, c, at.Format(time.RFC3339Nano))
		}, "no_address"},
		{"a request's own number", func(at time.Time, _ string) string {
			return fmt.Sprintf(`{"ip":"h%d","path":"/","time":%q}`, at.UnixNano(), at.Format(time.RFC3339Nano))
		}, "each_once"},
	} {
		log := plain(4000, 50, func(at time.Time, c string) string { return on(test.line(at, c)) })
		p := proposed(t, log, plan.Options{})
		if test.stop == "" {
			if p.Refused() || len(p.Findings) > 0 || p.Log.Clients != 50 {
				t.Errorf("%s: %d clients, %+v", test.name, p.Log.Clients, p.Findings)
			}
			continue
		}
		if !p.Refused() || p.Findings[0].What != test.stop || strings.Contains(p.Findings[0].Text, "route") {
			t.Errorf("%s: %+v\n%s; want %s", test.name, p.Findings, p.File, test.stop)
		}
		if test.stop == "proxy" {
			o := plan.Options{Client: httplimit.ClientIP{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}}
			if p := proposed(t, log, o); p.Refused() || p.Log.Clients != 50 {
				t.Errorf("%s, trusted: %d clients, %+v", test.name, p.Log.Clients, p.Findings)
			}
		}
	}
}

// Who is refused again and again at a login of too few clients for a limit is
// named all the same, and the file does not say that a rule denies it.
func TestProposeNames(t *testing.T) {
	log := string(plain(2000, 50, combined))
	at := time.Date(2024, 3, 5, 13, 0, 0, 0, time.UTC)
	for range 500 {
		at = at.Add(time.Second)
		log += "198.51.100.7 - - [" + at.Format("02/Jan/2006:15:04:05 -0700") + `] "POST /login HTTP/1.1" 401 5 "-" "guesser/1"` + "\n"
	}
	p := proposed(t, []byte(log), plan.Options{})
	flat := strings.Join(strings.Fields(strings.ReplaceAll(p.File, "#", "")), " ")
	if !strings.Contains(flat, "too little to choose from: no rule holds these stands apart, and no rule denies it: 198.51.100.7, 500 requests") {
		t.Errorf("%s", p.File)
	}
	var text strings.Builder
	if err := p.Text(&text, "stint.yaml"); err != nil || !strings.Contains(text.String(), "1 that no rule denies") {
		t.Errorf("%v\n%s", err, &text)
	}
}

// A proposal that is interrupted says so, and there is none.
func TestProposeInterrupted(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	_, err := plan.Propose(ctx, plan.Options{Files: []string{"-"}, Stdin: &endless{stop: stop}})
	if err == nil || !strings.Contains(err.Error(), "none is written") {
		t.Errorf("%v", err)
	}
}
