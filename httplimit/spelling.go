package httplimit

import (
	"bytes"
	"net/url"
	"strings"
	"unicode/utf8"
)

// respelled is why a name is refused that is not spelled as in the rules.
const respelled = "it comes in another spelling, which some servers take for the same"

// A pairName is the name of a parameter or cookie in the rules, and the folded form that its
// spellings have in common.
type pairName struct {
	name, folded string
	fields       []string // folded, cut at its brackets
	least        int      // bytes of all fields: no spelling is shorter
}

func newPairName(name string) pairName {
	n := pairName{name: name}
	n.folded = string(n.fold(nil, name))
	n.fields = strings.FieldsFunc(n.folded, func(c rune) bool { return c == '[' || c == ']' })
	n.least = len(strings.Join(n.fields, ""))
	return n
}

// encodedAs reports whether sent is this name, encoded.
func (n *pairName) encodedAs(sent string) bool {
	plain, err := url.QueryUnescape(sent)
	return err == nil && plain == n.name
}

// respelled reports whether some server takes another name for this one. PHP drops leading
// blanks, and turns a dot, a blank and an unclosed bracket into an underscore. PHP, qs and
// Rails take a name with brackets for that of a list, and Rack drops brackets around a name.
// ASP.NET and nginx ignore case; Caddy ignores it in cookies.
func (n *pairName) respelled(sent string) bool {
	if sent == n.name || len(sent) < n.least {
		return false
	}
	var room [64]byte // so that a usual name costs no allocation
	folded := n.fold(room[:0], sent)
	if string(folded) == n.folded {
		return true
	}
	return n.beginsWithFields(folded) || string(underscore(folded)) == n.folded
}

// beginsWithFields reports whether a name begins with the same fields, with brackets anywhere
// between and behind them: PHP, qs and Rack drop what follows a closed bracket.
func (n *pairName) beginsWithFields(folded []byte) bool {
	for _, field := range n.fields {
		folded = bytes.TrimLeft(folded, "[]")
		end := bytes.IndexAny(folded, "[]")
		if end < 0 {
			end = len(folded)
		}
		if string(folded[:end]) != field {
			return false
		}
		folded = folded[end:]
	}
	return len(n.fields) > 0
}

// inForm reports whether some server finds the name among the fields of a form. Some drop a
// byte order mark before the form.
func (n *pairName) inForm(form string) bool {
	for pair := range strings.FieldsFuncSeq(strings.TrimPrefix(form, "\ufeff"), func(c rune) bool { return c == '&' || c == ';' }) {
		sent, _, _ := strings.Cut(pair, "=")
		if n.isWord(sent) || strings.ContainsAny(sent, ".%+") && (n.encodedAs(sent) || n.respelled(dots.Replace(sent))) {
			return true
		}
	}
	return false
}

// dots turns the dots in a field's name into brackets, as co-body, the reader of Koa, does.
var dots = strings.NewReplacer(".", "[", "%2e", "[", "%2E", "[")

// inParts reports whether some server finds the name in the head of a part of a multipart
// form. For all servers a head ends at an empty line; it begins where a header may begin, for
// Rack behind any byte.
func (n *pairName) inParts(body []byte) bool {
	for some := range bytes.SplitSeq(body, []byte("\r\n\r\n")) {
		if i := strings.Index(lower(string(some)), "content-"); i >= 0 && n.inHead(string(some[i:])) {
			return true
		}
	}
	return false
}

// inHead reports whether some server finds the name in the head of a part: in quotes or not,
// with backslashes, encoded, or as the name of a file. It also reports heads that no browser
// sends: a name in pieces, with a charset, or in encoded words of mail.
func (n *pairName) inHead(head string) bool {
	low := lower(head)
	if strings.Contains(strings.ReplaceAll(low, "filename*", ""), "name*") || strings.Contains(low, "=?") {
		return true
	}
	for rest, named := head, low; ; {
		i := strings.Index(named, "name")
		if i < 0 {
			break
		}
		rest, named = rest[i+len("name"):], named[i+len("name"):]
		word := strings.TrimLeftFunc(rest, func(c rune) bool { return isEdge(c) || strings.ContainsRune(`="'\`, c) })
		if !strings.Contains(rest[:len(rest)-len(word)], "=") {
			continue // so that words do not overlap, which would make long heads slow
		}
		if end := strings.IndexFunc(word, n.ends); end >= 0 {
			word = word[:end]
		}
		if n.isWord(word) {
			return true
		}
	}
	head = strings.ReplaceAll(head, `\`, "")
	for _, ends := range [...]string{"\"'\r\n", "\"'\r\n;:=,<> \t"} {
		for word := range strings.FieldsFuncSeq(head, func(c rune) bool { return strings.ContainsRune(ends, c) }) {
			if bare := strings.TrimFunc(word, isEdge); n.isWord(word) || bare != word && n.isWord(bare) {
				return true
			}
		}
	}
	return false
}

func (n *pairName) isWord(word string) bool { return word == n.name || n.respelled(word) }

// ends reports whether some server ends an unquoted name at a character.
func (n *pairName) ends(c rune) bool {
	return c < utf8.RuneSelf && hasForeign(string(c)) && !strings.ContainsRune("_.%+[]"+n.name, c)
}

// lower turns ASCII into lower case, and keeps the place of every byte.
func lower(text string) string {
	low := []byte(text)
	for i, c := range low {
		if 'A' <= c && c <= 'Z' {
			low[i] = c + 'a' - 'A'
		}
	}
	return string(low)
}

func isEdge(c rune) bool { return c >= utf8.RuneSelf || isBlank(byte(c)) }

// respelledIn reports whether a line of cookies has this name in another spelling.
func (n *pairName) respelledIn(line string) bool {
	for start, i := 0, 0; i <= len(line); i++ {
		if i < len(line) && line[i] != ';' && line[i] != ',' {
			continue
		}
		pair := line[start:i]
		start = i + 1
		for pair != "" && isBlank(pair[0]) {
			pair = pair[1:]
		}
		end := 0
		for end < len(pair) && pair[end] != '=' {
			end++
		}
		for end > 0 && isBlank(pair[end-1]) {
			end--
		}
		if end > 0 && n.respelled(pair[:end]) {
			return true
		}
	}
	return false
}

// isBlank reports whether some server takes a byte beside a cookie's name for a blank or a
// part of one. The blanks of Unicode, which Python and JavaScript drop, are bytes beyond
// ASCII in any charset.
func isBlank(c byte) bool { return c <= ' ' || c >= 0x7f }

// fold appends a name in lower case, decoded as far as possible, up to a NUL, without leading
// blanks and question marks, and with underscores for dots and blanks.
func (n *pairName) fold(b []byte, name string) []byte {
	for i := 0; i < len(name); i++ {
		c := name[i]
		if c == '%' && i+2 < len(name) {
			if high, low := unhex(name[i+1]), unhex(name[i+2]); high < 16 && low < 16 {
				c = high<<4 | low
				i += 2
			}
		}
		switch {
		case c == 0:
			return b
		case len(b) == 0 && (c == ' ' || c == '+' || c == '?'):
			continue
		case c == '.' || c == ' ' || c == '+':
			c = '_'
		case 'A' <= c && c <= 'Z':
			c += 'a' - 'A'
		}
		b = append(b, c)
	}
	return b
}

func underscore(name []byte) []byte {
	for i, c := range name {
		if c == '[' {
			name[i] = '_'
		}
	}
	return name
}

func unhex(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10
	}
	return 16
}
