package rulesxds

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/stint-dev/stint/service/importers"
	"github.com/stint-dev/stint/service/importers/envoyrules"
	"github.com/stint-dev/stint/service/rules"
)

// hold makes a document of the domains. Those that are too large for a rules file, each for
// itself or all together, are refused by themselves: of all together, those that have
// grown most. The error is about the configuration as a whole.
func (c *configuration) hold(ctx context.Context, before map[string]*envoyrules.Domain) (err error) {
	if c.document, c.notes, err = document(ctx, slices.Collect(maps.Values(c.domains))...); err == nil || ctx.Err() != nil {
		return err
	}
	grown := map[string]int{} // bytes of what can be held
	for name, d := range c.domains {
		one, _, err := document(ctx, d)
		if err != nil {
			c.putBack(name, before[name], err)
			continue
		}
		if grown[name] = len(one); before[name] != nil {
			was, _, _ := document(ctx, before[name])
			grown[name] -= len(was)
		}
	}
	most := slices.SortedFunc(maps.Keys(grown), func(a, b string) int { return cmp.Or(grown[b]-grown[a], cmp.Compare(a, b)) })
	for {
		c.document, c.notes, err = document(ctx, slices.Collect(maps.Values(c.domains))...)
		if err == nil || ctx.Err() != nil || len(most) == 0 {
			return err
		}
		c.putBack(most[0], before[most[0]], fmt.Errorf("all domains together: %w", err))
		most = most[1:]
	}
}

// document returns the rules of domains, which can be read.
func document(ctx context.Context, domains ...*envoyrules.Domain) ([]byte, importers.Notes, error) {
	slices.SortFunc(domains, func(a, b *envoyrules.Domain) int { return cmp.Compare(a.Name, b.Name) })
	text, notes, err := envoyrules.Convert(ctx, domains, envoyrules.Options{Compatible: true})
	if err == nil {
		_, err = rules.Decode(documentName, text)
	}
	return text, notes, err
}

// putBack refuses a domain, which is as it was before, or not there.
func (c *configuration) putBack(name string, before *envoyrules.Domain, err error) {
	c.refused = append(c.refused, fmt.Sprintf("domain %q, of %d descriptors: %v", name, c.domains[name].Descriptors(), err))
	if before != nil {
		c.domains[name] = before
	} else {
		delete(c.domains, name)
	}
}
