package rulesxds

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	ratelimit "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/stint-dev/stint/policy/rulesfile"
	"github.com/stint-dev/stint/service/importers"
	"github.com/stint-dev/stint/service/importers/envoyrules"
)

const (
	typeURL = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"
	// documentName is what errors call the rules of a configuration.
	documentName = "xds.yaml"
	// mostNotes is how many differences of a configuration the log says, and how many of the
	// parts that are refused an error does.
	mostNotes = 20
)

// A configuration is what a control plane sent, as far as it can be held.
type configuration struct {
	domains  map[string]*envoyrules.Domain
	document []byte
	notes    importers.Notes
	refused  []string // what of it cannot be held, and why
}

// refusal is the error for what cannot be held; nil for nothing.
func (c *configuration) refusal() error {
	if len(c.refused) == 0 {
		return nil
	}
	shown := c.refused[:min(len(c.refused), mostNotes)]
	if more := len(c.refused) - len(shown); more > 0 {
		shown = append(shown[:len(shown):len(shown)], fmt.Sprintf("%d more", more))
	}
	return fmt.Errorf("%d parts are refused, and are as they were before, the rest is taken: %s", len(c.refused), strings.Join(shown, "; "))
}

// convert makes rules of a configuration. What cannot be held is as in the domains before,
// or else as if it were not there. The error is about the configuration as a whole.
func convert(ctx context.Context, url string, resources []*anypb.Any, before map[string]*envoyrules.Domain) (*configuration, error) {
	if url != typeURL {
		return nil, fmt.Errorf("resources of type %.100q: want %s", url, typeURL)
	}
	c := &configuration{domains: map[string]*envoyrules.Domain{}}
	sent := map[string]int{}
	unread := false
	for i, resource := range resources {
		d, err := domain(resource)
		switch {
		case err != nil:
			c.refused = append(c.refused, fmt.Sprintf("resource %d: %v", i+1, err))
			unread = true
		case sent[d.Name] == 1:
			c.refused = append(c.refused, fmt.Sprintf("resource %d: the domain %q comes twice", i+1, d.Name))
			fallthrough
		default:
			sent[d.Name]++
			c.domains[d.Name] = d
		}
	}
	for name, d := range before {
		if _, there := sent[name]; sent[name] > 1 || unread && !there { // it may be what cannot be read
			c.domains[name] = d
		}
	}
	for name, n := range sent {
		if n > 1 && before[name] == nil {
			delete(c.domains, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.domains)) {
		c.refused = append(c.refused, c.domains[name].Keep(before[name])...)
	}
	err := c.hold(ctx, before)
	for _, note := range c.notes {
		if note.Lost {
			c.refused = append(c.refused, note.String())
		}
	}
	return c, err
}

// domain returns the descriptors of one resource: the message has the fields of the file
// of that service. What is wrong in descriptors is left to [envoyrules.Domain.Keep].
func domain(resource *anypb.Any) (*envoyrules.Domain, error) {
	var config ratelimit.RateLimitConfig
	if err := resource.UnmarshalTo(&config); err != nil {
		return nil, err
	}
	root := object("domain", text(config.GetDomain()), "descriptors", descriptors(config.GetDescriptors()))
	d, err := envoyrules.Decode(cmp.Or(config.GetName(), "configuration"), root)
	if d.Name == "" {
		return nil, err
	}
	return d, nil
}

// object is a map of names and values, but for those that are nil.
func object(fields ...any) *rulesfile.Node {
	n := &rulesfile.Node{Kind: rulesfile.MapKind}
	for i := 0; i < len(fields); i += 2 {
		if v := fields[i+1].(*rulesfile.Node); v != nil {
			n.Fields = append(n.Fields, rulesfile.Field{Name: fields[i].(string), Value: v})
		}
	}
	return n
}

// text is a text, nil for none.
func text(s string) *rulesfile.Node {
	if s == "" {
		return nil
	}
	return &rulesfile.Node{Kind: rulesfile.String, Value: s}
}

// flag is true, or else nil.
func flag(is bool) *rulesfile.Node {
	if !is {
		return nil
	}
	return &rulesfile.Node{Kind: rulesfile.Bool, Value: "true"}
}

func descriptors(all []*ratelimit.RateLimitDescriptor) *rulesfile.Node {
	list := &rulesfile.Node{Kind: rulesfile.List}
	for _, d := range all {
		var metadata *rulesfile.Node
		if d.GetMetadata() != nil {
			metadata = object()
		}
		list.Items = append(list.Items, object("key", text(d.GetKey()), "value", text(d.GetValue()), "rate_limit", limit(d.GetRateLimit()),
			"descriptors", descriptors(d.GetDescriptors()), "shadow_mode", flag(d.GetShadowMode()), "quota_mode", flag(d.GetQuotaMode()),
			"detailed_metric", flag(d.GetDetailedMetric()), "metadata", metadata))
	}
	return list
}

func limit(l *ratelimit.RateLimitPolicy) *rulesfile.Node {
	if l == nil {
		return nil
	}
	var unit *rulesfile.Node
	if l.GetUnit() != ratelimit.RateLimitUnit_UNKNOWN {
		unit = text(strings.ToLower(l.GetUnit().String()))
	}
	replaces := &rulesfile.Node{Kind: rulesfile.List}
	for _, r := range l.GetReplaces() {
		replaces.Items = append(replaces.Items, object("name", text(r.GetName())))
	}
	return object("unit", unit, "requests_per_unit", &rulesfile.Node{Kind: rulesfile.Number, Value: strconv.FormatUint(uint64(l.GetRequestsPerUnit()), 10)},
		"unlimited", flag(l.GetUnlimited()), "name", text(l.GetName()), "replaces", replaces)
}
