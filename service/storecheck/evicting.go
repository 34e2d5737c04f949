package storecheck

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/redis/go-redis/v9"
)

// evicting says what is unwise about the policy of a master, and whether
// anything is. Keys that limits are kept in expire within seconds or minutes, so
// that policies on volatile keys are about them, and volatile-ttl takes them first.
func (n *Node) evicting() (Finding, bool) {
	better := "set maxmemory-policy noeviction; where that cannot be, allkeys-lfu or allkeys-lru lose the fewest"
	if n.Policy == "allkeys-lfu" || n.Policy == "allkeys-lru" {
		better = "set maxmemory-policy noeviction, or give it so much memory that it never evicts"
	}
	switch {
	case n.Policy == "" || n.Policy == "noeviction":
		return Finding{}, false
	case n.MaxMemory == 0:
		return Finding{fmt.Sprintf("maxmemory-policy %s has no effect yet; with a maxmemory it evicts keys in use", n.Policy), better}, true
	}
	return Finding{fmt.Sprintf("maxmemory-policy %s evicts keys in use: whose they are starts afresh", n.Policy), better}, true
}

// Evicting asks the servers behind a client, by INFO, whether they evict keys in
// use when their memory is full, and returns a finding for each policy of theirs
// that does, and how many keys they have evicted since they started. The error is of
// those that did not answer, or may not be asked.
func Evicting(ctx context.Context, client redis.UniversalClient) (findings []Finding, evicted int64, err error) {
	var failed []error
	found := make(map[string]Finding)
	for address, node := range nodesOf(ctx, client) {
		n, err := inform(ctx, address, node)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", address, err))
			continue
		}
		if n.Role == "replica" {
			continue
		}
		evicted += max(n.Evicted, 0)
		if f, unwise := n.evicting(); unwise && n.MaxMemory > 0 {
			found[n.Policy] = f
		}
	}
	for _, policy := range slices.Sorted(maps.Keys(found)) {
		findings = append(findings, found[policy])
	}
	return findings, evicted, errors.Join(failed...)
}
