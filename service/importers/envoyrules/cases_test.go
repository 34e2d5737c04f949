package envoyrules_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/stint-dev/stint/service/importers/envoyrules"
)

// shop is a configuration with what the cases of docs/ENVOY.md are about.
const shop = `
domain: shop
descriptors:
  - {key: user, rate_limit: {unit: day, requests_per_unit: 20}}
  - {key: user, value: ada, rate_limit: {unit: day, requests_per_unit: 30}}
  - {key: user, value: root}
  - {key: plan, rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: file, value: "docs/*", share_threshold: true, rate_limit: {unit: day, requests_per_unit: 3}}
  - {key: route, value: "/api/*/pay*/done", rate_limit: {unit: day, requests_per_unit: 4}}
  - {key: route, value: "/v*/all/*", share_threshold: true, rate_limit: {unit: day, requests_per_unit: 2}}
  - {key: banned, rate_limit: {unit: day, requests_per_unit: 0}}
  - {key: seen, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
  - key: team
    descriptors:
      - {key: free, rate_limit: {unlimited: true}}
`

// question asks of descriptors, each key=value, commas between entries.
func question(domain string, hits uint32, descriptors ...string) *pb.RateLimitRequest {
	r := &pb.RateLimitRequest{Domain: domain, HitsAddend: hits}
	for _, text := range descriptors {
		d := &core.RateLimitDescriptor{}
		for entry := range strings.SplitSeq(text, ",") {
			key, value, _ := strings.Cut(entry, "=")
			d.Entries = append(d.Entries, &core.RateLimitDescriptor_Entry{Key: key, Value: value})
		}
		r.Descriptors = append(r.Descriptors, d)
	}
	return r
}

// said is the statuses in short: ok or over, the limit and what remains of it.
func said(r *pb.RateLimitResponse) string {
	var all []string
	for _, s := range r.GetStatuses() {
		word := "ok"
		if s.GetCode() == pb.RateLimitResponse_OVER_LIMIT {
			word = "over"
		}
		switch l := s.GetCurrentLimit(); {
		case l != nil:
			word += fmt.Sprintf(" %d/%d", s.GetLimitRemaining(), l.GetRequestsPerUnit())
		case s.GetLimitRemaining() == math.MaxUint32:
			word += " unlimited"
		}
		all = append(all, word)
	}
	return strings.Join(all, ", ")
}

// TestImportedCases asks by imported rules what the table of docs/ENVOY.md is about.
// What is expected is what that service answers, but where plain rules, which
// are buckets of which a denial takes nothing, say so.
func TestImportedCases(t *testing.T) {
	cases := []struct {
		what  string
		ask   *pb.RateLimitRequest
		n     int // times
		want  string
		plain string // under plain rules, where they differ
	}{
		{"another domain", question("other", 1, "user=x"), 1, "ok", ""},
		{"no limit for these keys", question("shop", 1, "user=x,plan=y"), 1, "ok", ""},
		{"a value without a limit", question("shop", 1, "user=root"), 50, "ok", ""},
		{"statuses in order", question("shop", 1, "user=bob", "nobody=x", "user=ada"), 1, "ok 19/20, ok, ok 29/30", ""},
		{"the last that passes", question("shop", 1, "user=tim"), 20, "ok 0/20", ""},
		{"one more", question("shop", 1, "user=tim"), 1, "over 0/20", ""},
		{"25 of 20 at once", question("shop", 25, "user=kim"), 1, "over 0/20", "over 20/20"},
		{"after that", question("shop", 1, "user=kim"), 1, "over 0/20", "ok 19/20"},
		{"what does not deny, beside what denies", question("shop", 1, "plan=x", "user=sue"), 6, "over 0/5, ok 14/20", "over 0/5, ok 15/20"},
		{"a star at the end, shared", question("shop", 2, "file=docs/a"), 1, "ok 1/3", ""},
		{"another value of it", question("shop", 1, "file=docs/b/c"), 1, "ok 0/3", ""},
		{"and another", question("shop", 1, "file=docs/"), 1, "over 0/3", ""},
		{"stars in the middle", question("shop", 4, "route=/api/7/pay/x/done"), 1, "ok 0/4", ""},
		{"more", question("shop", 1, "route=/api/7/pay/x/done"), 1, "over 0/4", ""},
		{"another value of them", question("shop", 1, "route=/api//pay/done"), 1, "ok 3/4", ""},
		{"what they do not take", question("shop", 1, "route=/api/7/pay/done/"), 9, "ok", ""},
		{"stars in the middle, shared", question("shop", 2, "route=/v1/all/x"), 1, "ok 0/2", ""},
		{"another value of those", question("shop", 1, "route=/v2/all/y"), 1, "over 0/2", ""},
		{"0 requests", question("shop", 1, "banned=x"), 1, "over 0/1", "over"},
		{"0 requests, beside a limit", question("shop", 1, "banned=y", "plan=z"), 3, "over 0/1, ok 2/5", "over, ok 5/5"},
		{"that limit then", question("shop", 1, "plan=z"), 1, "ok 1/5", "ok 4/5"},
		{"in shadow", question("shop", 1, "seen=x"), 3, "ok", ""},
		{"unlimited, below another key", question("shop", 1000, "team=a,free=b"), 9, "ok unlimited", ""},
	}
	for _, compatible := range []bool{true, false} {
		yaml, _, err := convert(shop, envoyrules.Options{Compatible: compatible})
		if err != nil {
			t.Fatal(err)
		}
		s := service(t, yaml)
		for _, c := range cases {
			want := c.want
			if !compatible && c.plain != "" {
				want = c.plain
			}
			var last *pb.RateLimitResponse
			for range c.n {
				if last, err = s.Decide(t.Context(), c.ask, false); err != nil {
					t.Fatal(err)
				}
			}
			if got := said(last); got != want {
				t.Errorf("compatible %v, %s: %s, want %s", compatible, c.what, got, want)
			}
		}
	}
}

// TestQuotaCases asks of quotas as envoyproxy/ratelimit answers ("OVER_LIMIT iff at least
// one rate limit descriptor is over the limit or all quota descriptors are"), by what AI
// Gateway writes of a QuotaPolicy, and in the order of its own test: a request, its 20
// tokens when its stream is done, and a request that is denied.
func TestQuotaCases(t *testing.T) {
	const file = `
domain: ai-gateway-quota
descriptors:
  - key: backend_name
    value: default/one
    descriptors:
      - {key: model_name_override, value: small, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 10}}
      - key: model_name_override
        value: large
        descriptors:
          - key: rule-0-x-tier|gold-match-0
            value: rule-0-x-tier|gold-match-0
            descriptors:
              - {key: rule-0-x-user-match-1, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 2}}
          - {key: rule-1-match--1, value: rule-1-match--1, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 3}}
          - {key: rule-2, value: rule-2, quota_mode: true, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
      - {key: model_name_override, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
  - key: backend_name
    value: default/two
    descriptors:
      - {key: model_name_override, value: small, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: plain, rate_limit: {unit: hour, requests_per_unit: 1}}
`
	const one, two = "backend_name=default/one,model_name_override=", "backend_name=default/two,model_name_override="
	const gold = one + "large,rule-0-x-tier|gold-match-0=rule-0-x-tier|gold-match-0,rule-0-x-user-match-1="
	const rest = one + "large,rule-1-match--1=rule-1-match--1"
	yaml, _, err := convert(file, envoyrules.Options{Compatible: true})
	if err != nil {
		t.Fatal(err)
	}
	s := service(t, yaml)
	for _, c := range []struct {
		what   string
		ask    *pb.RateLimitRequest
		passes bool
		want   string
	}{
		{"a request", question("ai-gateway-quota", 1, one+"small"), true, "ok 9/10"},
		{"its stream is done", question("ai-gateway-quota", 20, one+"small"), false, "over 0/10"},
		{"the next", question("ai-gateway-quota", 1, one+"small"), false, "over 0/10"},
		{"another backend has room", question("ai-gateway-quota", 1, one+"small", two+"small"), true, "over 0/10, ok 0/1"},
		{"now none has", question("ai-gateway-quota", 1, one+"small", two+"small"), false, "over 0/10, over 0/1"},
		{"any other model", question("ai-gateway-quota", 1, one+"other"), true, "ok 0/1"},
		{"each has its own", question("ai-gateway-quota", 1, one+"third"), true, "ok 0/1"},
		{"once more", question("ai-gateway-quota", 1, one+"other"), false, "over 0/1"},
		{"by header", question("ai-gateway-quota", 2, gold+"anna"), true, "ok 0/2"},
		{"of which each value has its own", question("ai-gateway-quota", 1, gold+"bert"), true, "ok 1/2"},
		{"over, with room in the default bucket", question("ai-gateway-quota", 2, gold+"anna", rest), true, "over 0/2, ok 1/3"},
		{"over in both", question("ai-gateway-quota", 2, gold+"anna", rest), false, "over 0/2, over 0/3"},
		{"in shadow", question("ai-gateway-quota", 9, one+"large,rule-2=rule-2"), true, "ok"},
		{"over in both, beside one in shadow", question("ai-gateway-quota", 9, gold+"anna", rest, one+"large,rule-2=rule-2"), true, "over 0/2, over 0/3, ok"},
		{"in shadow, beside a limit", question("ai-gateway-quota", 2, "plain=y", one+"large,rule-2=rule-2"), false, "over 0/1, ok"},
		{"beside a limit", question("ai-gateway-quota", 1, "plain=x", gold+"bert"), true, "ok 0/1, ok 0/2"},
		{"that denies, whatever quotas say", question("ai-gateway-quota", 1, "plain=x", gold+"cleo"), false, "over 0/1, ok 1/2"},
		{"which count it", question("ai-gateway-quota", 1, gold+"cleo"), true, "ok 0/2"},
		{"nobody's", question("ai-gateway-quota", 1, "backend_name=default/three,model_name_override=small"), true, "ok"},
	} {
		answer, err := s.Decide(t.Context(), c.ask, false)
		if err != nil {
			t.Fatal(err)
		}
		if got, passes := said(answer), answer.GetOverallCode() == pb.RateLimitResponse_OK; got != c.want || passes != c.passes {
			t.Errorf("%s: %s, passes %v, want %s, %v", c.what, got, passes, c.want, c.passes)
		}
	}
}

// TestIntegrationCases asks what the service's own integration tests ask of a limit a
// minute and one an hour, by clock: 25 requests, one by one, 15 under both limits, and
// two with two seconds between them.
func TestIntegrationCases(t *testing.T) {
	const file = `
domain: another
descriptors:
  - {key: key2, rate_limit: {unit: minute, requests_per_unit: 20}}
  - {key: key3, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: key4, rate_limit: {unit: day, requests_per_unit: 20}}
`
	for _, compatible := range []bool{true, false} {
		yaml, _, err := convert(file, envoyrules.Options{Compatible: compatible})
		if err != nil {
			t.Fatal(err)
		}
		now := int64(1e18)
		s := serviceAt(t, yaml, func() int64 { return now })
		ask := func(descriptors ...string) *pb.RateLimitResponse {
			answer, err := s.Decide(t.Context(), question("another", 1, descriptors...), false)
			if err != nil {
				t.Fatal(err)
			}
			return answer
		}
		for i := range 25 {
			want := "over 0/20"
			if i < 20 {
				want = fmt.Sprintf("ok %d/20", 19-i)
			}
			if got := said(ask("key2=a")); got != want {
				t.Errorf("compatible %v, request %d: %s, want %s", compatible, i, got, want)
			}
		}
		for i := range 15 {
			want := fmt.Sprintf("ok %d/20, ok %d/10", 19-i, 9-i)
			switch {
			case i >= 10 && compatible:
				want = fmt.Sprintf("ok %d/20, over 0/10", 19-i)
			case i >= 10: // as theirs with STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT
				want = "ok 10/20, over 0/10"
			}
			if got := said(ask("key2=b", "key3=b")); got != want {
				t.Errorf("compatible %v, request %d under two: %s, want %s", compatible, i, got, want)
			}
		}
		first := ask("key4=a").GetStatuses()[0].GetDurationUntilReset().AsDuration()
		now += 2e9
		second := ask("key4=a").GetStatuses()[0].GetDurationUntilReset().AsDuration()
		if falls := second == first-2*time.Second; falls != compatible { // a bucket is full again the later, the more is taken
			t.Errorf("compatible %v: reset in %v, 2 s later in %v", compatible, first, second)
		}
	}
}
