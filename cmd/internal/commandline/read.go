package commandline

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/stint-dev/stint/internal/wording"
)

// Read reads the words of a command line behind the program's name into the
// struct of New, once. It returns the command that they name, which has no
// commands below it, and the first flag among them with which nothing else
// counts, if there is one: then only what stands on the line has been looked at.
func (c *Command) Read(words []string) (at *Command, alone *Value, err error) {
	r := reader{at: c, words: words}
	for len(r.words) > 0 {
		if err := r.word(); err != nil {
			return r.at, nil, err
		}
	}
	if r.alone != nil {
		return r.at, r.alone, nil
	}
	for at := r.at; at != nil; at = at.Parent {
		if err := at.complete(); err != nil {
			return r.at, nil, err
		}
	}
	return r.at, nil, r.at.missing()
}

// A reader is how far a line has been read.
type reader struct {
	at    *Command
	args  int // of at, that are read
	words []string
	plain bool // behind --: no word is a flag
	alone *Value
}

// word reads the next word, and those that belong to it.
func (r *reader) word() error {
	word := r.words[0]
	switch {
	case r.plain || word == "-" || !strings.HasPrefix(word, "-"):
		return r.argument()
	case word == "--":
		r.plain = true
		if !r.passing() {
			r.words = r.words[1:]
		}
		return nil
	}
	r.words = r.words[1:]
	if name, ok := strings.CutPrefix(word, "--"); ok {
		name, value, has := strings.Cut(name, "=")
		f, err := r.find("--" + name)
		if err != nil {
			return err
		}
		return r.flag(f, value, has)
	}
	return r.letters(word[1:])
}

// passing says whether the next argument takes all that follows.
func (r *reader) passing() bool {
	return r.args < len(r.at.Args) && r.at.Args[r.args].passthrough
}

// letters reads flags of one letter, the last of which may have its value behind
// it: -o FILE, -oFILE, -o=FILE.
func (r *reader) letters(word string) error {
	for word != "" {
		_, size := utf8.DecodeRuneInString(word)
		f, err := r.find("-" + word[:size])
		if err != nil {
			return err
		}
		word = word[size:]
		value, has := strings.CutPrefix(word, "=")
		if has = has || word != "" && !f.IsBool(); has {
			return r.flag(f, value, true)
		}
		if err := r.flag(f, "", false); err != nil {
			return err
		}
	}
	return nil
}

// flag reads the value of a flag, from the next word unless it has one.
func (r *reader) flag(f *Value, value string, has bool) error {
	if f.Alone && r.alone == nil {
		r.alone = f
	}
	if !has && !f.IsBool() {
		if len(r.words) == 0 {
			return fmt.Errorf("%s: its value is missing", f.title())
		}
		value = r.words[0]
		if !r.plain && value != "-" && strings.HasPrefix(value, "-") {
			return fmt.Errorf("%s: its value is missing: %s is a flag; to give it as the value, write %s=%s", f.title(), shown(value), f.title(), shown(value))
		}
		r.words, has = r.words[1:], true
	}
	if !has {
		value = "true"
	}
	return f.set(value)
}

// argument reads an argument or the name of a command.
func (r *reader) argument() error {
	word := r.words[0]
	if r.passing() {
		for _, w := range r.words {
			if err := r.at.Args[r.args].set(w); err != nil {
				return err
			}
		}
		r.words = nil
		return nil
	}
	r.words = r.words[1:]
	if r.args < len(r.at.Args) {
		a := r.at.Args[r.args]
		if !a.cumulative() {
			r.args++
		}
		return a.set(word)
	}
	var names []string
	for _, child := range r.at.Children {
		if child.Name == word {
			r.at, r.args = child, 0
			return nil
		}
		if !child.Hidden {
			names = append(names, child.Name)
		}
	}
	if len(r.at.Children) > 0 {
		return suggest("unknown command "+shown(word), word, "", names)
	}
	return fmt.Errorf("unexpected argument %s", shown(word))
}

// find returns the flag that is written so, --name or -n. One letter is like any
// other, so that none is suggested.
func (r *reader) find(word string) (*Value, error) {
	var names []string
	for _, f := range r.at.known() {
		if word == "--"+f.Name || f.Short != 0 && word == "-"+string(f.Short) {
			return f, nil
		}
		names = append(names, f.Name)
	}
	name, long := strings.CutPrefix(word, "--")
	if !long {
		names = nil
	}
	return nil, suggest("unknown flag "+shown(word), name, "--", names)
}

// shown writes a word as it is, unless it would then not be seen as one: without
// what of a URL may be a password.
func shown(word string) string {
	if scheme, rest, ok := strings.Cut(word, "://"); ok {
		rest, behind, _ := strings.Cut(rest, "?")
		at := strings.LastIndexByte(rest, '@')
		word = scheme + "://" + rest[at+1:]
		if at < 0 && strings.Contains(behind, "@") { // a ? in the password
			word = "…"
		}
	} else if secret.MatchString(word) {
		word = "…"
	}
	word = wording.Shorten(word)
	quoted := strconv.Quote(word)
	if word == "" || strings.ContainsRune(word, ' ') || quoted != `"`+word+`"` {
		return quoted
	}
	return word
}

// secret is what a word has that may be a password, beside those of URLs.
var secret = regexp.MustCompile(`(?i):[^/]*@|(password|secret|token)[^=]*=`)

// suggest is the error about a word, with the known ones that it may be, written
// behind dashes.
func suggest(text, word, dashes string, known []string) error {
	var near []string
	for _, one := range known {
		if word != "" && strings.HasPrefix(one, word) || wording.Distance(word, one) <= min(2, len(word)/2) {
			near = append(near, strconv.Quote(dashes+one))
		}
	}
	switch len(near) {
	case 0:
		return errors.New(text)
	case 1:
		return fmt.Errorf("%s, did you mean %s?", text, near[0])
	}
	return fmt.Errorf("%s, did you mean one of %s?", text, strings.Join(near, ", "))
}

// complete takes from the environment, or as the default, what the line does not
// say, and looks at what it does.
func (c *Command) complete() error {
	all := slices.Concat(c.Flags, c.Args)
	said := make(map[string]bool) // what the line has one of
	for _, v := range all {
		if v.given && v.instead != "" {
			said[v.instead] = true
		}
	}
	for _, v := range all {
		text, ok := "", false
		if v.Env != "" && !said[v.instead] {
			text, ok = os.LookupEnv(v.Env)
		}
		switch {
		case v.given:
		case ok:
			if err := v.set(text); err != nil {
				return fmt.Errorf("%w (from the environment variable %s)", err, v.Env)
			}
		case v.fallback != "":
			if err := v.set(v.fallback); err != nil {
				return err
			}
		}
		if err := v.checkEnum(); err != nil {
			return err
		}
	}
	return nil
}

// missing returns what is missing on the line, as an error.
func (c *Command) missing() error {
	var flags, next []string
	for at := c; at != nil; at = at.Parent {
		for _, f := range at.Flags {
			if f.Required && !f.given {
				flags = append(flags, f.Summary())
			}
		}
	}
	if len(flags) > 0 {
		slices.Sort(flags)
		return fmt.Errorf("missing flags: %s", strings.Join(flags, ", "))
	}
	for _, a := range c.Args {
		if a.Required && !a.given {
			next = append(next, a.Summary())
		}
	}
	if len(next) > 0 {
		return fmt.Errorf("missing arguments: %s", strings.Join(next, " "))
	}
	for _, child := range c.Children {
		if !child.Hidden {
			next = append(next, child.Name)
		}
	}
	if len(next) == 0 {
		return nil
	}
	return fmt.Errorf("missing command: one of %s", strings.Join(next, ", "))
}

// set reads text into the field. What takes more than one adds to what is there.
func (v *Value) set(text string) error {
	v.given = true
	switch to := v.field.Addr().Interface().(type) {
	case *time.Duration:
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%s: want a duration such as 10s or 5m, not %q", v.title(), text)
		}
		*to = d
		return nil
	case *[]string:
		if !v.flag {
			*to = append(*to, text)
			return nil
		}
		*to = append(*to, splitEscaped(text, v.separator)...)
		return nil
	case *map[string]string:
		key, value, ok := strings.Cut(text, "=")
		if !ok {
			return fmt.Errorf("%s: want NAME=VALUE, not %q", v.title(), text)
		}
		if *to == nil {
			*to = map[string]string{}
		}
		(*to)[key] = value
		return nil
	}
	return v.setPlain(text)
}

// setPlain reads text into a field by its kind.
func (v *Value) setPlain(text string) error {
	switch v.field.Kind() {
	case reflect.String:
		v.field.SetString(text)
	case reflect.Bool:
		is, ok := truth[strings.ToLower(text)]
		if !ok {
			return fmt.Errorf("%s: want true or false, not %q", v.title(), text)
		}
		v.field.SetBool(is)
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(text, 0, v.field.Type().Bits())
		if errors.Is(err, strconv.ErrRange) {
			return fmt.Errorf("%s: %s does not fit into %d bits", v.title(), shown(text), v.field.Type().Bits())
		}
		if err != nil {
			return fmt.Errorf("%s: want a whole number, not %q", v.title(), text)
		}
		v.field.SetInt(n)
	}
	return nil
}

var truth = map[string]bool{"true": true, "1": true, "yes": true, "false": false, "0": false, "no": false}

// checkEnum looks at a value that may be one of a few.
func (v *Value) checkEnum() error {
	if len(v.Enum) == 0 || !v.given || slices.Contains(v.Enum, v.field.String()) {
		return nil
	}
	quoted := make([]string, len(v.Enum))
	for i, one := range v.Enum {
		quoted[i] = strconv.Quote(one)
	}
	return fmt.Errorf("%s must be one of %s but got %q", v.title(), strings.Join(quoted, ","), v.field.String())
}

// splitEscaped cuts text at separators; one behind a backslash is not one.
func splitEscaped(text, separator string) (items []string) {
	if separator == "" {
		return []string{text}
	}
	for text != "" {
		item := ""
		for {
			before, after, found := strings.Cut(text, separator)
			text = after
			if head, escaped := strings.CutSuffix(before, `\`); escaped && found {
				item += head + separator
				continue
			}
			item += before
			break
		}
		items = append(items, item)
	}
	return items
}
