package rules

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/stint-dev/stint/internal/wording"
	"github.com/stint-dev/stint/policy/rulesfile"
	"go.yaml.in/yaml/v4"
)

// clearer replaces reasons and hints of the YAML library. Errors with began are reported where the
// construct began, since the library notices them late.
var clearer = []struct {
	says         string
	reason, hint string
	began        bool
}{
	{"mapping values are not allowed in this context", "a colon where no field can begin",
		"put text that holds a colon and a blank in quotes, or check the indentation", false},
	{"could not find expected ':'", "a name without a colon", "a field is written name: value", true},
	{"did not find expected key", "neither a field of the map nor its end", "the fields of a map begin in one column", false},
	{"did not find expected '-' indicator", "neither an item of the list nor its end", "the items of a list begin in one column", false},
	{"did not find expected ',' or ']'", "a list that is not closed", "want a comma or ]", true},
	{"did not find expected ',' or '}'", "a map that is not closed", "want a comma or }", true},
	{"found unexpected end of stream", "text without the quote that ends it", "", true},
	{"found unexpected document indicator", "text without the quote that ends it", "", true},
	{"found unknown escape character", "no escape that YAML knows", `in double quotes a backslash is written \\; in single quotes it is itself`, false},
	{"found a tab character where an indentation space is expected", "a tab in the indentation", "indent with spaces", false},
	{"found a tab character that violates indentation", "a tab in the indentation", "indent with spaces", false},
	{"did not find expected <document start>", "something follows the end of the document", "one document a file", false},
	{"did not find expected node content", "no value where one must be", "", false},
}

// explain turns an error of the library into one that says what would be right.
func explain(data []byte, err error) *rulesfile.Error {
	load, ok := errors.AsType[*yaml.LoadError](err)
	if !ok {
		return &rulesfile.Error{Reason: "not YAML: " + err.Error()}
	}
	e := &rulesfile.Error{Line: load.Mark.Line, Column: load.Mark.Column, Reason: "not YAML: " + load.Message}
	if load.ContextMsg != "" {
		e.Reason = fmt.Sprintf("not YAML: %s, %s", load.ContextMsg, load.Message)
	}
	if strings.HasSuffix(load.Message, errDeep.Error()) {
		e.Reason, e.Hint = deepReason, ""
	}
	if name, ok := strings.CutPrefix(load.Message, "unknown anchor '"); ok {
		e.Reason = "no anchor &" + wording.Shorten(strings.TrimSuffix(name, "' referenced")) + " before this alias"
		e.Hint = "put text that begins with a star in quotes"
	}
	if load.Message == "found character that cannot start any token" {
		c, _ := utf8.DecodeRune(rest(data, e.Line, e.Column))
		e.Reason, e.Hint = cannotBegin(c)
	}
	for _, p := range clearer {
		if load.Message == p.says {
			e.Reason, e.Hint = p.reason, p.hint
			if p.began && load.ContextMark.Line > 0 {
				e.Line, e.Column = load.ContextMark.Line, load.ContextMark.Column
			}
		}
	}
	if e.Line == 0 && load.ContextMark.Line > 0 {
		e.Line, e.Column = load.ContextMark.Line, load.ContextMark.Column
	}
	if load.Mark.Line > 0 && len(bytes.TrimSpace(rest(data, load.Mark.Line, load.Mark.Column))) == 0 {
		e.Hint = strings.TrimPrefix(e.Hint+"; the file ends before, and may be truncated", "; ")
	}
	return e
}

// cannotBegin says why no value may begin with c.
func cannotBegin(c rune) (reason, hint string) {
	if c == '\t' {
		return "a tab in the indentation", "indent with spaces"
	}
	return fmt.Sprintf("no value begins with %q", c), "put the text in quotes"
}

// rest returns the data from a line and column on.
func rest(data []byte, line, column int) []byte {
	for ; line > 1; line-- {
		_, data, _ = bytes.Cut(data, []byte("\n"))
	}
	for ; column > 1 && len(data) > 0; column-- {
		_, size := utf8.DecodeRune(data)
		data = data[size:]
	}
	return data
}
