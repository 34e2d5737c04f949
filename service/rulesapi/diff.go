package rulesapi

import (
	"strings"

	"github.com/rogpeppe/go-internal/diff"
)

// Diff returns the difference of two texts in the unified format; "" if they are the same. It takes
// time in n log n, so it may not find the shortest difference.
func Diff(fromName, toName, from, to string) string {
	text := string(diff.Diff(fromName, []byte(from), toName, []byte(to)))
	return strings.TrimPrefix(text, "diff "+fromName+" "+toName+"\n")
}
