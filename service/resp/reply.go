package resp

import "strconv"

// A reply is the answers, appended in the version of the protocol that the client chose.
type reply struct {
	buf   []byte
	three bool // RESP 3
}

func (r *reply) status(text string) {
	r.buf = append(append(append(r.buf, '+'), text...), '\r', '\n')
}

// fail answers with an error: a word in capitals, then what is wrong. It removes line breaks, which
// would end the error.
func (r *reply) fail(word, text string) {
	r.buf = append(append(append(r.buf, '-'), word...), ' ')
	for i := range len(text) {
		c := text[i]
		if c == '\r' || c == '\n' {
			c = ' '
		}
		r.buf = append(r.buf, c)
	}
	r.buf = append(r.buf, '\r', '\n')
}

func (r *reply) integer(n int64) { r.head(':', n) }

func (r *reply) array(n int) { r.head('*', int64(n)) }

// fields begins n pairs of name and value: a map in RESP 3, a flat array in RESP 2.
func (r *reply) fields(n int) {
	if r.three {
		r.head('%', int64(n))
	} else {
		r.head('*', int64(2*n))
	}
}

func (r *reply) text(s string) {
	r.head('$', int64(len(s)))
	r.buf = append(append(r.buf, s...), '\r', '\n')
}

func (r *reply) null() {
	if r.three {
		r.buf = append(r.buf, "_\r\n"...)
	} else {
		r.buf = append(r.buf, "$-1\r\n"...)
	}
}

// flag answers with a boolean. RESP 2 has none, and gets a number.
func (r *reply) flag(b bool) {
	switch {
	case r.three && b:
		r.buf = append(r.buf, "#t\r\n"...)
	case r.three:
		r.buf = append(r.buf, "#f\r\n"...)
	case b:
		r.integer(1)
	default:
		r.integer(0)
	}
}

func (r *reply) head(mark byte, n int64) {
	r.buf = strconv.AppendInt(append(r.buf, mark), n, 10)
	r.buf = append(r.buf, '\r', '\n')
}
