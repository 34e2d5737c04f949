package operate_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/policy"

	"github.com/stint-dev/stint/service/operate"
)

// TestWords says of a limit why it denies, also where nothing is used.
func TestWords(t *testing.T) {
	for _, c := range []struct {
		limit     string
		used, of  int64
		cost      int64
		wait      stint.Wait
		says, not string
	}{
		{"10/h", 0, 10, 50, stint.Never, "0 of 10 used, 10 left. As if never used. A request costs 50, which is more than can ever pass at once.", ""},
		{"10/h", 4, 10, 50, stint.Never, "4 of 10 used, 6 left.", "passes in"},
		{"10/h", 0, 10, 1, 0, "As if never used.", "A request"},
		{"10/h", 10, 10, 1, stint.Wait(6 * time.Minute), "The next request passes in 6m0s", ""},
		{"5 in flight", 0, 5, 9, stint.Never, "0 of 5 in flight, 5 left. A request costs 9, which is more", ""},
		{"5 in flight", 5, 5, 1, stint.Wait(time.Second), "5 of 5 in flight, 0 left.", "passes in"},
	} {
		l, err := stint.Parse(c.limit)
		if err != nil {
			t.Fatal(err)
		}
		e := &policy.RuleResult{RuleLimit: &policy.RuleLimit{Limit: l}, Cost: c.cost, Capacity: c.of, Used: c.used, Remaining: c.of - c.used, Denied: c.wait != 0, RetryAfter: c.wait}
		if got := operate.Words(e); !strings.Contains(got, c.says) || c.not != "" && strings.Contains(got, c.not) {
			t.Errorf("%s, cost %d: %s", c.limit, c.cost, got)
		}
	}
}

// TestVerdict: what a store does not say is not known, and no reason to say that a client passes.
func TestVerdict(t *testing.T) {
	rule := func(name string, denied, unknown bool, where ...string) operate.Rule {
		return operate.Rule{Rule: name, Key: "k", Denied: denied, Unknown: unknown, Where: where}
	}
	left := []operate.LeftOut{{Rule: "address", Missing: []string{"ip"}}}
	for _, c := range []struct {
		story operate.Story
		want  string
	}{
		{operate.Story{Rules: []operate.Rule{rule("site", false, false)}}, "Passes now."},
		{operate.Story{Rules: []operate.Rule{rule("site", false, false), {Rule: "api", ReserveOnly: true}}}, "Refused here where rule api holds, since it has a limit in flight, unless the request is reserved (/v1/reserve, STINT.RESERVE). For a reservation: Passes now."},
		{operate.Story{Rules: []operate.Rule{rule("site", false, true)}, LeftOut: left}, "Passes as far as is known. What rule site says is not known: the store does not answer."},
		{operate.Story{Rules: []operate.Rule{rule("login", true, false, "path is /login"), rule("site", false, true)}}, "Denied where rule login matches. What rule site says is not known: the store does not answer."},
		{operate.Story{Rules: []operate.Rule{rule("site", false, true), rule("api", true, false)}}, "Denied now by rule api."},
		{operate.Story{Rules: []operate.Rule{rule("site", false, false)}, LeftOut: left}, "Passes as far as is known. Not given is ip, which rule address looks at."},
	} {
		if got := operate.Verdict(&c.story); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

// TestMergeProblem: that one of several servers refuses its rules is not lost.
func TestMergeProblem(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	fine, held := &operate.Page{At: at, Version: operate.Version{Hash: "new"}}, &operate.Page{At: at.Add(-time.Second), Version: operate.Version{Hash: "old", Problem: "not reloaded"}}
	for _, pages := range [][]*operate.Page{{fine, held}, {held, fine}} {
		if v := operate.Merge(pages, 1, "").Version; v.Hash != "new" || v.Problem != "not reloaded" {
			t.Errorf("%+v", v)
		}
	}
}
