package nginxrules

import (
	"fmt"
	"path/filepath"
	"strings"
)

// A Directive is a line of a configuration, or a block.
type Directive struct {
	Name  string
	Args  []string
	Block []Directive

	file string
	line int
}

// where says where it stands.
func (d *Directive) where() string { return fmt.Sprintf("%s:%d", d.file, d.line) }

// mostIncluded bounds how many files a configuration includes, and deepest how
// many include one another.
const (
	mostIncluded = 1000
	deepest      = 20
)

// A Reader reads configurations.
type Reader struct {
	// Read returns a file's text, and Glob the files of a pattern.
	Read func(name string) ([]byte, error)
	Glob func(pattern string) ([]string, error)

	read, deep int
	dir        string // of the first file, from which nginx includes
}

// File reads a configuration and what it includes. Errors name file and line.
func (r *Reader) File(name string) ([]Directive, error) {
	text, err := r.Read(name)
	if err != nil {
		return nil, err
	}
	r.dir = filepath.Dir(name)
	return r.block(&lexer{file: name, line: 1, text: string(text)}, false)
}

// block reads directives up to the end of a block, or of the file.
func (r *Reader) block(l *lexer, inner bool) (all []Directive, err error) {
	for {
		d, end, err := l.directive()
		if err != nil {
			return nil, err
		}
		switch {
		case end == eof && inner:
			return nil, l.errorf("a block has no end: } is missing")
		case end == eof:
			return all, nil
		case end == "}" && !inner:
			return nil, l.errorf("} ends no block")
		case end == "}":
			return all, nil
		case end == "{" && strings.HasSuffix(d.Name, "_by_lua_block"):
			err = l.skip()
		case end == "{":
			d.Block, err = r.block(l, true)
		case d.Name == "include" && len(d.Args) == 1:
			var more []Directive
			if more, err = r.include(&d); err == nil {
				all = append(all, more...)
			}
		}
		if err != nil {
			return nil, err
		}
		if d.Name != "include" {
			all = append(all, d)
		}
	}
}

// include reads the files that a directive names.
func (r *Reader) include(d *Directive) (all []Directive, err error) {
	pattern := d.Args[0]
	if !filepath.IsAbs(pattern) {
		pattern = filepath.Join(r.dir, pattern)
	}
	names := []string{pattern}
	if strings.ContainsAny(pattern, "*?[") {
		if names, err = r.Glob(pattern); err != nil {
			return nil, fmt.Errorf("%s: %w", d.where(), err)
		}
	}
	if r.deep++; r.deep > deepest {
		return nil, fmt.Errorf("%s: files include one another more than %d deep: maybe one includes itself", d.where(), deepest)
	}
	for _, name := range names {
		if r.read++; r.read > mostIncluded {
			return nil, fmt.Errorf("%s: more than %d files are included", d.where(), mostIncluded)
		}
		text, err := r.Read(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", d.where(), err)
		}
		more, err := r.block(&lexer{file: name, line: 1, text: string(text)}, false)
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	r.deep--
	return all, nil
}

// A lexer cuts a configuration into words.
type lexer struct {
	file, text string
	line, at   int
}

// eof stands for the end of the file among the words.
const eof = "end of file"

func (l *lexer) errorf(format string, args ...any) error {
	return fmt.Errorf("%s:%d: "+format, append([]any{l.file, l.line}, args...)...)
}

// directive reads words up to ; or { or }.
func (l *lexer) directive() (d Directive, end string, err error) {
	d.file = l.file
	for {
		word, plain, err := l.word()
		if err != nil {
			return d, "", err
		}
		switch {
		case plain && word == ";" && d.Name == "":
			continue
		case plain && (word == ";" || word == "{" || word == "}" || word == eof):
			if d.Name != "" && (word == "}" || word == eof) {
				return d, "", l.errorf("%s: ; is missing", d.Name)
			}
			return d, word, nil
		case d.Name == "":
			d.Name, d.line = word, l.line
		default:
			d.Args = append(d.Args, word)
		}
	}
}

// word reads the next word; plain is one without quotes.
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
	return l.text[start:l.at], true, nil
}

// blanks passes over what is between words.
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

func (l *lexer) quoted(quote byte) (word string, plain bool, err error) {
	var b strings.Builder
	for i := l.at + 1; i < len(l.text); i++ {
		switch c := l.text[i]; {
		case c == quote:
			l.at = i + 1
			return b.String(), false, nil
		case c == '\\' && i+1 < len(l.text) && (l.text[i+1] == quote || l.text[i+1] == '\\'):
			i++
			b.WriteByte(l.text[i])
		default:
			if c == '\n' {
				l.line++
			}
			b.WriteByte(c)
		}
	}
	return "", false, l.errorf("a quote has no end")
}

// skip passes over a block of Lua.
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
			l.at-- // the loop goes on behind
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
