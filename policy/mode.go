package policy

import (
	"fmt"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
)

// A ModeStore is a store that several processes share, and that need not be
// asked about every request: the word mode of a rule says how it is then held.
// A request may have limits of several modes.
type ModeStore interface {
	stint.Store
	// BindMode is Bind for limits that are held in the mode of a word: "strict",
	// "lease", "async" or "share". The error says which limit cannot be held so,
	// and why.
	BindMode(mode, name string, limits ...stint.Limit) (stint.Bound, error)
}

// A Checker is a store that says beforehand what binding would refuse, and changes
// nothing by that. [New] and [Policy.Reload] ask it about all limits before the
// first is bound: one that is bound anew starts afresh with what it has in hand,
// also where the rules are refused in the end.
type Checker interface {
	// Check returns why BindMode would refuse limits.
	Check(mode string, limits ...stint.Limit) error
}

// check asks a store about the limits of all rules, if it knows beforehand.
func check(store stint.Store, rules *Rules) error {
	c, ok := store.(Checker)
	if !ok {
		return nil
	}
	for _, plan := range rules.plans {
		if err := c.Check(modeName(plan.mode), plan.limits...); err != nil {
			return fmt.Errorf("policy: rule %q: %w", plan.ruleLimits[0].Rule, err)
		}
	}
	return nil
}

// modeWords are the words of mode.
var modeWords = map[string]string{"strict": strict, "lease": "lease", "async": "async", "share": "share"}

const strict = ""

// bindMode binds the limits of a rule in its mode. In the memory of one process
// nothing is shared, and every mode is the same.
func bindMode(store stint.Store, mode, name string, limits []stint.Limit) (stint.Bound, error) {
	if modes, ok := store.(ModeStore); ok {
		return modes.BindMode(modeName(mode), name, limits...)
	}
	if _, inProcess := store.(*memstore.Store); inProcess || mode == strict {
		return store.Bind(name, limits...)
	}
	return nil, fmt.Errorf("mode %s: the store decides every request itself: write mode: strict", mode)
}

// modeName is the word of a mode.
func modeName(mode string) string {
	if mode == strict {
		return "strict"
	}
	return mode
}
