package server

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"unicode/utf8"

	"github.com/stint-dev/stint/policy"
)

// A problem is an answer without a decision, in the form of RFC 9457. Of what a client
// sent, it has nothing but the names of fields.
type problem struct {
	status int
	field  string // the path of the field at fault, such as requests[3].cost
	detail string
}

func (p *problem) Error() string {
	if p.field != "" {
		return p.field + ": " + p.detail
	}
	return p.detail
}

// Is makes a problem match policy.ErrRequest, by which metrics count it.
func (p *problem) Is(target error) bool { return target == policy.ErrRequest }

// bad returns the problem of a field in a body.
func bad(field, format string, args ...any) *problem {
	return &problem{status: http.StatusBadRequest, field: field, detail: fmt.Sprintf(format, args...)}
}

// problemOf returns the problem of an error in a body, nil for none.
func problemOf(err error) *problem {
	if err == nil {
		return nil
	}
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	return bad("", "%v", err)
}

// in puts the name of a field, or of an item of a list, before the path of an error.
func in(field string, err error) error {
	p := problemOf(err)
	switch {
	case p == nil:
		return nil
	case p.field == "" || p.field[0] == '[':
		p.field = field + p.field
	default:
		p.field = field + "." + p.field
	}
	return p
}

func (p *problem) write(w http.ResponseWriter) { p.writeAs(w, p.status) }

// writeAs answers with a status that may differ from the problem's own.
func (p *problem) writeAs(w http.ResponseWriter, status int) {
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	body := append(p.append(nil), '\n')
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that has gone needs no answer
}

// append writes the problem as JSON.
func (p *problem) append(b []byte) []byte {
	b = appendText(append(b, `{"type":"about:blank","title":`...), http.StatusText(p.status))
	b = strconv.AppendInt(append(b, `,"status":`...), int64(p.status), 10)
	if p.detail != "" {
		b = appendText(append(b, `,"detail":`...), p.detail)
	}
	if p.field != "" {
		b = appendText(append(b, `,"field":`...), p.field)
	}
	return append(b, '}')
}

func notFound(instead string) *problem {
	return &problem{status: http.StatusNotFound, detail: "no such path: there is " + instead}
}

// WrongMethod answers 405; allow lists the methods that are allowed.
func WrongMethod(w http.ResponseWriter, allow string) {
	w.Header().Set("Allow", allow)
	WriteProblem(w, http.StatusMethodNotAllowed, "", "use "+allow)
}

// Unauthorized answers 401, and asks for a token. If the request shows one, it is counted
// as wrong.
func Unauthorized(w http.ResponseWriter, r *http.Request, detail string) {
	noteShown(r)
	w.Header().Set("Www-Authenticate", "Bearer")
	WriteProblem(w, http.StatusUnauthorized, "", detail)
}

// appendText writes text as a JSON string. Bytes that are not UTF-8 become U+FFFD.
func appendText(b []byte, text string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	begin := 0
	for i := 0; i < len(text); {
		c := text[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(text[i:])
			if r == utf8.RuneError && size == 1 {
				b = append(append(b, text[begin:i]...), "\ufffd"...)
				begin = i + 1
			}
			i += size
			continue
		}
		if c < ' ' || c == 0x7f || c == '"' || c == '\\' {
			b = append(b, text[begin:i]...)
			if c == '"' || c == '\\' {
				b = append(b, '\\', c)
			} else {
				b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
			}
			begin = i + 1
		}
		i++
	}
	return append(append(b, text[begin:]...), '"')
}

// appendTexts writes a list of texts as JSON.
func appendTexts(b []byte, texts []string) []byte {
	b = append(b, '[')
	for i, text := range texts {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(b, text)
	}
	return append(b, ']')
}

// WriteProblem answers with a problem in the form of RFC 9457. field is the path of the
// field at fault, or "".
func WriteProblem(w http.ResponseWriter, status int, field, detail string) {
	(&problem{status: status, field: field, detail: detail}).write(w)
}
