package storecheck

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/redis/rueidis"
)

// evicting says what is unwise about the policy of a master, and whether
// anything is. Keys that limits are kept in have a TTL, so that policies on
// volatile keys are about them too; volatile-ttl takes those first that are
// nearest to being as if never seen.
func (n *Node) evicting() (Finding, bool) {
	const better = "set maxmemory-policy noeviction, or volatile-ttl with room to spare"
	switch {
	case n.Policy == "" || n.Policy == "noeviction" || n.Policy == "volatile-ttl":
		return Finding{}, false
	case n.MaxMemory == 0:
		return Finding{fmt.Sprintf("maxmemory-policy %s has no effect yet; with a maxmemory it evicts keys in use", n.Policy), better}, true
	}
	return Finding{fmt.Sprintf("maxmemory-policy %s evicts keys in use: whose they are starts afresh", n.Policy), better}, true
}

// Evicting asks the servers behind a client, by INFO, whether they evict keys in
// use when their memory is full, and returns a finding for each policy of theirs
// that does. The error is of those that did not answer, or may not be asked.
func Evicting(ctx context.Context, client rueidis.Client) ([]Finding, error) {
	var failed []error
	found := make(map[string]Finding)
	for address, node := range client.Nodes() {
		n, err := inform(ctx, address, node)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", address, err))
			continue
		}
		if f, unwise := n.evicting(); unwise && n.MaxMemory > 0 && n.Role != "replica" {
			found[n.Policy] = f
		}
	}
	var findings []Finding
	for _, policy := range slices.Sorted(maps.Keys(found)) {
		findings = append(findings, found[policy])
	}
	return findings, errors.Join(failed...)
}
