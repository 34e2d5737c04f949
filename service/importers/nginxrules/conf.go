package nginxrules

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A Directive is a line of a configuration, or a block.
type Directive struct {
	Name  string
	Args  []string
	Block []Directive

	file string
	line int
	gone string // why an include could not be read
}

func (d *Directive) where() string { return fmt.Sprintf("%s:%d", d.file, d.line) }

func (d *Directive) last() string { return slices.Concat([]string{""}, d.Args)[len(d.Args)] }

func (d *Directive) has(names ...string) bool {
	for i := range d.Block {
		for _, name := range names {
			if d.Block[i].Name == name {
				return true
			}
		}
	}
	return false
}

// within reports whether a directive of a name is among others, or in their blocks.
func within(all []Directive, name string) bool {
	return slices.ContainsFunc(all, func(d Directive) bool { return d.Name == name || within(d.Block, name) })
}

// says reports whether a directive has the value somewhere.
func says(all []Directive, name, value string) bool {
	return slices.ContainsFunc(all, func(d Directive) bool {
		return d.Name == name && len(d.Args) == 1 && d.Args[0] == value || says(d.Block, name, value)
	})
}

// mostIncluded bounds how many files a configuration includes, deepest how deep includes,
// blocks and variables are nested.
const (
	mostIncluded = 1000
	deepest      = 20
)

// A Reader reads one configuration.
type Reader struct {
	// Read returns a file's text, and Glob the files of a pattern.
	Read func(name string) ([]byte, error)
	Glob func(pattern string) ([]string, error)

	read, deep int
	dir        string // of the first file, from which nginx includes
}

// File reads a configuration with the files that it includes, or the output of nginx -T.
// Errors name file and line. An include that cannot be read is no error: it stays among the
// directives, and [Convert] notes it.
func (r *Reader) File(name string) ([]Directive, error) {
	text, err := r.Read(name)
	if err != nil {
		return nil, err
	}
	if d := dumpOf(string(text)); d != nil {
		return d.directives()
	}
	if object.Match(text) {
		return nil, fmt.Errorf("%s: an object of Kubernetes, no configuration of nginx: stint import ingress-nginx reads the annotations of an Ingress", name)
	}
	r.dir = filepath.Dir(name)
	return r.block(&lexer{file: name, line: 1, text: string(text)}, 0)
}

// object matches the beginning of an object of Kubernetes.
var object = regexp.MustCompile(`(?m)^apiVersion: `)

// block reads directives up to the end of a block, or of the file.
func (r *Reader) block(l *lexer, deep int) (all []Directive, err error) {
	if deep > deepest {
		return nil, l.errorf("blocks stand in one another more than %d deep", deepest)
	}
	for {
		d, end, err := l.directive()
		if err != nil {
			return nil, err
		}
		switch {
		case end == eof && deep > 0:
			return nil, l.errorf("a block has no end: } is missing")
		case end == eof:
			return all, nil
		case end == "}" && deep == 0:
			return nil, l.errorf("} ends no block")
		case end == "}":
			return all, nil
		case end == "{" && strings.HasSuffix(d.Name, "_by_lua_block"):
			err = l.skip()
		case end == "{":
			d.Block, err = r.block(l, deep+1)
		case d.Name == "include" && len(d.Args) == 1:
			var more []Directive
			if more, err = r.include(&d); err == nil {
				all = append(all, more...)
			}
		}
		if err != nil {
			return nil, err
		}
		if d.Name != "include" || d.gone != "" {
			all = append(all, d)
		}
	}
}

// include reads the files that a directive names. If it cannot read one, d.gone says why.
func (r *Reader) include(d *Directive) (all []Directive, err error) {
	pattern := d.Args[0]
	if !filepath.IsAbs(pattern) {
		pattern = filepath.Join(r.dir, pattern)
	}
	names := []string{pattern}
	if strings.ContainsAny(pattern, "*?[") {
		if names, err = r.Glob(strings.ReplaceAll(pattern, "[!", "[^")); err != nil {
			return nil, fmt.Errorf("%s: %w", d.where(), err)
		}
		names = slices.DeleteFunc(names, func(name string) bool { // a star takes no dot at the beginning there
			return strings.HasPrefix(filepath.Base(name), ".") && !strings.HasPrefix(filepath.Base(pattern), ".")
		})
		if dir, _ := r.Glob(filepath.Dir(pattern)); len(names) == 0 && len(dir) == 0 {
			d.gone = "there is no " + filepath.Dir(pattern)
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
			d.gone = err.Error()
			continue
		}
		more, err := r.block(&lexer{file: name, line: 1, text: string(text)}, 0)
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	r.deep--
	return all, nil
}

// limitless matches the names of files that come with nginx and its packages, and hold no
// limits.
var limitless = regexp.MustCompile(`(^|/)(mime\.types|[a-z]+_params|fastcgi(-php)?\.conf|koi-(utf|win)|win-utf|options-ssl-nginx\.conf|ssl[^/]*|modules-enabled/.*|modules/.*)$`)

// gone notes the includes that could not be read.
func (c *converter) gone(all []Directive) {
	for i := range all {
		d := &all[i]
		switch {
		case d.gone != "" && limitless.MatchString(d.Args[0]):
			c.note(d, "include %s is not read: %s. Files of this name hold no limits", d.Args[0], d.gone)
		case d.gone != "":
			c.missing = true
			c.lose(d, "include %s is NOT KEPT, with the limits that it may hold: %s", d.Args[0], d.gone)
		}
		c.gone(d.Block)
	}
}
