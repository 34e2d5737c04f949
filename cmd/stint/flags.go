package main

import (
	"os"
	"reflect"
	"regexp"
	"slices"

	"github.com/alecthomas/kong"
)

// idle has the flags that do nothing without another one, and the command: "" for those that serve, * for all.
var idle = []struct{ command, flag, without, why string }{
	{"", "key", "limit", "in a rules file, each rule has its key"},
	{"", "demo-case", "demo", ""},
	{"", "demo-listen", "demo", ""},
	{"", "snapshot-every", "snapshot", ""},
	{"", "webhook-secret-file", "webhook", ""},
	{"*", "rules-password-file", "rules", ""},
	{"", "rules-copy", "rules", ""},
	{"", "keep-revisions", "rules", ""},
	{"", "keep-past", "rules", ""},
	{"", "record-attribute", "admin", ""},
	{"", "resp-limits", "resp", ""},
	{"proxy", "token-file", "admin", "clients of the proxy show no token"},
	{"proxy", "operator-token-file", "admin", "clients of the proxy show no token"},
	{"*", "token-file", "server", ""},
	{"*", "author", "rules", "a server takes the author from your token"},
	{"explain", "secret-file", "rules", ""},
	{"push", "rehearse-at", "deny-at-most", ""},
	{"push", "rehearse-token-file", "rehearse-at", ""},
}

// ofDemo are the flags that --demo without --rules heeds.
var ofDemo = []string{"demo", "demo-case", "demo-listen", "http", "admin"}

// checkFlags returns an error if a flag is given twice, is empty, or does nothing beside the others.
func (e *env) checkFlags(line *kong.Context) error {
	if err := onlyOnce(line); err != nil {
		return err
	}
	if err := e.oneOf(line); err != nil {
		return err
	}
	serves := slices.Contains(serving, line.Selected().Name)
	if err := e.emptyFlag(line, serves); err != nil {
		return err
	}
	return e.idleFlag(line, serves)
}

// oneOf returns an error for two flags on the line of which each goes in place of the other.
func (e *env) oneOf(line *kong.Context) error {
	first := make(map[string]string)
	for _, f := range line.Flags() {
		kind := f.Tag.Get("instead")
		switch {
		case kind == "" || isEmpty(f.Target) || e.from(f.Name) != "--"+f.Name:
		case first[kind] != "":
			return usage("--"+f.Name, "goes in place of --%s: give one of both", first[kind])
		default:
			first[kind] = f.Name
		}
	}
	return nil
}

// serving are the commands that take the flags of a server.
var serving = []string{"serve", "proxy", "doctor"}

// named matches what a flag stands for that may not be empty.
var named = regexp.MustCompile(`^(FILE|URL|ADDRESS|CIDR|URL\|DIRECTORY)$`)

// protecting are the flags without which a server takes everybody, or forgets.
var protecting = []string{"token-file", "operator-token-file", "store"}

// emptyFlag returns an error for an empty name of a file or an address on the line: behind it is often
// a variable that is not set. It warns of an empty variable of a flag that protects.
func (e *env) emptyFlag(line *kong.Context, serves bool) error {
	for _, p := range line.Path {
		if p.Positional != nil && p.Positional.Name == "file" && isEmpty(p.Positional.Target) {
			return usage("<file>", "empty: give it a value, or leave it out")
		}
	}
	for _, f := range line.Flags() {
		if f.Tag.Has("instead") || !isEmpty(f.Target) { // without the former, another flag says where
			continue
		}
		if from := e.from(f.Name); from != "" && named.MatchString(f.PlaceHolder) {
			return usage(from, "empty: give it a value, or leave it out")
		}
		if serves && slices.Contains(protecting, f.Name) {
			if _, set := os.LookupEnv(f.Envs[0]); set {
				e.warn("$" + f.Envs[0] + " is empty, which is as if it were not set")
			}
		}
	}
	return nil
}

// idleFlag returns an error for a flag on the line that can do nothing, and warns of one that the
// environment gave a server.
func (e *env) idleFlag(line *kong.Context, serves bool) error {
	flags := make(map[string]*kong.Flag)
	for _, f := range line.Flags() {
		flags[f.Name] = f
	}
	for _, one := range idle {
		f, other := flags[one.flag], flags[one.without]
		at := one.command == "" && serves || one.command == "*" || one.command == line.Selected().Name
		if f == nil || other == nil || !isEmpty(other.Target) || !at {
			continue
		}
		why := "has no effect without --" + one.without
		if one.why != "" {
			why += ": " + one.why
		}
		switch from := e.from(f.Name); {
		case from == "--"+f.Name:
			return usage(from, "%s", why)
		case from != "" && serves && f.Name != "rules-copy": // which units and charts set, wherever the rules are
			e.warn(from + " " + why)
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
			if f.Name == name && os.Getenv(variable) != "" {
				return "--" + name + " ($" + variable + ")"
			}
		}
	}
	return ""
}

func isEmpty(v reflect.Value) bool {
	return v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0
}
