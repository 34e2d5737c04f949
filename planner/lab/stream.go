package lab

import (
	"bufio"
	"encoding/json"
	"io"
	"reflect"
	"strconv"
	"strings"
)

// A streamer writes JSON as package encoding/json does, piece by piece, and
// makes pauses: a large answer is not computed in one go, nor held as a whole.
type streamer struct {
	w     *bufio.Writer
	pause func()
}

// piece is how many numbers are written between two pauses.
const piece = 4096

// stream writes a value and a line break.
func stream(w io.Writer, v any, pause func()) error {
	s := &streamer{bufio.NewWriterSize(w, 32<<10), pause}
	if err := s.value(reflect.ValueOf(v)); err != nil {
		return err
	}
	_ = s.w.WriteByte('\n') // Flush says what went wrong
	return s.w.Flush()
}

var marshaler = reflect.TypeFor[json.Marshaler]()

func (s *streamer) value(v reflect.Value) error {
	s.pause()
	switch {
	case v.Kind() == reflect.Pointer && !v.IsNil() && !v.Type().Implements(marshaler):
		return s.value(v.Elem())
	case v.Kind() == reflect.Struct && !v.Type().Implements(marshaler):
		return s.fields(v)
	case v.Kind() == reflect.Slice && !v.IsNil() && v.Type().Elem().Kind() != reflect.Uint8 && !v.Type().Implements(marshaler):
		return s.list(v)
	}
	b, err := json.Marshal(v.Interface())
	if err != nil {
		return err
	}
	_, err = s.w.Write(b)
	return err
}

// fields writes a struct, whose fields have names in their tags.
func (s *streamer) fields(v reflect.Value) error {
	separator := byte('{')
	for i := range v.NumField() {
		field := v.Type().Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if !field.IsExported() || name == "-" || options == "omitempty" && empty(v.Field(i)) {
			continue
		}
		if field.Anonymous || name == "" {
			b, err := json.Marshal(v.Interface())
			if err == nil {
				_, err = s.w.Write(b)
			}
			return err
		}
		_ = s.w.WriteByte(separator) // Flush says what went wrong
		separator = ','
		_, _ = s.w.WriteString(strconv.Quote(name) + ":")
		if err := s.value(v.Field(i)); err != nil {
			return err
		}
	}
	if separator == '{' {
		_ = s.w.WriteByte('{')
	}
	return s.w.WriteByte('}')
}

// empty is what omitempty leaves out.
func empty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice, reflect.Map, reflect.String:
		return v.Len() == 0
	case reflect.Struct:
		return false
	}
	return v.IsZero()
}

func (s *streamer) list(v reflect.Value) error {
	separator := byte('[')
	for i := range v.Len() {
		_ = s.w.WriteByte(separator) // Flush says what went wrong
		separator = ','
		if one := v.Index(i); one.Kind() == reflect.Int64 || one.Kind() == reflect.Int {
			if i%piece == 0 {
				s.pause()
			}
			_, _ = s.w.Write(strconv.AppendInt(s.w.AvailableBuffer(), one.Int(), 10))
		} else if err := s.value(one); err != nil {
			return err
		}
	}
	if v.Len() == 0 {
		_ = s.w.WriteByte('[')
	}
	return s.w.WriteByte(']')
}
