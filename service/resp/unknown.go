package resp

import (
	"fmt"
	"strings"

	"github.com/stint-dev/stint/internal/wording"
)

// mostNamed is the longest name of an unknown command that an answer repeats.
const mostNamed = 24

// instead says what to use in place of commands that other servers have.
var instead = map[string]string{
	"multi": inPipeline, "exec": inPipeline, "discard": inPipeline, "watch": inPipeline, "unwatch": inPipeline,
	"eval": byRules, "evalsha": byRules, "get": byRules, "set": byRules, "incr": byRules, "incrby": byRules, "expire": byRules,
	"stint.reset": byOperators, "stint.refund": byOperators, "stint.block": byOperators, "stint.override": byOperators,
}

const (
	inPipeline  = "; send commands in a pipeline: they are answered in order, each by itself"
	byRules     = "; no key is kept here: STINT.CHECK and CL.THROTTLE ask whether a request passes"
	byOperators = "; operators act by the command stint, or over HTTP at --admin"
)

// unknown answers an unknown command. A text that cannot be a command's name is not repeated: it
// may be a misdirected secret.
func (c *conn) unknown(name []byte) {
	if !namely(name) {
		c.out.fail("ERR", fmt.Sprintf("unknown command of %d bytes; COMMAND lists what there is", len(name)))
		return
	}
	text := fmt.Sprintf("unknown command '%s'", name)
	low := strings.ToLower(string(name))
	if use := instead[low]; use != "" {
		text += use
	} else if near := nearest(low); near != "" {
		text += fmt.Sprintf(", did you mean '%s'?", strings.ToUpper(near))
	} else {
		text += "; COMMAND LIST names what there is"
	}
	c.out.fail("ERR", text)
}

// namely reports whether a text looks like a command's name.
func namely(text []byte) bool {
	for _, b := range text {
		if letter := b|0x20 >= 'a' && b|0x20 <= 'z'; !letter && b != '.' && b != '_' && b != '-' {
			return false
		}
	}
	return len(text) > 0 && len(text) <= mostNamed
}

// nearest returns the command that is at most two typing errors away from name, or whose name ends
// in a dot and name. It returns "" if there is none.
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
