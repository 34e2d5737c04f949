package nginxrules

import (
	"fmt"
	"strings"
)

type lexer struct {
	file, text string
	line, at   int
}

const eof = "end of file"

func (l *lexer) errorf(format string, args ...any) error {
	return fmt.Errorf("%s:%d: "+format, append([]any{l.file, l.line}, args...)...)
}

// directive reads a directive up to its end: ; or { or } or eof.
func (l *lexer) directive() (d Directive, end string, err error) {
	d.file = l.file
	for began := false; ; {
		word, plain, err := l.word()
		if err != nil {
			return d, "", err
		}
		switch {
		case plain && word == ";" && !began:
			continue
		case plain && (word == ";" || word == "{" || word == "}" || word == eof):
			if began && (word == "}" || word == eof) {
				return d, "", l.errorf("%s: ; is missing", d.Name)
			}
			return d, word, nil
		case !began: // the name may be "", in a map
			d.Name, d.line, began = word, l.line, true
		default:
			d.Args = append(d.Args, word)
		}
	}
}

// word reads the next word. A plain word has no quotes.
func (l *lexer) word() (word string, plain bool, err error) {
	l.blanks()
	if l.at == len(l.text) {
		return eof, true, nil
	}
	switch c := l.text[l.at]; c {
	case ';', '{', '}':
		l.at++
		return string(c), true, nil
	case '"', '\'':
		return l.quoted(c)
	}
	start := l.at
	for ; l.at < len(l.text) && !strings.ContainsRune(" \t\r\n;{", rune(l.text[l.at])); l.at++ {
		switch {
		case l.text[l.at] == '\\' && l.at+1 < len(l.text):
			l.at++
		case strings.HasPrefix(l.text[l.at:], "${"):
			if i := strings.IndexByte(l.text[l.at:], '}'); i > 0 {
				l.at += i
			}
		}
	}
	return escapes.Replace(l.text[start:l.at]), true, nil
}

// blanks skips blanks and comments.
func (l *lexer) blanks() {
	for ; l.at < len(l.text); l.at++ {
		switch l.text[l.at] {
		case '\n':
			l.line++
		case ' ', '\t', '\r':
		case '#':
			for l.at+1 < len(l.text) && l.text[l.at+1] != '\n' {
				l.at++
			}
		default:
			return
		}
	}
}

// escapes are what a backslash stands for, with quotes and without; one before another letter stays.
var escapes = strings.NewReplacer(`\"`, `"`, `\'`, `'`, `\\`, `\`, `\t`, "\t", `\r`, "\r", `\n`, "\n")

func (l *lexer) quoted(quote byte) (word string, plain bool, err error) {
	start := l.at + 1
	for i := start; i < len(l.text); i++ {
		if l.text[i] == quote {
			l.at = i + 1
			return escapes.Replace(l.text[start:i]), false, nil
		}
		if l.text[i] == '\\' && i+1 < len(l.text) {
			i++
		}
		if l.text[i] == '\n' {
			l.line++
		}
	}
	return "", false, l.errorf("a quote has no end")
}

func (l *lexer) skip() error {
	for deep := 1; l.at < len(l.text); l.at++ {
		switch c := l.text[l.at]; {
		case c == '\n':
			l.line++
		case c == '-' && strings.HasPrefix(l.text[l.at:], "--"):
			for l.at+1 < len(l.text) && l.text[l.at+1] != '\n' {
				l.at++
			}
		case c == '"' || c == '\'':
			if _, _, err := l.quoted(c); err != nil {
				return err
			}
			l.at-- // the loop adds one
		case c == '{':
			deep++
		case c == '}':
			if deep--; deep == 0 {
				l.at++
				return nil
			}
		}
	}
	return l.errorf("a block has no end: } is missing")
}
