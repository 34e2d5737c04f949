package nginxrules

import (
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// A dump is what nginx -T writes: the configuration, and each file that it includes.
type dump struct {
	names []string // in order; the first is the configuration
	texts map[string]string
	used  map[string]bool
}

// part matches the line before each file.
var part = regexp.MustCompile(`(?m)^# configuration file (.+):\r?$`)

// dumpOf returns nil for a text that is no dump.
func dumpOf(text string) *dump {
	all := part.FindAllStringSubmatchIndex(text, -1)
	if len(all) == 0 {
		return nil
	}
	d := &dump{texts: make(map[string]string), used: make(map[string]bool)}
	for i, m := range all {
		end := len(text)
		if i+1 < len(all) {
			end = all[i+1][0]
		}
		name := filepath.Clean(text[m[2]:m[3]])
		if _, twice := d.texts[name]; !twice {
			d.names = append(d.names, name)
		}
		d.texts[name] = strings.TrimPrefix(text[m[1]:end], "\n")
	}
	return d
}

// directives reads the files, each where it is included. A file that no other includes counts
// as a part of http, since somebody may have shortened the dump.
func (d *dump) directives() ([]Directive, error) {
	r := &Reader{Read: d.read, Glob: d.glob}
	all, err := r.File(d.names[0])
	if err != nil {
		return nil, err
	}
	for _, name := range d.names {
		if d.used[name] {
			continue
		}
		more, err := r.File(name)
		if err != nil {
			return nil, err
		}
		for i := range all {
			if all[i].Name == "http" {
				all[i].Block = append(all[i].Block, more...)
				more = nil
			}
		}
		all = append(all, more...)
	}
	return all, nil
}

func (d *dump) read(name string) ([]byte, error) {
	text, ok := d.texts[name]
	if !ok {
		return nil, fmt.Errorf("%s: %w in the dump", name, fs.ErrNotExist)
	}
	d.used[name] = true
	return []byte(text), nil
}

// glob finds files of the dump. A directory exists even if the dump has no file of it, since
// nginx has looked into it.
func (d *dump) glob(pattern string) (all []string, err error) {
	if !strings.ContainsAny(pattern, "*?[") {
		return []string{pattern}, nil
	}
	for _, name := range d.names {
		ok, err := path.Match(pattern, name)
		if err != nil {
			return nil, err
		}
		if ok {
			all = append(all, name)
		}
	}
	return all, nil
}
