package main

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"

	"github.com/alecthomas/kong"
)

// idle has the flags that do nothing without another one, and the command, if it is so in one alone.
var idle = []struct{ command, flag, without, why string }{
	{"", "key", "limit", "in a rules file, each rule has its key"},
	{"", "demo-case", "demo", ""},
	{"", "demo-listen", "demo", ""},
	{"", "snapshot-every", "snapshot", ""},
	{"", "webhook-secret-file", "webhook", ""},
	{"", "rules-password-file", "rules", ""},
	{"", "rules-copy", "rules", ""},
	{"", "keep-revisions", "rules", ""},
	{"", "keep-past", "rules", ""},
	{"", "record-attribute", "admin", ""},
	{"", "resp-limits", "resp", ""},
	{"proxy", "token-file", "admin", "clients of the proxy show no token"},
	{"proxy", "operator-token-file", "admin", "clients of the proxy show no token"},
}

// ofDemo are the flags that --demo without --rules heeds.
var ofDemo = []string{"demo", "demo-case", "demo-listen", "http", "admin"}

// checkFlags returns an error if a flag is given twice, is empty, or does nothing beside the others.
func (e *env) checkFlags(line *kong.Context) error {
	if err := onlyOnce(line); err != nil {
		return err
	}
	serves := slices.Contains(serving, line.Selected().Name)
	if err := e.emptyFlag(line, serves); err != nil || !serves {
		return err
	}
	return e.idleFlag(line)
}

// serving are the commands that take the flags of a server.
var serving = []string{"serve", "proxy", "doctor"}

// named matches what a flag stands for that may not be empty.
var named = regexp.MustCompile(`^(FILE|URL|ADDRESS|CIDR|URL\|DIRECTORY)$`)

// emptyFlag returns an error for an empty name of a file or an address: behind it is often a
// variable that is not set, and without it a server would take everybody, or forget.
func (e *env) emptyFlag(line *kong.Context, serves bool) error {
	for _, p := range line.Path {
		if p.Positional != nil && p.Positional.Name == "file" && isEmpty(p.Positional.Target) {
			return usage("<file>", "empty: give it a value, or leave it out")
		}
	}
	for _, f := range line.Flags() {
		if f.Tag.Has("instead") { // without it, another flag says where
			continue
		}
		if from := e.from(f.Name); named.MatchString(f.PlaceHolder) && isEmpty(f.Target) && (from == "--"+f.Name || serves && from != "") {
			return usage(from, "empty: give it a value, or leave it out")
		}
	}
	return nil
}

// idleFlag returns an error for a flag on the line that can do nothing, and warns of one that the
// environment gave.
func (e *env) idleFlag(line *kong.Context) error {
	flags := make(map[string]*kong.Flag)
	for _, f := range line.Flags() {
		flags[f.Name] = f
	}
	for _, one := range idle {
		f, other := flags[one.flag], flags[one.without]
		if f == nil || other == nil || !isEmpty(other.Target) || one.command != "" && one.command != line.Selected().Name {
			continue
		}
		why := "has no effect without --" + one.without
		if one.why != "" {
			why += ": " + one.why
		}
		switch from := e.from(f.Name); from {
		case "":
		case "--" + f.Name:
			return usage(from, "%s", why)
		default:
			fmt.Fprintf(e.err, "%s: warning: %s %s\n", line.Selected().FullPath(), from, why)
		}
	}
	if demo := flags["demo"]; demo == nil || isEmpty(demo.Target) || !isEmpty(flags["rules"].Target) {
		return nil
	}
	for _, p := range line.Path {
		switch {
		case p.Positional != nil:
			return usage("--demo", "has rules of its own: leave out %s, or --demo", p.Positional.Target)
		case p.Flag != nil && !slices.Contains(ofDemo, p.Flag.Name):
			return usage("--demo", "has rules and settings of its own: leave out --%s, or --demo", p.Flag.Name)
		}
	}
	return nil
}

// from says where the value of a flag is from: --NAME for the line, --NAME ($VARIABLE) for the environment,
// "" for neither.
func (e *env) from(name string) string {
	for _, p := range e.line.Path {
		if p.Flag != nil && p.Flag.Name == name {
			return "--" + name
		}
	}
	for _, f := range e.line.Flags() {
		for _, variable := range f.Envs {
			if _, set := os.LookupEnv(variable); f.Name == name && set {
				return "--" + name + " ($" + variable + ")"
			}
		}
	}
	return ""
}

func isEmpty(v reflect.Value) bool {
	return v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0
}
