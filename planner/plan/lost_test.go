package plan_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/planner/plan"
)

// TestLostRequests: 400 requests in a line that cannot be read count as no fewer, and forbid a proposal.
func TestLostRequests(t *testing.T) {
	texts := func(n int, format, end string) string {
		var all []string
		for i := range n {
			at := truthStart.Add(time.Duration(i) * time.Second)
			all = append(all, fmt.Sprintf(format, i%40, at.Format("02/Jan/2006:15:04:05 -0700"), at.Unix(), i%3))
		}
		return strings.Join(all, end)
	}
	const (
		common = `192.0.2.%d - - [%[2]s] "GET / HTTP/1.1" 200 5 "-" "x/%[4]d"`
		object = `{"ip":"192.0.2.%d","ts":%[3]d,"path":"/%[4]d"}`
		pairs  = `ip=192.0.2.%d ts=%[3]d method=GET path=/%[4]d status=200`
		csv    = `/%[4]d,%[3]d,192.0.2.%[1]d`
		behind = "May 17 10:05:03 h nginx: "
	)
	again := "message repeated 400 times: [ "
	for _, test := range []struct{ head, format, line string }{
		{"", object, texts(400, object, "")},
		{"", object, texts(400, object, ",")},
		{"", object, "[" + texts(400, object, ",") + "]"},
		{"", object, `{"records":[` + texts(400, object, ",") + "]}"},
		{"", object, texts(400, object, "\t")},
		{"", object, texts(400, object, "\r")},
		{"", object, texts(400, object, "\x1e")},
		{"", object, texts(400, object, `\n`)},
		{"", object, `{"message":` + fmt.Sprintf("%q", texts(400, object, "\n")) + "}"},
		{"", object, texts(400, `{"ip":"%d","ts":%[3]d}`, ",")}, // shorter than those that are read
		{"", common, texts(400, `192.0.2.%d - - [%[2]s] "-" 400 0`, "")},
		{"", common, texts(400, `192.0.2.%d - - [%[2]s`, "")},
		{"", pairs, texts(400, pairs, " ")},
		{"path,ts,ip\n", csv, texts(400, csv, ",")},
		{"", common, again + texts(1, common, "") + "]"},
		{"", common, "last message repeated 400 times"},
		{"", behind + common, behind + again + texts(1, common, "") + "]"},
		{"", behind + common, "May 17 10:05:03 h last message repeated 400 times"},
		{"", common, "Nov 14 22:20:00 h --- last message repeated 400 times ---"},
		{"", common, "Nov 14 22:20:00 h Last message '" + texts(1, common, "") + "' repeated 400 times, suppressed by syslog-ng on h"},
		{"", common, "Nov 14 22:20:00 h systemd-journald[1]: Suppressed 400 messages from nginx.service"},
		{"", common, "Nov 14 22:20:00 h rsyslogd: imuxsock[pid 1]: 400 messages lost due to rate-limiting (200 allowed within 5 seconds)"},
		{"", common, "Nov 14 22:20:00 h Last output repeated 400 times"}, // metalog
		{"", common, "Nov 14 22:20:00 h 400 duplicate messages suppressed"},
		{"", common, "Nov 14 22:20:00 h MESSAGE REPEATED 400 TIMES: [ x]"},
		{"", object, again + texts(1, object, "") + "]"},
		{"", `{"ip":"192.0.2.%d","ts":%[3]d,"status":20%[4]d}`, `{"ts":1431857103,"msg":"last message repeated 400 times"}`},
		{"", pairs, again + texts(1, pairs, "") + "]"},
		{"path,ts,ip\n", csv, again + texts(1, csv, "") + "]"},
	} {
		for _, end := range []string{"\n", ""} {
			log := test.head + texts(2000, test.format, "\n") + "\n" + test.line + end
			r := planText(t, []byte(log), plan.Options{Choose: &plan.Target{}})
			if n := r.Log.BadRequests; r.Log.Bad != 1 || n < 400 || n > 600 || r.Choice != nil || len(r.Findings) == 0 || r.Findings[0].What != "unreadable" {
				t.Errorf("%.90q: %d bad, %d requests, %v", test.line, r.Log.Bad, n, r.Findings)
			}
			_, unread, err := plan.Requests(t.Context(), plan.Options{Files: []string{"-"}, Stdin: strings.NewReader(log)}, nil, func(int64, [][]byte) error { return nil })
			if err != nil || unread < 399 {
				t.Errorf("%.90q: %d unread, %v", test.line, unread, err)
			}
		}
	}
}
