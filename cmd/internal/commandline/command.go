// Package commandline reads a command line into a struct, and writes the help of
// each command, both by the tags of the struct's fields:
//
//	cmd:""            a struct that is a command, below the one around it
//	arg:""            an argument; a slice takes all that follow
//	embed:""          a struct whose fields stand here
//	help:"TEXT"       what it is; ${default} in it is the default
//	name:"NAME"       its name, in place of the field's
//	short:"x"         a flag's letter
//	default:"VALUE"   what it is when neither the line nor env says
//	env:"NAME"        the environment variable that says so
//	instead:"NAME"    of values with the same name, one that the line has keeps env
//	                  from saying what another is
//	enum:"a,b"        the values that it may have
//	placeholder:"X"   what stands for the value in the help
//	group:"TITLE"     the part of the help that a flag is in
//	sep:"none"        a value is one item, and commas in it are its own
//	optional:""       an argument that may be left out
//	required:""       a flag that may not
//	passthrough:""    an argument that takes whatever follows, flags too
//	hidden:""         not in the help
//	alone:""          a flag with which nothing else on the line counts
//
// Fields are strings, bools, ints, int64s, durations, slices of strings and maps
// of strings. No method is looked up by its name while the program runs, so that
// the linker can leave out what nothing calls: that is why this package is here.
package commandline

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// A Command is the program or one of its commands.
type Command struct {
	Name   string
	Help   string // one line
	Hidden bool

	Parent   *Command // nil for the program
	Children []*Command
	Flags    []*Value // of its own
	Args     []*Value

	target reflect.Value
}

// A Value is a flag or an argument.
type Value struct {
	Name     string
	Short    rune // 0 is none
	Help     string
	Env      string
	Enum     []string
	Group    string
	Hidden   bool
	Required bool
	Alone    bool // with it, nothing else on the line counts

	flag        bool
	passthrough bool
	instead     string // what values that stand for each other share
	fallback    string // the default
	placeholder string
	separator   string // between items; "" is none
	typeName    string
	field       reflect.Value
	given       bool // on the line, by env or as the default
}

// helpName is the flag that every command has.
const helpName = "help"

// New returns the program of that name, whose commands, flags and arguments are
// the fields of the struct that to points at. It panics if a tag is wrong.
func New(name, help string, to any) *Command {
	c := &Command{Name: name, Help: help, target: reflect.ValueOf(to).Elem()}
	c.Flags = []*Value{{
		Name: helpName, Short: 'h', Help: "Show context-sensitive help.",
		Alone: true, flag: true, field: reflect.ValueOf(new(bool)).Elem(),
	}}
	c.build()
	return c
}

// build makes what is in c of the fields of its struct.
func (c *Command) build() {
	c.addFields(c.target)
	for i, a := range c.Args[:max(len(c.Args)-1, 0)] {
		if a.cumulative() || !a.Required && c.Args[i+1].Required {
			panic(fmt.Sprintf("%s: %s cannot stand before another argument", c.FullPath(), a.title()))
		}
	}
	if len(c.Args) > 0 && len(c.Children) > 0 {
		panic(c.FullPath() + ": either arguments or commands")
	}
}

func (c *Command) addFields(of reflect.Value) {
	for i := range of.NumField() {
		field, value := of.Type().Field(i), of.Field(i)
		_, embed := field.Tag.Lookup("embed")
		_, command := field.Tag.Lookup("cmd")
		switch {
		case embed || field.Anonymous:
			c.addFields(value)
		case !field.IsExported():
		case command:
			c.addCommand(field, value)
		default:
			c.addValue(field, value)
		}
	}
}

func (c *Command) addCommand(field reflect.StructField, value reflect.Value) {
	_, hidden := field.Tag.Lookup("hidden")
	child := &Command{
		Name: nameOf(field), Help: field.Tag.Get("help"), Hidden: hidden, Parent: c, target: value,
	}
	child.build()
	c.Children = append(c.Children, child)
}

func (c *Command) addValue(field reflect.StructField, value reflect.Value) {
	has := func(key string) bool { _, ok := field.Tag.Lookup(key); return ok }
	v := &Value{
		Name: nameOf(field), Env: field.Tag.Get("env"), Group: field.Tag.Get("group"),
		Hidden: has("hidden"), Alone: has("alone"), flag: !has("arg"), passthrough: has("passthrough"),
		instead: field.Tag.Get("instead"), fallback: field.Tag.Get("default"), placeholder: field.Tag.Get("placeholder"),
		separator: ",", typeName: field.Type.Name(), field: value,
	}
	v.Required = has("required") || !v.flag && !has("optional") && v.fallback == ""
	v.Help = strings.ReplaceAll(field.Tag.Get("help"), "${default}", v.fallback)
	v.Short, _ = utf8.DecodeRuneInString(field.Tag.Get("short"))
	if v.Short == utf8.RuneError {
		v.Short = 0
	}
	if has("enum") {
		v.Enum = strings.Split(field.Tag.Get("enum"), ",")
	}
	if field.Tag.Get("sep") == "none" || value.Kind() == reflect.Map {
		v.separator = ""
	}
	if !readable(value) {
		panic(fmt.Sprintf("%s: %s: no value of type %v is read", c.FullPath(), v.title(), field.Type))
	}
	if !v.flag {
		c.Args = append(c.Args, v)
		return
	}
	for _, f := range c.known() {
		if f.Name == v.Name || v.Short != 0 && f.Short == v.Short {
			panic(fmt.Sprintf("%s: %s is there twice, or its letter", c.FullPath(), v.title()))
		}
	}
	c.Flags = append(c.Flags, v)
}

// readable says whether set has a case for a field.
func readable(field reflect.Value) bool {
	switch field.Addr().Interface().(type) {
	case *time.Duration, *[]string, *map[string]string:
		return true
	}
	switch field.Kind() {
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int64:
		return true
	}
	return false
}

func nameOf(field reflect.StructField) string {
	if name := field.Tag.Get("name"); name != "" {
		return name
	}
	return dashed(field.Name)
}

// dashed writes CheckStore as check-store, and TLSCert as tls-cert.
func dashed(name string) string {
	var b strings.Builder
	runes := []rune(name)
	for i, r := range runes {
		upper := unicode.IsUpper(r)
		if i > 0 && upper && (!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])) {
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// Detail returns what the command's Help method says, if it has one.
func (c *Command) Detail() string {
	if detailed, ok := c.Target().(interface{ Help() string }); ok {
		return detailed.Help()
	}
	return ""
}

// Path returns the names of the commands down to c, without the program's.
func (c *Command) Path() string {
	if c.Parent == nil {
		return ""
	}
	return strings.TrimSpace(c.Parent.Path() + " " + c.Name)
}

// FullPath returns the program's name and those of the commands down to c.
func (c *Command) FullPath() string {
	return strings.TrimSpace(c.root().Name + " " + c.Path())
}

func (c *Command) root() *Command {
	for c.Parent != nil {
		c = c.Parent
	}
	return c
}

// Target returns a pointer to the struct that c was made from.
func (c *Command) Target() any { return c.target.Addr().Interface() }

// AllFlags returns the flags that the help of c shows: of the program --help
// alone, those of the commands above, its own.
func (c *Command) AllFlags() (levels [][]*Value) {
	for at := c; at != nil; at = at.Parent {
		var level []*Value
		for _, f := range at.Flags {
			if !f.Hidden && (at == c || at.Parent != nil || f.Name == helpName) {
				level = append(level, f)
			}
		}
		if len(level) > 0 {
			levels = append([][]*Value{level}, levels...)
		}
	}
	return levels
}

// known returns the flags that may stand behind the name of c.
func (c *Command) known() (flags []*Value) {
	if c.Parent != nil {
		flags = c.Parent.known()
	}
	return append(flags, c.Flags...)
}

// Summary writes what may stand on the line: the path of c, its arguments, and
// whether it takes flags.
func (c *Command) Summary() string {
	var words []string
	if c.Parent != nil {
		words = append(words, c.Path())
	}
	for _, f := range c.known() {
		if f.Required {
			words = append(words, f.Summary())
		}
	}
	open := 0
	for _, a := range c.Args {
		text := a.Summary()
		if !a.Required {
			text = strings.TrimSuffix(text, "]")
			open++
		}
		words = append(words, text)
	}
	if open > 0 {
		words[len(words)-1] += strings.Repeat("]", open)
	}
	if len(c.Args) == 0 && len(c.Children) > 0 {
		words = append(words, "<command>")
	}
	flags := c.Flags
	if c.Parent != nil {
		flags = append(flags[:len(flags):len(flags)], c.Parent.Flags...)
	}
	for _, f := range flags {
		if f.Name != helpName && !f.Required {
			words = append(words, "[flags]")
			break
		}
	}
	return strings.Join(words, " ")
}

// Summary writes the value as it stands in a usage line.
func (v *Value) Summary() string {
	switch {
	case v.flag && v.IsBool():
		return "--" + v.Name
	case v.flag:
		return "--" + v.Name + "=" + v.shape()
	}
	return v.title()
}

// title is what an error calls the value.
func (v *Value) title() string {
	if v.flag {
		return "--" + v.Name
	}
	text := "<" + v.Name + ">"
	if v.cumulative() {
		text += " ..."
	}
	if !v.Required {
		text = "[" + text + "]"
	}
	return text
}

// shape is what stands for the value of a flag.
func (v *Value) shape() string {
	tail := ""
	if v.separator != "" && v.field.Kind() == reflect.Slice {
		tail = v.separator + "..."
	}
	switch {
	case v.placeholder != "":
		return v.placeholder + tail
	case v.fallback != "" && v.field.Kind() == reflect.String:
		return strconv.Quote(v.fallback) + tail
	case v.fallback != "":
		return v.fallback + tail
	case v.field.Kind() == reflect.Map:
		return "KEY=VALUE"
	case v.typeName != "":
		return strings.ToUpper(dashed(v.typeName)) + tail
	}
	return strings.ToUpper(v.Name) + tail
}

// IsBool says whether a flag stands without a value.
func (v *Value) IsBool() bool { return v.field.Kind() == reflect.Bool }

// cumulative says whether the value takes more than one word.
func (v *Value) cumulative() bool {
	return v.field.Kind() == reflect.Slice || v.field.Kind() == reflect.Map
}
