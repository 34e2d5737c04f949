package envoyrules

import (
	"cmp"
	"strings"

	ratelimit "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"

	"github.com/stint-dev/stint/policy/rulesfile"
)

// nowhere is the position of errors in a message, which has no lines.
var nowhere = new(rulesfile.Node)

// Read is [Decode] for a domain in the message of a control plane, which has the same fields
// as the file.
func Read(m *ratelimit.RateLimitConfig) (*Domain, error) {
	c := &checker{file: cmp.Or(m.GetName(), "configuration")}
	d := &Domain{Name: m.GetDomain()}
	if !c.asked(nowhere, "domain", d.Name) {
		d.Name = ""
	}
	d.descriptors = c.messages(m.GetDescriptors())
	return c.whole(d, nowhere)
}

func (c *checker) messages(all []*ratelimit.RateLimitDescriptor) []*descriptor {
	c.depth++
	defer func() { c.depth-- }()
	l := level{all: make([]*descriptor, 0, len(all))}
	for _, m := range all {
		c.add(&l, c.message(m), nowhere, "")
	}
	return l.all
}

func (c *checker) message(m *ratelimit.RateLimitDescriptor) *descriptor {
	at := place{file: c.file}
	d := &descriptor{key: m.GetKey(), value: m.GetValue(), shadow: m.GetShadowMode(), quota: m.GetQuotaMode(), at: at}
	if m.GetDetailedMetric() {
		d.dropped = append(d.dropped, dropped{"detailed_metric", at})
	}
	if m.GetMetadata() != nil {
		d.dropped = append(d.dropped, dropped{"metadata", at})
	}
	first := len(c.errs)
	c.asked(nowhere, "value", d.value)
	if !c.good(d, nowhere, "", first) {
		return d
	}
	if d.free() {
		c.free++
		defer func() { c.free-- }()
	}
	if m.GetRateLimit() != nil {
		d.limit = c.policy(m.GetRateLimit())
		d.wrongLimit = c.since(first)
	}
	d.below = c.messages(m.GetDescriptors())
	return d
}

// units are the names of a message's units in files.
var units = func() map[ratelimit.RateLimitUnit]string {
	names := map[ratelimit.RateLimitUnit]string{}
	for unit, name := range ratelimit.RateLimitUnit_name {
		names[ratelimit.RateLimitUnit(unit)] = strings.ToLower(name)
	}
	return names
}()

func (c *checker) policy(m *ratelimit.RateLimitPolicy) *limit {
	l := &limit{name: m.GetName(), unlimited: m.GetUnlimited(), rate: rate{int64(m.GetRequestsPerUnit()), "", 1}}
	for _, r := range m.GetReplaces() {
		l.replaces = append(l.replaces, r.GetName())
		if r.GetName() == "" {
			c.fail(nowhere, "", "no name", "name the limit that is replaced")
		}
	}
	known := m.GetUnit() != ratelimit.RateLimitUnit_UNKNOWN
	if known {
		l.unit = c.unit(nowhere, "", cmp.Or(units[m.GetUnit()], m.GetUnit().String()))
	}
	c.rate(l, known, nowhere, "")
	return l
}

// Message returns the domain as [Read] reads it, without fields that have no counterpart in rules.
func (d *Domain) Message() *ratelimit.RateLimitConfig {
	return &ratelimit.RateLimitConfig{Name: d.Name, Domain: d.Name, Descriptors: messagesOf(d.descriptors)}
}

func messagesOf(level []*descriptor) (all []*ratelimit.RateLimitDescriptor) {
	for _, d := range level {
		m := &ratelimit.RateLimitDescriptor{Key: d.key, Value: d.value, ShadowMode: d.shadow, QuotaMode: d.quota, Descriptors: messagesOf(d.below)}
		if l := d.limit; l != nil {
			m.RateLimit = &ratelimit.RateLimitPolicy{Name: l.name, Unlimited: l.unlimited, RequestsPerUnit: uint32(l.count),
				Unit: ratelimit.RateLimitUnit(ratelimit.RateLimitUnit_value[strings.ToUpper(l.unit)])}
			for _, name := range l.replaces {
				m.RateLimit.Replaces = append(m.RateLimit.Replaces, &ratelimit.RateLimitReplace{Name: name})
			}
		}
		all = append(all, m)
	}
	return all
}
