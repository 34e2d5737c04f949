package resp

import (
	"fmt"
	"strings"

	"github.com/stint-dev/stint/internal/wording"
)

// mostNamed is how long the name of an unknown command may be to be repeated.
const mostNamed = 24

// unknown answers what is no command. What cannot be the name of one is not
// repeated: it may be a secret that went astray.
func (c *conn) unknown(name []byte) {
	if !namely(name) {
		c.refuse("ERR", fmt.Sprintf("unknown command of %d bytes; COMMAND lists what there is", len(name)))
		return
	}
	text := fmt.Sprintf("unknown command '%s'", name)
	if near := nearest(strings.ToLower(string(name))); near != "" {
		text += fmt.Sprintf(", did you mean '%s'?", strings.ToUpper(near))
	} else {
		text += "; COMMAND LIST names what there is"
	}
	c.refuse("ERR", text)
}

// namely says whether text has the form of a command's name.
func namely(text []byte) bool {
	for _, b := range text {
		if letter := b|0x20 >= 'a' && b|0x20 <= 'z'; !letter && b != '.' && b != '_' && b != '-' {
			return false
		}
	}
	return len(text) > 0 && len(text) <= mostNamed
}

// nearest returns the command that is at most two slips away from name, or has it
// behind its dot; "" if there is none.
func nearest(name string) string {
	best, least := "", 3
	for one := range commands {
		n := wording.Distance(name, one)
		if _, behind, ok := strings.Cut(one, "."); ok {
			n = min(n, wording.Distance(name, behind)+1)
		}
		if n < least || n == least && n < 3 && one < best {
			best, least = one, n
		}
	}
	if least*2 >= len(name) {
		return ""
	}
	return best
}
