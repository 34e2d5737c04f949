package rulesxds

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	ratelimit "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/stint-dev/stint/service/importers"
	"github.com/stint-dev/stint/service/importers/envoyrules"
	"github.com/stint-dev/stint/service/rules"
)

const (
	typeURL = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"
	// documentName is the name of the rules in errors.
	documentName = "xds.yaml"
	// mostNotes is how many notes on a configuration are logged, and how many refused parts
	// an error names.
	mostNotes = 20
)

// A configuration is what a control plane sent, without what is refused.
type configuration struct {
	domains map[string]*domain
	file    *rules.File // of domains
	notes   importers.Notes
	refused []string // the parts that are refused, and why
}

// A domain is a domain of a configuration. The message takes less memory than its
// descriptors, which may be thousands, so these are read again when they are needed.
type domain struct {
	sent *anypb.Any         // the message, without what is refused
	read *envoyrules.Domain // read from sent; nil while it is not needed
}

// domainOf returns the domain of one resource. [envoyrules.Domain.Keep] handles errors in
// its descriptors.
func domainOf(resource *anypb.Any) (*domain, error) {
	var config ratelimit.RateLimitConfig
	if err := resource.UnmarshalTo(&config); err != nil {
		return nil, err
	}
	d, err := envoyrules.Read(&config)
	if d.Name == "" {
		return nil, err
	}
	return &domain{resource, d}, nil
}

// now returns the domain, and reads it again if needed; nil for nil.
func (d *domain) now() *envoyrules.Domain {
	switch {
	case d == nil:
		return nil
	case d.read == nil:
		if again, err := domainOf(d.sent); err == nil { // it was read without an error before
			d.read = again.read
		}
	}
	return d.read
}

// merge adds the descriptors of another resource of the domain. Those that both have are wrong.
func (d *domain) merge(more *domain) error {
	if err := d.read.Merge(more.read, true); err != nil {
		return err
	}
	return d.pack()
}

// pack makes the message anew.
func (d *domain) pack() (err error) {
	d.sent, err = anypb.New(d.read.Message())
	return err
}

// keep replaces wrong descriptors by those of before, or removes them.
func (d *domain) keep(before *domain) (wrong []string) {
	if !d.read.Faulty {
		return nil
	}
	wrong = d.read.Keep(before.now())
	if err := d.pack(); err != nil {
		wrong = append(wrong, err.Error())
	}
	return wrong
}

// refusal returns the error that names the refused parts; nil if there are none.
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

// convert makes rules of a configuration. A part that is refused stays as in the domains
// before, or is left out. With merge, resources of one domain are one. An error refuses the
// configuration as a whole.
func convert(ctx context.Context, url string, resources []*anypb.Any, before map[string]*domain, merge bool) (*configuration, error) {
	if url != typeURL {
		return nil, fmt.Errorf("resources of type %.100q: want %s", url, typeURL)
	}
	c := &configuration{domains: map[string]*domain{}}
	sent := map[string]int{}
	unread := false
	for i, resource := range resources {
		d, err := domainOf(resource)
		switch {
		case err != nil:
			c.refused = append(c.refused, fmt.Sprintf("resource %d: %v", i+1, err))
			unread = true
			continue
		case sent[d.read.Name] == 1 && merge:
			if err = c.domains[d.read.Name].merge(d); err == nil {
				continue
			}
			c.refused = append(c.refused, fmt.Sprintf("resource %d: %v", i+1, err))
		case sent[d.read.Name] == 1:
			c.refused = append(c.refused, fmt.Sprintf("resource %d: the domain %q comes twice", i+1, d.read.Name))
		}
		sent[d.read.Name]++
		c.domains[d.read.Name] = d
	}
	for name, n := range sent {
		if n > 1 {
			delete(c.domains, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.domains)) {
		c.refused = append(c.refused, c.domains[name].keep(before[name])...)
	}
	var kept []string
	for name, d := range before {
		_, there := sent[name]
		if unread && !there { // it may be what cannot be read
			kept = append(kept, fmt.Sprintf("domain %q: kept, since it may be what cannot be read", name))
		}
		if sent[name] > 1 || unread && !there {
			c.domains[name] = d
		}
	}
	slices.Sort(kept)
	c.refused = append(c.refused, kept...)
	err := c.hold(ctx, before)
	for _, note := range c.notes {
		if note.Lost {
			c.refused = append(c.refused, note.String())
		}
	}
	for _, d := range c.domains {
		d.read = nil
	}
	return c, err
}
