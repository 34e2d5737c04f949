// Package importers has what all importers of other limiters' configurations share:
// notes of what differs, conditions, patterns of paths, and the rules file.
// docs/MOVING.md says what becomes of each configuration.
package importers

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/policy/rulesfile"
)

// Octal reports whether a number begins with 0: programs that read YAML 1.1 take it as octal.
func Octal(n *rulesfile.Node) bool {
	digits := strings.TrimLeft(n.Value, "+-")
	return n.Kind == rulesfile.Number && len(digits) > 1 && digits[0] == '0' && digits[1] != '.'
}

// A Note says what a rule does differently from the imported limit, or that a limit is lost.
type Note struct {
	Where string // file:line; "" for a note on the whole configuration
	Text  string
	// Lost is true if a limit is not kept, or not for all requests.
	Lost bool
}

// String returns one line.
func (n Note) String() string {
	if n.Where == "" {
		return n.Text
	}
	return n.Where + ": " + n.Text
}

// Notes are the notes on one configuration.
type Notes []Note

// Once returns the notes without repetitions.
func (n Notes) Once() Notes {
	seen := make(map[Note]bool, len(n))
	return slices.DeleteFunc(slices.Clone(n), func(one Note) bool {
		again := seen[one]
		seen[one] = true
		return again
	})
}

// Say notes what differs without a limit being lost.
func (n *Notes) Say(where, format string, args ...any) { n.add(where, false, format, args) }

// Lose notes that a limit is not kept.
func (n *Notes) Lose(where, format string, args ...any) { n.add(where, true, format, args) }

func (n *Notes) add(where string, lost bool, format string, args []any) {
	*n = append(*n, Note{where, fmt.Sprintf(format, args...), lost})
}

// Lost returns how many notes say that a limit is not kept.
func (n Notes) Lost() (lost int) {
	for _, one := range n {
		if one.Lost {
			lost++
		}
	}
	return lost
}

// ByAddress reports whether proxies write the client's address into a header, so that rules
// take the attribute ip instead. It notes the settings that this needs.
func (n *Notes) ByAddress(where, header string) bool {
	name := http.CanonicalHeaderKey(header)
	if !request.Claimed(name) || !strings.HasSuffix(name, "-For") && !strings.HasSuffix(strings.ToLower(name), "ip") && !strings.HasSuffix(name, "-Addr") {
		return false
	}
	n.Say(where, "%s is what proxies in front say of the client: here the key is ip. List these proxies in trusted_proxies, and write client_ip_header: %s", name, name)
	return true
}

// OneOf reports whether a name is in a list. One that ends or begins with a star stands for all that begin or end
// like it.
func OneOf(name string, list ...string) bool {
	name = Unscored(name)
	for _, texts := range list {
		for one := range strings.FieldsSeq(texts) {
			head, more := strings.CutSuffix(Unscored(one), "*")
			end, before := strings.CutPrefix(head, "*")
			if name == head || more && strings.HasPrefix(name, head) || before && strings.HasSuffix(name, end) {
				return true
			}
		}
	}
	return false
}

// Unscored returns a name without _ but at its beginning, in lower case.
func Unscored(name string) string {
	i := min(1, len(name))
	return strings.ToLower(name[:i] + strings.ReplaceAll(name[i:], "_", ""))
}
