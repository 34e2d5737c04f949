package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// printJSON writes a value as a line of JSON.
func printJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}

// printed writes a value as JSON, or its text for people.
func printed(w io.Writer, asJSON bool, v any, text func(io.Writer) error) error {
	if asJSON {
		return printJSON(w, v)
	}
	return text(w)
}

// clock writes a time for people; "-" if there is none.
func clock(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

// shown writes untrusted text for a terminal. It quotes text that could be read as
// something else, or that would control the terminal.
func shown(text string) string {
	strange := func(r rune) bool { return r == utf8.RuneError || r == '"' || !unicode.IsPrint(r) || r == ' ' }
	if text == "" || strings.ContainsFunc(text, strange) {
		return strconv.Quote(text)
	}
	return text
}

// printable writes untrusted text for a terminal, and keeps its lines. It escapes, as in a
// Go string, what would control the terminal: escapes, carriage returns, marks of direction.
func printable(text string) string {
	plain := func(r rune) bool { return r == '\n' || unicode.IsPrint(r) && r != utf8.RuneError }
	if !strings.ContainsFunc(text, func(r rune) bool { return !plain(r) }) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		if part := text[:size]; plain(r) {
			b.WriteString(part)
		} else {
			quoted := strconv.Quote(part)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		text = text[size:]
	}
	return b.String()
}

// inLine is printable for text within a line.
func inLine(text string) string { return strings.ReplaceAll(printable(text), "\n", `\n`) }

// count writes a number of things: no keys, 1 key, 2 keys.
func count(n int, what string) string {
	switch n {
	case 0:
		return "no " + what + "s"
	case 1:
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// terminal is how many columns a line of text has.
const terminal = 80

// wrap writes printable text. It cuts lines longer than a terminal at blanks, and writes hang
// before the rest.
func wrap(w io.Writer, text, hang string) error {
	var b strings.Builder
	for line := range strings.Lines(printable(text)) {
		line = strings.TrimSuffix(line, "\n")
		for utf8.RuneCountInString(line) > terminal {
			end := len(string([]rune(line)[:terminal+1]))
			start := len(line) - len(strings.TrimLeft(line, " "))
			cut := strings.LastIndexByte(line[start:end], ' ') + start
			if cut <= start { // one long word
				next := strings.IndexByte(line[end:], ' ')
				if next < 0 {
					break
				}
				cut = end + next
			}
			b.WriteString(line[:cut] + "\n")
			line = hang + line[cut+1:]
		}
		b.WriteString(line + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// A listing writes items one by one, as lines for people or as one JSON array. It keeps
// none, since there may be millions.
type listing struct {
	w    io.Writer
	json bool
	some bool // an item was written
}

// one writes an item: as JSON, or its text.
func (l *listing) one(v any, text string) error {
	if !l.json {
		return wrap(l.w, text, "    ")
	}
	var b bytes.Buffer
	before := "[\n"
	if l.some {
		before = ",\n"
	}
	l.some = true
	b.WriteString(before)
	if err := printJSON(&b, v); err != nil {
		return err
	}
	_, err := l.w.Write(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
	return err
}

// end ends the array.
func (l *listing) end() error {
	if !l.json {
		return nil
	}
	text := "\n]\n"
	if !l.some {
		text = "[]\n"
	}
	_, err := io.WriteString(l.w, text)
	return err
}

// pages yields items, which it reads page by page: at most most, or all if most is not
// above 0. read returns up to n items after last, which is at first the zero value.
func pages[T any](most int, read func(last T, n int) ([]T, error)) iter.Seq2[T, error] {
	const page = 1000
	return func(yield func(T, error) bool) {
		var last T
		for left := most; most <= 0 || left > 0; left -= page {
			n := page
			if most > 0 {
				n = min(n, left)
			}
			some, err := read(last, n)
			if err != nil {
				yield(last, err)
				return
			}
			for _, last = range some {
				if !yield(last, nil) {
					return
				}
			}
			if len(some) < n {
				return
			}
		}
	}
}

// collect returns all items that are yielded, or the first error.
func collect[T any](all iter.Seq2[T, error]) (list []T, err error) {
	for one, err := range all {
		if err != nil {
			return nil, err
		}
		list = append(list, one)
	}
	return list, nil
}
