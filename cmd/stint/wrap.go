package main

import (
	"io"
	"strings"
	"unicode/utf8"
)

// terminal is how many columns a line of text has.
const terminal = 80

// wrap writes lines, those that are longer than a terminal is wide cut at
// blanks, and what is cut off behind hang.
func wrap(w io.Writer, text, hang string) error {
	var b strings.Builder
	for line := range strings.Lines(text) {
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
