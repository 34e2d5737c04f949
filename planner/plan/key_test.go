package plan_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stint-dev/stint/planner/plan"
)

// Requests without the key are one client, also if the log begins with one of
// them; IPv6 addresses of one network are one, and an IPv4 address is one
// however it is written.
func TestKeys(t *testing.T) {
	for _, test := range []struct {
		name string
		key  []string
		want map[string]int64 // of 1 in an hour, how much is denied to whom
		log  []string
	}{
		{"missing first", []string{"ip"}, map[string]int64{"(none)": 2, "192.0.2.1": 1}, []string{",/", "192.0.2.1,/", "-,/", ",/", "192.0.2.1,/"}},
		{"missing of several", []string{"ip", "path"}, map[string]int64{"(none) /": 1, "(none) (none)": 1}, []string{",/", "192.0.2.1,/", ",", ",", ",/"}},
		{"networks", nil, map[string]int64{"2001:db8:1:2::/64": 2, "192.0.2.1": 1}, []string{
			"2001:db8:1:2::1,/", "2001:db8:1:3::1,/", "::ffff:192.0.2.1,/", "2001:db8:1:2:ffff::9,/", "192.0.2.1,/", "2001:DB8:1:2::1,/",
		}},
	} {
		log := "time,ip,path\n"
		for i, row := range test.log {
			log += time.Unix(1e9+int64(i), 0).UTC().Format(time.RFC3339) + "," + row + "\n"
		}
		r := planText(t, []byte(log), plan.Options{Key: test.key, Limits: []string{"1/h"}}).Results[0]
		if len(r.Top) != len(test.want) {
			t.Errorf("%s: denied to %+v", test.name, r.Top)
		}
		for _, d := range r.Top {
			if d.Denied != test.want[d.Key] {
				t.Errorf("%s: %q was denied %d, want %d", test.name, d.Key, d.Denied, test.want[d.Key])
			}
		}
	}
}

// The command that looks at a choice again reads the log as it was read, and
// prints moments in the zone of the report.
func TestChoiceIsRepeatable(t *testing.T) {
	zone, err := time.LoadLocation("Europe/Paris")
	if err != nil {
		t.Fatal(err)
	}
	log := "when,who,n\n2024-03-31T01:59:00,a,5\n2024-03-31T03:00:00,a,7\n2024-03-31T03:00:00,b,7\n"
	for i := range 1000 { // or there would be too little to choose from
		log += fmt.Sprintf("2024-03-31T%02d:%02d:00,c%d,7\n", 4+i/60, i%60, i%20)
	}
	r := planText(t, []byte(log), plan.Options{
		Zone: zone, Fields: map[string]string{"time": "when", "ip": "who"}, Cost: "n", Match: []string{"n=7"},
		Limits: []string{"6/h"}, Choose: &plan.Target{},
	})
	const want = "stint plan --limit '1/1m burst 8' --match n=7 --cost n --field ip=who --field time=when --tz Europe/Paris -"
	if r.Choice.Check != want {
		t.Errorf("%s\nwant %s", r.Choice.Check, want)
	}
	if when := r.Results[0].When(); when != "Sun 31 Mar 2024 03:00:00 CEST" || *r.Results[0].FirstDenial != "2024-03-31T03:00:00+02:00" {
		t.Errorf("first denied: %s, %s", when, *r.Results[0].FirstDenial)
	}
}
