package strictjson_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stint-dev/stint/internal/strictjson"
)

// read reads any document of known depth.
func read(text string) error {
	r := strictjson.New(text, "the text")
	var value func(depth int) error
	value = func(depth int) error {
		switch c := r.Next(); {
		case depth == 0:
			return r.Fail("too deep", "")
		case c == '{':
			return r.Object(func(string) error { return value(depth - 1) })
		case c == '[':
			return r.List(func() error { return value(depth - 1) })
		case c == '"':
			_, err := r.Text("text")
			return err
		case c == '-' || c >= '0' && c <= '9':
			_, err := r.Number()
			return err
		}
		if r.Literal() == "" {
			return r.Want("a value")
		}
		return nil
	}
	if err := value(20); err != nil {
		return err
	}
	return r.End()
}

func TestErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`{"a": [1, -2.5e+3, true, null, "x\u00e9\ud83d\ude00\n"], "b": {}}`, ""},
		{``, `byte 1: the text ends where a value should be; it may be truncated`},
		{`{"a" 1}`, `byte 6: want a colon, not a number`},
		{`{"a": 1 "b": 2}`, `byte 9: want "," or "}", not text`},
		{`{a: 1}`, `byte 2: want a field's name in quotes, not 'a'`},
		{`[1, ]`, `byte 5: want a value, not ']'`},
		{`01`, `byte 2: something follows the end of the document; one document in the text`},
		{`1.`, `byte 3: the text ends where a digit should be; it may be truncated`},
		{`"\x"`, `byte 2: no escape that JSON knows, or half of a surrogate pair; in JSON a backslash is written \\`},
		{`"\ud800x"`, `byte 2: no escape that JSON knows, or half of a surrogate pair; in JSON a backslash is written \\`},
		{"\"a\tb\"", `byte 3: control character '\t' in text; write it as an escape`},
		{"\"\xff\"", `byte 2: not UTF-8`},
		{"\"abc", `byte 5: the text ends where the quote that ends the text should be; it may be truncated`},
	} {
		err := read(c.text)
		if got := errorText(err); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.text, got, c.want)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestInteger(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "7": 7, "9223372036854775807": 9223372036854775807,
		"9223372036854775808": -1, "-1": -1, "1.0": -1, "1e3": -1, "x": -1,
	} {
		r := strictjson.New(text, "the text")
		got, err := r.Integer()
		if want < 0 && err == nil || want >= 0 && (err != nil || got != want) {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
}

// FuzzReader holds that what is taken is JSON, for encoding/json too, and that
// an error is about a byte of the text.
func FuzzReader(f *testing.F) {
	for _, text := range []string{`{"a": [1, -2.5e+3, true, null, "x\u00e9\ud83d\ude00\n"]}`, `"\ud800"`, "[\"\xff\"]", `[01]`, `{"a":1,}`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		err := read(text)
		if err == nil {
			if !json.Valid([]byte(text)) {
				t.Fatalf("%q is no JSON", text)
			}
			return
		}
		var bad *strictjson.Error
		if !errors.As(err, &bad) || bad.Offset < 0 || bad.Offset > len(text) {
			t.Fatalf("%q: %v", text, err)
		}
	})
}
