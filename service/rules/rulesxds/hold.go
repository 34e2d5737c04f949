package rulesxds

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sort"

	"github.com/stint-dev/stint/service/importers"
	"github.com/stint-dev/stint/service/importers/envoyrules"
	"github.com/stint-dev/stint/service/rules"
)

// hold makes a rules file of the domains. It refuses a domain that is too large for a file by
// itself, and if all together are too large, those that have grown most. An error refuses the
// configuration as a whole.
func (c *configuration) hold(ctx context.Context, before map[string]*domain) (err error) {
	if c.file, c.notes, err = fileOf(ctx, c.domains); err == nil || ctx.Err() != nil {
		return err
	}
	grown := map[string]int{} // by how many bytes each domain has grown
	largest, size := "", 0
	for name, d := range c.domains {
		one, _, err := fileOf(ctx, map[string]*domain{name: d})
		if err != nil {
			c.putBack(name, before[name], err)
			continue
		}
		if len(one.Document) > size {
			largest, size = name, len(one.Document)
		}
		if grown[name] = len(one.Document); before[name] != nil {
			if was, _, err := fileOf(ctx, map[string]*domain{name: before[name]}); err == nil {
				grown[name] -= len(was.Document)
			}
		}
	}
	most := slices.SortedFunc(maps.Keys(grown), func(a, b string) int { return cmp.Or(grown[b]-grown[a], cmp.Compare(a, b)) })
	var together error
	back := sort.Search(len(most), func(n int) bool { // how many of the most grown are put back
		tried := &configuration{domains: maps.Clone(c.domains)}
		for _, name := range most[:n] {
			tried.putBack(name, before[name], nil)
		}
		_, _, err := fileOf(ctx, tried.domains)
		together = cmp.Or(err, together)
		return err == nil
	})
	for _, name := range most[:back] {
		c.putBack(name, before[name], fmt.Errorf("all domains together, of which %q is the largest: %w", largest, together))
	}
	c.file, c.notes, err = fileOf(ctx, c.domains)
	return err
}

// fileOf returns the rules of domains, under the bounds of a rules file.
func fileOf(ctx context.Context, domains map[string]*domain) (*rules.File, importers.Notes, error) {
	var inOrder []*envoyrules.Domain
	for _, name := range slices.Sorted(maps.Keys(domains)) {
		inOrder = append(inOrder, domains[name].now())
	}
	file, end := envoyrules.Begin(ctx, inOrder, envoyrules.Options{Compatible: true})
	root, text := file.Tree()
	read, err := rules.DecodeTree(documentName, root, text)
	notes, failed := end()
	return read, notes, cmp.Or(failed, err)
}

// putBack refuses a domain: it stays as it was before, or is left out.
func (c *configuration) putBack(name string, before *domain, err error) {
	c.refused = append(c.refused, fmt.Sprintf("domain %q, of %d descriptors: %v", name, c.domains[name].now().Descriptors(), err))
	if before != nil {
		c.domains[name] = before
	} else {
		delete(c.domains, name)
	}
}
