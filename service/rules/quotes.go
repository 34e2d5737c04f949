package rules

import "bytes"

// quotes finds quoted text in a YAML document without parsing the document. Everything that it
// finds is quoted, but it does not find all quoted text. It looks for a quote after a field's
// colon, or after a comma or bracket of a list or map that begins after a colon or dash of the same
// line. After any other quote, or one that does not end in its line, it finds no more, since
// nothing is certain there.
type quotes struct {
	data  []byte
	flow  int // number of open brackets that began in this line
	until int // end of the text that was found last, with its quotes
	lost  bool
}

// inside reports whether the byte at i is inside of quoted text. Ask for the bytes in order.
func (q *quotes) inside(i int) bool {
	if i < q.until {
		return true
	}
	if lineEnds(q.data[i:]) {
		q.flow = 0
	}
	switch q.data[i] {
	case '[', '{':
		if q.flow > 0 || q.begins(i) {
			q.flow++
		}
	case ']', '}':
		q.flow = max(q.flow-1, 0)
	case '"', '\'':
		switch {
		case q.lost || i > 0 && letter(q.data[i-1]):
		case q.begins(i):
			q.until = quoteEnd(q.data, i)
			q.lost = q.until == 0
		default:
			q.lost = true
		}
	}
	return false
}

// begins reports whether a value certainly begins at i.
func (q *quotes) begins(i int) bool {
	before := bytes.TrimRight(q.data[:i], " \t")
	if len(before) == 0 {
		return false
	}
	switch last := before[len(before)-1]; last {
	case ':':
		return len(before) < i
	case ',', '[', '{':
		return q.flow > 0
	case '-':
		indent := bytes.TrimRight(before[:len(before)-1], " ")
		return q.data[i] != '"' && q.data[i] != '\'' && len(before) < i && (len(indent) == 0 || indent[len(indent)-1] == '\n')
	}
	return false
}

// quoteEnd returns the index after the closing quote of a text whose opening quote is at i, or 0 if
// it does not end in its line.
func quoteEnd(data []byte, i int) int {
	for k := i + 1; k < len(data) && !lineEnds(data[k:]); k++ {
		switch {
		case data[k] == '\\' && data[i] == '"':
			if k++; lineEnds(data[k:]) {
				return 0
			}
		case data[k] != data[i]:
		case data[i] == '\'' && k+1 < len(data) && data[k+1] == '\'':
			k++
		default:
			return k + 1 // a closing quote does not begin a text
		}
	}
	return 0
}

// lineEnds reports whether text begins with what the library reads as the end of a line.
func lineEnds(text []byte) bool {
	if len(text) == 0 {
		return false
	}
	switch text[0] {
	case '\n', '\r':
		return true
	case 0xc2, 0xe2:
		return bytes.HasPrefix(text, []byte("\u0085")) || bytes.HasPrefix(text, []byte("\u2028")) || bytes.HasPrefix(text, []byte("\u2029"))
	}
	return false
}

func letter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' }
