package policy

import "strings"

// A glob is what lies between the stars of a pattern: one part if there are
// none. Each star stands for any text, the empty one included.
type glob []string

// parseGlob reads a pattern in which \* is a star and \\ a backslash.
func parseGlob(text string) glob {
	if !strings.ContainsRune(text, '\\') {
		return strings.Split(text, "*")
	}
	var g glob
	var part []byte
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\\' && i+1 < len(text) && (text[i+1] == '*' || text[i+1] == '\\'):
			i++
			part = append(part, text[i])
		case c == '*':
			g = append(g, string(part))
			part = nil
		default:
			part = append(part, c)
		}
	}
	return append(g, string(part))
}

// literal reports whether the glob has no star.
func (g glob) literal() bool { return len(g) == 1 }

func (g glob) match(s string) bool {
	if len(g) == 1 {
		return s == g[0]
	}
	last := len(g) - 1
	if len(s) < len(g[0])+len(g[last]) || !strings.HasPrefix(s, g[0]) || !strings.HasSuffix(s, g[last]) {
		return false
	}
	s = s[len(g[0]) : len(s)-len(g[last])]
	for _, part := range g[1:last] {
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s = s[i+len(part):]
	}
	return true
}
