package lab_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/planner/lab"
)

func TestDecodeErrors(t *testing.T) {
	for body, want := range map[string]string{
		``:                                "byte 1: the body ends where an object should be; it may be truncated",
		`{`:                               "byte 2: the body ends where a field's name in quotes should be; it may be truncated",
		`[]`:                              "byte 1: want an object, not a list",
		`null`:                            "byte 1: want an object, not null",
		`{"limits":["10/s"]} {}`:          "byte 21: something follows the end of the document; one document in the body",
		`{"limits":["10/s"],"limits":[]}`: `"limits" is given twice`,
		`{"Limits":["10/s"]}`:             `unknown field "Limits"`,
		`{"limit":["10/s"]}`:              `unknown field "limit"`,
		`{"arrivals":{"speed":1}}`:        `unknown field "speed"`,
		`{"arrivals":{"size":1.5}}`:       "arrivals.size: not a number 1.5",
		`{"lasts":2}`:                     "lasts: not a number",
		`{"limits":"10/s"}`:               "limits: not a string",
		`{"columns":"many"}`:              "columns: not a string",
		`{"arrivals":{"times":[1,"2"]}}`:  "arrivals.times: not a string",
		`{"limits":[1}`:                   `byte 13: want "," or "]", not '}'`,
		"{\"watch\":\"\xff\"}":            "byte 11: not UTF-8",
		`{"arrivals":{"size":99999999999999999999}}`: "arrivals.size: not a number 99999999999999999999",
		`{"limits":` + strings.Repeat("[", 40):       "nested deeper than 8",
	} {
		if _, err := lab.Decode([]byte(body)); err == nil || err.Error() != want {
			t.Errorf("%s\ngot  %v\nwant %s", body, err, want)
		}
	}
}

// FuzzDecode: no body panics, what is refused is refused with words, and what
// is accepted is within its bounds and can be written. testdata/fuzz has where it
// begins.
func FuzzDecode(f *testing.F) {
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := lab.Decode(body)
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without words")
			}
			return
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		a, err := lab.Simulate(ctx, r)
		if err != nil {
			if errors.Is(err, context.DeadlineExceeded) {
				t.Skip("too much for this test")
			}
			return
		}
		if len(a.Rows) == 0 || len(a.Rows) > lab.MaxLimits+4 {
			t.Errorf("%d rows", len(a.Rows))
		}
		for _, row := range a.Rows {
			if row.Requests > lab.MaxArrivals || row.Passed+row.Delayed+row.Denied != row.Requests || len(row.Columns.Passed) > lab.MaxColumns {
				t.Errorf("%+v", row)
			}
		}
		if err := json.NewEncoder(&bytes.Buffer{}).Encode(a); err != nil {
			t.Error(err)
		}
	})
}
