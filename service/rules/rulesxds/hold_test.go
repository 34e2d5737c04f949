package rulesxds

import (
	"fmt"
	"strings"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// values is a domain of users with limits of their own, beside a default with paths.
func values(t *testing.T, domain string, count uint32, users, paths int) *anypb.Any {
	t.Helper()
	one := func(key, value string) *ratelimit.RateLimitDescriptor {
		return &ratelimit.RateLimitDescriptor{Key: key, Value: value, RateLimit: &ratelimit.RateLimitPolicy{Unit: ratelimit.RateLimitUnit_DAY, RequestsPerUnit: count}}
	}
	config := &ratelimit.RateLimitConfig{Name: domain, Domain: domain}
	for i := range users {
		config.Descriptors = append(config.Descriptors, one("user", fmt.Sprint("urn:tenant:acme:user:", i)))
	}
	rest := one("user", "")
	for i := range paths {
		rest.Descriptors = append(rest.Descriptors, one("path", fmt.Sprint("/", i)))
	}
	config.Descriptors = append(config.Descriptors, rest)
	resource, err := anypb.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return resource
}

// TestTooLarge has domains that no rules file can hold all together, and then
// some that it cannot hold each for itself: those keep what they had, and the rest changes.
func TestTooLarge(t *testing.T) {
	s := quiet()
	send := func(version string, resources ...*anypb.Any) (refused, document string) {
		answer := s.take(&discovery.DiscoveryResponse{TypeUrl: typeURL, VersionInfo: version, Resources: resources})
		return answer.GetErrorDetail().GetMessage(), string(s.held.Document)
	}
	if refused, document := send("1", values(t, "large", 71, 800, 300), values(t, "small", 72, 1, 1)); refused != "" || !strings.Contains(document, "71/1d") {
		t.Fatalf("800 values and a default with 300 paths: %s", refused)
	}
	refused, document := send("2", values(t, "large", 71, 800, 300), values(t, "more", 76, 900, 900), values(t, "small", 77, 1, 1))
	if !strings.Contains(refused, `domain "more", of 1801 descriptors: all domains together: `) || !strings.Contains(document, "71/1d") || !strings.Contains(document, "77/1d") {
		t.Errorf("domains that are too large together: %s", refused)
	}
	refused, document = send("3", values(t, "large", 73, 1200, 1200), values(t, "new", 74, 1200, 1200), values(t, "small", 75, 1, 1))
	for _, want := range []string{`domain "large", of 2401 descriptors: `, `domain "new", of 2401 descriptors: `, "at most"} {
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
