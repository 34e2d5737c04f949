package rulesxds

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/stint-dev/stint/rulesource"
	"github.com/stint-dev/stint/service/rules/rulescopy"
)

// response is a configuration of one limit.
func response(t *testing.T, version string) *discovery.DiscoveryResponse {
	t.Helper()
	return message(version, resource(t, version, entry("k", "", 5)))
}

// quiet is a source that asks nobody.
func quiet() *Source {
	return &Source{done: context.Background(), log: slog.New(slog.DiscardHandler), changed: make(chan struct{})}
}

type ignored struct{}

func (ignored) Begin(*rulesource.Snapshot, bool) error { return nil }
func (ignored) Override(*rulesource.Override) error    { return nil }
func (ignored) Plan(*rulesource.Plan) error            { return nil }

// TestGoneAtOnce: a configuration that was acknowledged is taken, also when the control
// plane is away before anybody has looked. That it is away is said after.
func TestGoneAtOnce(t *testing.T) {
	s := quiet()
	s.take(response(t, "1"))
	first, err := s.Load(t.Context(), rulesource.Version{}, ignored{})
	if err != nil {
		t.Fatal(err)
	}
	s.take(response(t, "2"))
	away := errors.New("away")
	s.set(nil, "", away)
	if err := s.Wait(t.Context(), first.Version); err != nil {
		t.Fatalf("the second configuration is not taken: %v", err)
	}
	second, err := s.Load(t.Context(), first.Version, ignored{})
	if err != nil || second.Version == first.Version {
		t.Fatal(second, err)
	}
	for _, held := range []rulesource.Version{second.Version, {}} { // none: the follower asks whether the trouble is over
		if err := s.Wait(t.Context(), held); !errors.Is(err, away) {
			t.Errorf("%v instead of the trouble", err)
		}
	}
}

// TestClockBack: what the control plane sends last is right, also when the clock of this
// machine has been set back since what it sent before.
func TestClockBack(t *testing.T) {
	s := quiet()
	s.take(response(t, "1"))
	s.held.Version.Epoch += int64(time.Hour) // as of a clock that was ahead
	before := s.held.Version
	s.take(response(t, "2"))
	if after := s.held.Version; !after.Follows(before) {
		t.Errorf("%+v does not follow %+v: a follower refuses it", after, before)
	}
}

// TestNeverAsked sends domains and values that no request can have: they are refused by
// themselves, and the rest is taken.
func TestNeverAsked(t *testing.T) {
	for _, odd := range []string{" x", "x\t", "x ", strings.Repeat("x", 8<<10+1)} {
		var all []*anypb.Any
		for _, domain := range []string{odd, "other"} {
			all = append(all, resource(t, domain, entry("k", odd, 7), entry("k", "good", 7)))
		}
		s := quiet()
		answer := s.take(message("1", all...))
		if reason := answer.GetErrorDetail().GetMessage(); !strings.Contains(reason, "2 parts are refused") {
			t.Errorf("%.20q: refused: %.300s", odd, reason)
		}
		if s.held == nil || strings.Count(string(s.held.Document), "- name:") != 1 {
			t.Errorf("%.20q: the other limit is not held, or more is", odd)
		}
	}
}

// TestKeptForUnread: a domain that is missing beside a resource that cannot be read is kept, and
// the control plane is told so.
func TestKeptForUnread(t *testing.T) {
	s := quiet()
	before := response(t, "1")
	s.take(before)
	answer := s.take(message("2", &anypb.Any{TypeUrl: typeURL, Value: []byte{0xff}}))
	if reason := answer.GetErrorDetail().GetMessage(); !strings.Contains(reason, ": kept, since it may be what cannot be read") || !strings.Contains(reason, "2 parts are refused") {
		t.Errorf("refused: %.300s", reason)
	}
	if s.held == nil || strings.Count(string(s.held.Document), "- name:") == 0 {
		t.Error("the domain is not kept")
	}
}

// TestSentAgain: what is in force and is sent again is acknowledged, and is no new version.
// What was refused is refused again.
func TestSentAgain(t *testing.T) {
	s := quiet()
	s.take(response(t, "1"))
	first := s.held
	again := response(t, "1")
	again.VersionInfo = "2"
	if answer := s.take(again); answer.GetErrorDetail() != nil || answer.GetVersionInfo() != "2" || s.held != first || s.version != "2" {
		t.Errorf("%v, held anew: %t", answer, s.held != first)
	}
	bad := response(t, " x")
	for range 2 {
		if answer := s.take(bad); answer.GetErrorDetail() == nil {
			t.Error("it is not refused")
		}
	}
	if s.take(response(t, "1")); s.held == first || s.held.Refused != nil {
		t.Error("what was in force before the refused one is not taken")
	}
}

// TestMerge: with merge_domains, resources of one domain are taken together. A descriptor that two of
// them have stays as it was, and the rest is taken.
func TestMerge(t *testing.T) {
	s := quiet()
	s.at.merge = true
	for i, step := range []struct{ second, refused, limits string }{
		{"b", "", "5/1d 6/1d 25/1d"},
		{"a", `the descriptor a of domain "d" is at d already`, "5/1d 26/1d"},
		{"c", "", "7/1d 8/1d 27/1d"},
	} {
		n := uint32(5 + i)
		answer := s.take(&discovery.DiscoveryResponse{TypeUrl: typeURL, VersionInfo: step.second, Resources: []*anypb.Any{
			resource(t, "d", entry("a", "", n)), resource(t, "d", entry(step.second, "", n+1), entry("x", "", n+20)),
		}})
		if got := answer.GetErrorDetail().GetMessage(); !strings.Contains(got, step.refused) || (got == "") != (step.refused == "") {
			t.Errorf("%s: refused: %s", step.second, got)
		}
		for limit := range strings.FieldsSeq(step.limits) {
			if s.held == nil || strings.Count(string(s.held.Document), `"`+limit) != 1 || strings.Count(string(s.held.Document), "- name:") != len(strings.Fields(step.limits)) {
				t.Errorf("%s: without %s: %s", step.second, limit, s.held.Document)
			}
		}
	}
}

// TestRestart: what is refused stays as it was, also for a process that starts later.
func TestRestart(t *testing.T) {
	all := entry("a", "", 50, entry("b", "x*", 51), entry("c", "free", 0))
	all.Descriptors[0].ShadowMode, all.Descriptors[1].QuotaMode = true, true
	all.Descriptors = append(all.Descriptors, &ratelimit.RateLimitDescriptor{Key: "u", RateLimit: &ratelimit.RateLimitPolicy{Unlimited: true}},
		&ratelimit.RateLimitDescriptor{Key: "r", RateLimit: &ratelimit.RateLimitPolicy{Name: "n", Unit: ratelimit.RateLimitUnit_MONTH, RequestsPerUnit: 9, Replaces: []*ratelimit.RateLimitReplace{{Name: "m"}}}})
	odd := entry("a", "", 60, all.Descriptors...)
	odd.RateLimit.Unit = 99
	twice := resource(t, "d", entry("a", "", 61))
	for name, refused := range map[string][]*anypb.Any{
		"a unit": {resource(t, "d", odd)}, "bytes": {{TypeUrl: typeURL, Value: []byte{0xff}}}, "a domain twice": {twice, twice},
	} {
		copied, held := rulescopy.NewFile(filepath.Join(t.TempDir(), "copy")), ""
		for process := range 3 {
			s := quiet()
			if process == 0 {
				s.take(message("1", resource(t, "d", all)))
				held = string(s.held.Document)
			} else {
				last, _ := copied.Last()
				s.recall(last.Kept)
			}
			answer := s.take(message("2", refused...))
			if answer.GetErrorDetail() == nil || s.held == nil || string(s.held.Document) != held {
				t.Fatalf("%s: process %d holds\n%s\nwant\n%s", name, process, s.held.Document, held)
			}
			if err := copied.Begin(s.held, true, rulesource.Version{}).Keep(); err != nil {
				t.Fatal(err)
			}
		}
	}
	s, other := quiet(), quiet()
	s.url, other.url = "xds://a?node=x", "xds://a?node=y"
	s.take(response(t, "1"))
	if other.recall(s.held.Kept); other.domains != nil {
		t.Error("it takes what another node was sent")
	}
}
