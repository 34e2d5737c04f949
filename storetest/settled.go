package storetest

import "strings"

// A store that judges reserved costs gives back by the rules that were before
// settlements rewrote history. What it cannot pass is listed here, and nowhere
// else: when no store needs Suite.ReservedCosts any more, this file goes, with
// the field.

// onSettledCosts are the vectors and the laws that such a store does not keep:
// it gives back at most the part of a charge's own stretch that still lies
// ahead, whatever was given back before it, and frees a queue's place behind
// which others were told their delays; its logs cut what they may need again.
var onSettledCosts = []string{
	"own_give_back",
	"own_interval_give_back",
	"own_settled_bucket",
	"own_settled_order",
	"own_settled_fractions",
	"own_settled_interval",
	"own_settled_queue",
	"own_settled_debt",
	"own_settled_log",
	"a settlement rewrites history",
	"giving back never mints",
}

// OnSettledCosts reports whether a vector, by the name of its file, or a law is
// one that a store with Suite.ReservedCosts does not keep.
func OnSettledCosts(name string) bool {
	name = strings.TrimSuffix(strings.TrimPrefix(name, "vectors/"), ".jsonl")
	for _, law := range onSettledCosts {
		if name == law {
			return true
		}
	}
	return false
}
