package commandline

import (
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

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
