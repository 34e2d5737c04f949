package rulesapi

import (
	"strings"

	"github.com/rogpeppe/go-internal/diff"
)

// Diff returns what turns one text into another in the unified format of diff; "" if they
// are the same. It takes time as n log n does, so the difference need not be the shortest.
func Diff(fromName, toName, from, to string) string {
	text := string(diff.Diff(fromName, []byte(from), toName, []byte(to)))
	return strings.TrimPrefix(text, "diff "+fromName+" "+toName+"\n")
}
