package rulesxds

import (
	"fmt"
	"strings"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/service/rules"
)

// resource is a domain of descriptors.
func resource(t testing.TB, domain string, all ...*ratelimit.RateLimitDescriptor) *anypb.Any {
	t.Helper()
	one, err := anypb.New(&ratelimit.RateLimitConfig{Name: domain, Domain: domain, Descriptors: all})
	if err != nil {
		t.Fatal(err)
	}
	return one
}

func entry(key, value string, count uint32, below ...*ratelimit.RateLimitDescriptor) *ratelimit.RateLimitDescriptor {
	return &ratelimit.RateLimitDescriptor{Key: key, Value: value, Descriptors: below,
		RateLimit: &ratelimit.RateLimitPolicy{Unit: ratelimit.RateLimitUnit_DAY, RequestsPerUnit: count}}
}

// message is a configuration of some domains.
func message(version string, all ...*anypb.Any) *discovery.DiscoveryResponse {
	return &discovery.DiscoveryResponse{TypeUrl: typeURL, VersionInfo: version, Resources: all}
}

// stars is a domain of values with stars, of which each may take what those before it take.
func stars(t *testing.T, domain string, count uint32, n int) *anypb.Any {
	t.Helper()
	all := make([]*ratelimit.RateLimitDescriptor, n)
	for i := range all {
		all[i] = entry("user", fmt.Sprint("tenant*", i, "*"), count)
	}
	return resource(t, domain, all...)
}

// TestManyBeside is a domain of users with limits of their own, beside a default with limits
// of as many paths: the users are said once, for all paths. What was written can be read.
func TestManyBeside(t *testing.T) {
	const n = 2100 // squared, more than a file may have values
	rest := entry("user", "", 72)
	var all []*ratelimit.RateLimitDescriptor
	for i := range n {
		all = append(all, entry("user", fmt.Sprint("user ", i), 71))
		rest.Descriptors = append(rest.Descriptors, entry("path", fmt.Sprint("/", i), 73))
	}
	s := quiet()
	if answer := s.take(message("1", resource(t, "many", append(all, rest)...))); answer.GetErrorDetail() != nil {
		t.Fatal(answer.GetErrorDetail().GetMessage())
	}
	if size := len(s.held.Document); size > 2*n*400 {
		t.Errorf("%d bytes", size)
	}
	read, err := rules.Decode(s.held.Name, s.held.Document)
	if err != nil {
		t.Fatal(err)
	}
	if changes := read.Rules.Compare(s.file.Rules); len(changes) > 0 || len(read.Rules.Names()) != 2*n+1 {
		t.Errorf("%d rules, %v", len(read.Rules.Names()), changes)
	}
	for _, from := range []*policy.Rules{s.file.Rules, read.Rules} {
		p, err := policy.New(memstore.New(memstore.Options{}), from, policy.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for user, want := range map[string]int{"user 2099": 0, "user 2100": 1} {
			var r policy.Result
			err := p.Decide(t.Context(), policy.Map{"domain": "many", "descriptor.keys": "user,path", "user": user, "descriptor.2": "/7"}, 1, &r)
			if err != nil || len(r.Rules) != want {
				t.Errorf("%s has %d limits: %v", user, len(r.Rules), err)
			}
		}
	}
}

// TestTooLarge has domains that no rules file can hold all together, and then
// some that it cannot hold each for itself: those keep what they had, and the rest changes.
func TestTooLarge(t *testing.T) {
	s := quiet()
	var many []*anypb.Any // with "large" and "small", all that a file can hold
	for i := range 7 {
		many = append(many, stars(t, fmt.Sprint("stars", i), 70, 500))
	}
	send := func(version string, resources ...*anypb.Any) (refused, document string) {
		answer := s.take(message(version, append(resources, many...)...))
		return answer.GetErrorDetail().GetMessage(), string(s.held.Document)
	}
	if refused, document := send("1", stars(t, "large", 71, 100), stars(t, "small", 72, 2)); refused != "" || !strings.Contains(document, "71/1d") {
		t.Fatalf("100 values: %s", refused)
	}
	refused, document := send("2", stars(t, "large", 71, 100), stars(t, "more", 76, 510), stars(t, "small", 77, 2))
	if !strings.Contains(refused, `domain "more", of 510 descriptors: all domains together, of which "more" is the largest: `) || !strings.Contains(document, "71/1d") || !strings.Contains(document, "77/1d") {
		t.Errorf("domains that are too large together: %s", refused)
	}
	refused, document = send("3", stars(t, "large", 73, 1600), stars(t, "new", 74, 3000), stars(t, "small", 75, 2))
	for _, want := range []string{`domain "large", of 1600 descriptors: `, `domain "new", of 3000 descriptors: `, "more than 131072 names or 8388608 bytes in this domain"} {
		if !strings.Contains(refused, want) {
			t.Errorf("refused without %s: %s", want, refused)
		}
	}
	for text, want := range map[string]bool{"71/1d": true, "73/1d": false, "74/1d": false, "75/1d": true} {
		if strings.Contains(document, text) != want {
			t.Errorf("%s is in force: %v", text, !want)
		}
	}
}

// TestRoomBesideStars has a domain of values with stars that would leave another no room to grow, and
// one of as many that no value meets two of.
func TestRoomBesideStars(t *testing.T) {
	s := quiet()
	routes, apart := make([]*ratelimit.RateLimitDescriptor, 5000), make([]*ratelimit.RateLimitDescriptor, 1400)
	for i := range routes {
		routes[i] = entry("route", fmt.Sprint("/", i), 72)
	}
	for i := range apart {
		apart[i] = entry("host", fmt.Sprintf("*.%d.example", i), 73)
	}
	answer := s.take(message("1", stars(t, "stars", 71, 1400), resource(t, "apart", apart...), resource(t, "plain", routes...)))
	if refused := answer.GetErrorDetail().GetMessage(); !strings.Contains(refused, `domain "stars", of 1400 descriptors: stars: where one value can meet`) || strings.Contains(refused, "plain") || strings.Contains(refused, "apart") {
		t.Errorf("refused: %s", refused)
	}
	if n := strings.Count(string(s.held.Document), "72/1d"); n != 5000 {
		t.Errorf("%d routes are in force", n)
	}
}
