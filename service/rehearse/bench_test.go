package rehearse_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"

	"github.com/stint-dev/stint/service/rehearse"
)

const before = `{"rules": [
  {"name": "login", "match": {"method": "POST", "path": "/login"}, "key": ["ip"], "limits": ["5 per minute sliding_log", "every 2s"]},
  {"name": "api", "match": {"path": "/api/**"}, "key": ["header.x-api-key"], "limits": ["5 per minute"],
   "overrides": [{"when": {"header.x-api-key": "partner-*"}, "limits": ["100 per minute"]}]},
  {"name": "site", "key": ["ip"], "limits": ["100/s burst 200"]}]}`

func parse(t testing.TB, text string) *policy.Rules {
	t.Helper()
	r, err := policy.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// BenchmarkRun is a rehearsal of a million requests of 10,000 clients.
func BenchmarkRun(b *testing.B) {
	rules := parse(b, before)
	recorder := rehearse.NewRecorder(rehearse.RecorderOptions{})
	live, err := policy.New(memstore.New(memstore.Options{}), rules, policy.Options{OnDecision: recorder.Decided})
	if err != nil {
		b.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	var result policy.Result
	for range 1_000_000 {
		client := random.IntN(10_000)
		attrs := policy.Map{"method": "GET", "path": fmt.Sprintf("/api/items/%d", random.IntN(1000)), "ip": fmt.Sprintf("198.51.%d.%d", client/256, client%256), "header.x-api-key": fmt.Sprintf("key-%d", client)}
		if random.IntN(10) == 0 {
			attrs["method"], attrs["path"] = "POST", "/login"
		}
		if err := live.Decide(b.Context(), attrs, 1, &result); err != nil {
			b.Fatal(err)
		}
	}
	recording := recorder.Recording(time.Now())
	b.Log(recording.Len())
	for b.Loop() {
		report, err := rehearse.Run(b.Context(), rehearse.Options{Live: live, After: parse(b, before), Recording: recording})
		if err != nil {
			b.Fatal(err)
		}
		b.Log(report.Requests, report.WarmUpRequests, report.Denied, report.RecordedDenied)
	}
}
