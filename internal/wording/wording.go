// Package wording has what error messages and reports are made of: the word
// that was likely meant, values cut to a readable length, numbers, arguments quoted
// for a shell.
package wording

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
)

// Nearest returns the known word that differs from word by the fewest letters,
// and by fewer than below; the first of equals in the order of the alphabet. It
// returns "" if none is near.
func Nearest(word string, known iter.Seq[string], below int) string {
	best, least := "", below
	for k := range known {
		if n := Distance(word, k); n < least || n == least && best != "" && k < best {
			best, least = k, n
		}
	}
	return best
}

// Distance returns how many letters must change to make a of b (Levenshtein), where
// two neighbours that change places are one change. Words longer than people type, or of very different lengths, are 4 apart.
func Distance(a, b string) int {
	if len(a) > 64 || len(a)-len(b) > 3 || len(b)-len(a) > 3 {
		return 4
	}
	row, before := make([]int, len(b)+1), make([]int, len(b)+1) // of a[:i] and a[:i-1]
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next := make([]int, len(b)+1)
		next[0] = i + 1
		for j := range len(b) {
			next[j+1] = min(row[j+1], next[j]) + 1
			if a[i] == b[j] {
				next[j+1] = min(next[j+1], row[j])
			} else {
				next[j+1] = min(next[j+1], row[j]+1)
			}
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}

// Shorten cuts a value to at most 80 bytes, so that a message that quotes it
// stays readable.
func Shorten(s string) string { return cut(s, 80) }

// Sprintf formats with strings, which may be messages themselves, cut to at most 500
// bytes.
func Sprintf(format string, args ...any) string {
	args = slices.Clone(args)
	for i, arg := range args {
		if s, ok := arg.(string); ok {
			args[i] = cut(s, 500)
		}
	}
	return fmt.Sprintf(format, args...)
}

func cut(s string, most int) string {
	if len(s) > most {
		return strings.ToValidUTF8(s[:most-len("…")], "") + "…"
	}
	return s
}

// QuoteShell puts text in quotes where a shell would read it otherwise, or a
// reader might take it for an option.
func QuoteShell(s string) string {
	special := func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-_./,:=@%+", c))
	}
	if s == "-" || s != "" && s[0] != '-' && !strings.ContainsFunc(s, special) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// Grouped writes a number with commas between thousands.
func Grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Count writes a number of things, of which one is given: "1 request", "1,000 requests".
func Count(n int64, one string) string {
	if n != 1 {
		one += "s"
	}
	return Grouped(n) + " " + one
}

// blocks are the heights of a bar in eighths.
var blocks = []rune(" ▁▂▃▄▅▆▇█")

// Bars draws counts from 0 to full as blocks: whatever is above zero shows, and only the full
// count is full.
func Bars(counts []int64, full int64) string {
	bars := make([]rune, len(counts))
	for i, n := range counts {
		at := 0
		if n >= full && n > 0 {
			at = 8
		} else if n > 0 {
			at = min(int(float64(n)/float64(full)*8)+1, 7)
		}
		bars[i] = blocks[at]
	}
	return string(bars)
}
