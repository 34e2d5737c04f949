package policy

import (
	"fmt"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
)

// A ModeStore is a store that several processes share, and that need not be
// asked about every request: the word mode of a rule says how it is then held.
// A request may have layers of several modes.
type ModeStore interface {
	stint.Store
	// BindMode is Bind for limits that are held in the mode of a word: "lease",
	// "async" or "share". The error says which limit cannot be held so, and why.
	BindMode(mode string, limits ...stint.Limit) (stint.Bound, error)
}

// modeWords are the words of mode. The first is Bind itself.
var modeWords = map[string]string{"strict": strict, "lease": "lease", "async": "async", "share": "share"}

const strict = ""

// bindMode binds the limits of a rule in its mode. In the memory of one process
// nothing is shared, and every mode is the same.
func bindMode(store stint.Store, mode string, limits []stint.Limit) (stint.Bound, error) {
	if mode == strict {
		return store.Bind(limits...)
	}
	if modes, ok := store.(ModeStore); ok {
		return modes.BindMode(mode, limits...)
	}
	if _, inProcess := store.(*memstore.Store); inProcess {
		return store.Bind(limits...)
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
