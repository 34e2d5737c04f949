package commandline

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// set reads text into the field. What takes more than one adds to what is there.
func (v *Value) set(text string) error {
	v.given = true
	switch to := v.field.Addr().Interface().(type) {
	case *time.Duration:
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%s: expected a duration such as 10s or 5m but got %q", v.title(), text)
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
			return fmt.Errorf("%s: expected \"<key>=<value>\" but got %q", v.title(), text)
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
			return fmt.Errorf("%s: bool value must be true, 1, yes, false, 0 or no but got %q", v.title(), text)
		}
		v.field.SetBool(is)
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(text, 0, v.field.Type().Bits())
		if err != nil {
			return fmt.Errorf("%s: expected a valid %d bit int but got %q", v.title(), v.field.Type().Bits(), text)
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
