package plan_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stint-dev/stint/httplimit"

	"github.com/stint-dev/stint/planner/plan"
)

// Whose requests the lines of a log are, and which lines are none, by how servers
// write them.
func TestWhoseRequests(t *testing.T) {
	const (
		access  = `{"level":"info","ts":%d,"logger":"http.log.access","request":{"remote_ip":"203.0.113.%d","method":"GET","uri":"/"},"status":502}`
		failed  = `{"level":"error","ts":%d,"logger":"http.log.error","request":{"remote_ip":"203.0.113.%d","method":"GET","uri":"/"},"status":502}`
		started = `{"level":"info","ts":%d,"logger":"tls","msg":"storage clean-up %d"}`
		traefik = `{"ClientHost":"203.0.113.%d","RequestMethod":"GET","RequestPath":"/","DownstreamStatus":200,"time":"2024-03-01T10:00:00Z"}`
		noted   = `{"level":"error","msg":"no certificate","time":"2024-03-01T10:00:00Z"}`
		usual   = `%s - - [01/Mar/2024:10:00:00 +0000] "GET / HTTP/1.1" 200 12 "-" "curl/8"%s`
		columns = "#Fields: date time c-ip cs-uri-stem X-Forwarded-For"
		row     = "2024-03-01 00:00:01 10.0.0.9 /a "
	)
	var caddy, behind, backends []string
	for i := range 8 {
		caddy = append(caddy, fmt.Sprintf(access, i+1, i%4), fmt.Sprintf(failed, i+1, i%4), fmt.Sprintf(started, i+1, i))
		behind = append(behind, fmt.Sprintf(usual, fmt.Sprintf("203.0.113.%d", i%4), ""))
		backends = append(backends, fmt.Sprintf(usual, fmt.Sprintf("10.1.0.%d", i%4), fmt.Sprintf(` "10.2.0.%d:8080"`, i%5)))
	}
	behind[3] = fmt.Sprintf(usual, "203.0.113.3, 198.51.100.9", "")
	behind[7] = fmt.Sprintf(usual, "-", "")
	for _, test := range []struct {
		name, trusted string
		lines         []string
		clients       string
		aside         int64
	}{
		{"Caddy, with errors and notes", "", caddy, "203.0.113.0 2, 203.0.113.1 2, 203.0.113.2 2, 203.0.113.3 2", 16},
		{"Traefik, with notes", "", []string{fmt.Sprintf(traefik, 1), noted, fmt.Sprintf(traefik, 2)}, "203.0.113.1 1, 203.0.113.2 1", 1},
		{"IIS and CloudFront, whose lists are encoded", "10.0.0.0/8", []string{columns, row + "203.0.113.7,+10.0.0.2", row + "203.0.113.8,%2010.0.0.2", row + "203.0.113.9"}, "203.0.113.7 1, 203.0.113.8 1, 203.0.113.9 1", 0},
		{"one address, several, or none first", "198.51.100.0/24", behind, "(none) 1, 203.0.113.0 2, 203.0.113.1 2, 203.0.113.2 2, 203.0.113.3 1", 0},
		{"who answered, behind the agent", "", backends, "10.1.0.0 2, 10.1.0.1 2, 10.1.0.2 2, 10.1.0.3 2", 0},
		{"who answered is no list of whom a proxy asks for", "10.0.0.0/8", backends, "10.1.0.0 2, 10.1.0.1 2, 10.1.0.2 2, 10.1.0.3 2", 0},
	} {
		var o plan.Options
		if test.trusted != "" {
			o.Client = httplimit.ClientIP{Trusted: []netip.Prefix{netip.MustParsePrefix(test.trusted)}}
		}
		r := planText(t, []byte(strings.Join(test.lines, "\n")+"\n"), o)
		counts := make(map[string]int64)
		for _, h := range r.Traffic.Heaviest {
			counts[h.Key] = h.Requests
		}
		var all []string
		for _, key := range slices.Sorted(maps.Keys(counts)) {
			all = append(all, fmt.Sprint(key, " ", counts[key]))
		}
		if got := strings.Join(all, ", "); got != test.clients || r.Log.Aside != test.aside || r.Log.Bad != 0 {
			t.Errorf("%s: %s, and %d lines aside, %d bad; want %s, and %d aside", test.name, got, r.Log.Aside, r.Log.Bad, test.clients, test.aside)
		}
		for _, f := range r.Findings {
			if f.What == "proxy" {
				t.Errorf("%s: %s", test.name, f.Text)
			}
		}
	}
}

// Where no field is known for the address, the advice names one that has addresses,
// and the most different ones.
func TestAdviceOfAddress(t *testing.T) {
	var b strings.Builder
	for i := range 40 {
		fmt.Fprintf(&b, `{"ts":%d,"host":"www.example.com","orig":"203.0.113.%d","resp":"198.51.100.3","method":"GET"}`+"\n", 1300475168+i, i)
	}
	r := planText(t, []byte(b.String()), plan.Options{})
	if len(r.Findings) == 0 || !strings.Contains(r.Findings[0].Text, "--field ip=orig") {
		t.Errorf("%+v", r.Findings)
	}
}
