package envoyrules_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/stint-dev/stint/internal/testkit/golden"
	"github.com/stint-dev/stint/memstore"

	"github.com/stint-dev/stint/service/importers"
	"github.com/stint-dev/stint/service/importers/envoyrules"
	"github.com/stint-dev/stint/service/rls"
	"github.com/stint-dev/stint/service/rules"
)

func convert(text string, o envoyrules.Options) (yaml string, notes importers.Notes, err error) {
	root, err := rules.ReadYAML([]byte(text))
	if err != nil {
		return "", nil, err
	}
	d, err := envoyrules.Decode("config.yaml", root)
	if err != nil {
		return "", nil, err
	}
	out, notes, err := envoyrules.Convert(context.Background(), []*envoyrules.Domain{d}, o)
	if err != nil {
		return "", nil, err
	}
	return string(out), notes, nil
}

// A transcript is configurations, and after ---- the rules and notes, or what
// is wrong. All rules must be good ones.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(err, "no transcripts")
	}
	for _, name := range files {
		golden.Play(t, name, "\n====\n", func(config string) string {
			yaml, notes, err := convert(config, envoyrules.Options{Compatible: strings.HasPrefix(config, "# compatible")})
			got := yaml
			for _, n := range notes {
				got += "note: " + n.String() + "\n"
			}
			if err != nil {
				got = err.Error() + "\n"
			} else if _, err := rules.Decode("rules.yaml", []byte(yaml)); err != nil {
				t.Errorf("%s\nthe rules are bad: %v\n%s", config, err, yaml)
			}
			if (err != nil) != strings.Contains(name, "bad") {
				t.Errorf("%s: %s\n%v", name, config, err)
			}
			return strings.TrimSuffix(got, "\n")
		})
	}
}

// A node is a configuration's tree, to look things up in as envoyproxy/ratelimit
// does.
type node struct {
	key, value string
	count      int // of its limit; 0 for none
	below      []*node
}

func grow(random *rand.Rand, depth int, next *int) (all []*node) {
	seen := map[string]bool{}
	for range 1 + random.IntN(4) {
		n := &node{key: pick(random, "a", "b", "PATH"), value: pick(random, "", "x", "xy", "x*", "*", "xyz*", "y.z", `b\`, "x*z", "*y*", "x*y*z", `*\*`)}
		if seen[n.key+"="+n.value] {
			continue
		}
		seen[n.key+"="+n.value] = true
		if random.IntN(4) > 0 {
			*next++
			n.count = *next
		}
		if depth > 0 && random.IntN(2) == 0 {
			n.below = grow(random, depth-1, next)
		}
		all = append(all, n)
	}
	return all
}

func pick(random *rand.Rand, of ...string) string { return of[random.IntN(len(of))] }

func (n *node) yaml(b *strings.Builder, indent string) {
	fmt.Fprintf(b, "%s- key: %s\n", indent, n.key)
	if n.value != "" {
		fmt.Fprintf(b, "%s  value: '%s'\n", indent, n.value)
	}
	if n.count > 0 {
		fmt.Fprintf(b, "%s  rate_limit: {unit: day, requests_per_unit: %d}\n", indent, n.count)
	}
	if len(n.below) > 0 {
		fmt.Fprintf(b, "%s  descriptors:\n", indent)
		for _, below := range n.below {
			below.yaml(b, indent+"    ")
		}
	}
}

// wild returns what a value with stars takes; nothing without one.
func wild(value string) *regexp.Regexp {
	if !strings.Contains(value, "*") {
		return regexp.MustCompile(`[^\s\S]`)
	}
	return regexp.MustCompile(`^(?s:` + strings.ReplaceAll(regexp.QuoteMeta(value), `\*`, `.*`) + `)$`)
}

// lookUp returns the count of the limit that entries are held to; 0 for none.
// It never goes back to another node of a level once it has gone down from one.
func lookUp(level []*node, entries [][2]string) int {
	for i, e := range entries {
		var next *node
		for _, n := range level {
			if n.key == e[0] && n.value == e[1] && n.value != "" && !strings.Contains(n.value, "*") {
				next = n
			}
		}
		for k := 0; next == nil && k < len(level); k++ {
			if level[k].key == e[0] && wild(level[k].value).MatchString(e[1]) {
				next = level[k]
			}
		}
		for k := 0; next == nil && k < len(level); k++ {
			if level[k].key == e[0] && level[k].value == "" {
				next = level[k]
			}
		}
		switch {
		case next == nil:
			return 0
		case i == len(entries)-1:
			return next.count
		}
		level = next.below
	}
	return 0
}

// TestSameLimits looks up descriptors in configurations as that service does,
// and asks the service here by the imported rules: both must find the same
// limit, and share counters between the same descriptors.
func TestSameLimits(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	found, missed := 0, 0
	for range 400 {
		next := 0
		tree := grow(random, 2, &next)
		var b strings.Builder
		b.WriteString("domain: d\ndescriptors:\n")
		for _, n := range tree {
			n.yaml(&b, "  ")
		}
		yaml, _, err := convert(b.String(), envoyrules.Options{Compatible: true})
		if err != nil {
			t.Fatalf("%s\n%v", b.String(), err)
		}
		s := service(t, yaml)
		used := map[string]int{}
		for range 60 {
			var entries [][2]string
			for range 1 + random.IntN(3) {
				entries = append(entries, [2]string{pick(random, "a", "b", "PATH"), pick(random, "", "x", "xy", "xyzz", "y.z", "yaz", "xaz", "xayz", "xzy", "xz", `b\`, `b\c`)})
			}
			want := lookUp(tree, entries)
			resp, err := s.Decide(t.Context(), request(entries), false)
			if err != nil {
				t.Fatal(err)
			}
			st := resp.GetStatuses()[0]
			if got := int(st.GetCurrentLimit().GetRequestsPerUnit()); got != want {
				t.Fatalf("%s\n%s\n%q: held to %d, want %d", b.String(), yaml, entries, got, want)
			}
			if want == 0 {
				missed++
				continue
			}
			found++
			counter := fmt.Sprintf("%d %q", want, entries)
			used[counter]++
			if left := max(want-used[counter], 0); int(st.GetLimitRemaining()) != left {
				t.Fatalf("%s\n%q: %d left, want %d", b.String(), entries, st.GetLimitRemaining(), left)
			}
		}
	}
	if found < 1000 || missed < 1000 {
		t.Errorf("%d found, %d missed: the property sees one side only", found, missed)
	}
}

// Under compatible rules what is denied is counted, under the limits that do
// not deny too.
func TestCompatibleCountsDenied(t *testing.T) {
	const config = "domain: d\ndescriptors:\n  - {key: a, rate_limit: {unit: day, requests_per_unit: 1}}\n  - {key: b, rate_limit: {unit: day, requests_per_unit: 9}}\n"
	for compatible, want := range map[bool]uint32{true: 6, false: 8} {
		yaml, _, err := convert(config, envoyrules.Options{Compatible: compatible})
		if err != nil {
			t.Fatal(err)
		}
		s := service(t, yaml)
		var left uint32
		for range 3 {
			req := request([][2]string{{"a", "x"}})
			req.Descriptors = append(req.Descriptors, request([][2]string{{"b", "y"}}).Descriptors...)
			resp, err := s.Decide(t.Context(), req, false)
			if err != nil {
				t.Fatal(err)
			}
			left = resp.GetStatuses()[1].GetLimitRemaining()
		}
		if left != want {
			t.Errorf("compatible %v: %d left after one that passed and two that did not, want %d", compatible, left, want)
		}
	}
}

func request(entries [][2]string) *pb.RateLimitRequest {
	d := &core.RateLimitDescriptor{}
	for _, e := range entries {
		d.Entries = append(d.Entries, &core.RateLimitDescriptor_Entry{Key: e[0], Value: e[1]})
	}
	return &pb.RateLimitRequest{Domain: "d", Descriptors: []*core.RateLimitDescriptor{d}}
}

// service decides by rules at one moment: at no edge of a window.
func service(t *testing.T, yaml string) *rls.Service {
	t.Helper()
	return serviceAt(t, yaml, func() int64 { return 1e18 })
}

func serviceAt(t *testing.T, yaml string, now func() int64) *rls.Service {
	t.Helper()
	return serviceIn(t, yaml, memstore.New(memstore.Options{Now: now}))
}
