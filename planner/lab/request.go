package lab

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/strictjson"
)

// The bounds of a request.
const (
	MaxArrivals = 100_000 // requests sent, for each limit
	MaxLimits   = 8
	MaxClients  = 200
	MaxColumns  = 2_000
	// maxHorizon bounds the simulated time to 100 years, far below the greatest int64 nanoseconds.
	maxHorizon = int64(100 * 365 * 24 * time.Hour)
	// maxDepth is how deep JSON may nest. A request needs a depth of three.
	maxDepth = 8
)

// A Request says what to simulate: the body of POST /v1/simulate. Durations are
// text as Go writes it: "1.5s".
type Request struct {
	// Limits are tried side by side, each on its own: texts as [stint.Parse]
	// reads them.
	Limits []string `json:"limits"`
	// Arrivals say who sends what.
	Arrivals Arrivals `json:"arrivals"`
	// Horizon is how long the simulation runs; later arrivals are dropped. The default value for
	// the shapes text and list is the end of the arrivals, at least a second; the other shapes need
	// a horizon.
	Horizon string `json:"horizon"`
	// Lasts is how long each request is in flight, as with --lasts of stint simulate. Limits in
	// flight need it, and others ignore it.
	Lasts string `json:"lasts"`
	// Columns is into how many columns of equal length the time is cut. The default value is 120.
	Columns int `json:"columns"`
	// Watch is the client whose state the columns show. The default value is
	// the first.
	Watch string `json:"watch"`
	// Each asks for the verdict on each request, beside the columns. The default value is true.
	Each *bool `json:"each"`
	// Why asks for an explanation of one verdict.
	Why *Place `json:"why"`
	// Copy asks for one of the limits, counted from 0, in forms to paste elsewhere.
	Copy *int `json:"copy"`
}

// A Place is one request under one limit, both counted from 0.
type Place struct {
	Limit   int `json:"limit"`
	Request int `json:"request"`
}

// Decode reads a request strictly: an unknown field, a field given twice or in capitals, text that
// is not UTF-8 and anything after the object are errors. [Simulate] checks the values of the
// fields.
func Decode(body []byte) (*Request, error) {
	if err := checkNames(body); err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	var r Request
	if err := d.Decode(&r); err != nil {
		return nil, inWords(err)
	}
	return &r, nil
}

// inWords returns an error without the words of encoding/json.
func inWords(err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		name := wrong.Field
		if name == "" {
			name = "the body"
		}
		return fmt.Errorf("%s: not a %s", name, wrong.Value)
	}
	return errors.New(strings.TrimPrefix(err.Error(), "json: "))
}

// checkNames refuses what encoding/json accepts: names given twice or in other letters, text that
// is not UTF-8, and anything after the object.
func checkNames(body []byte) error {
	r := strictjson.New(string(body), "the body")
	if r.Next() != '{' {
		return r.Want("an object")
	}
	if err := checkValue(&r, 0); err != nil {
		return err
	}
	return r.End()
}

func checkValue(r *strictjson.Reader, depth int) (err error) {
	switch c := r.Next(); {
	case depth > maxDepth:
		return fmt.Errorf("nested deeper than %d", maxDepth)
	case c == '{':
		seen := make(map[string]bool)
		return r.Object(func(name string) error {
			if seen[name] {
				return fmt.Errorf("%q is given twice", name)
			}
			if name != strings.ToLower(name) {
				return fmt.Errorf("unknown field %q", name)
			}
			seen[name] = true
			return checkValue(r, depth+1)
		})
	case c == '[':
		return r.List(func() error { return checkValue(r, depth+1) })
	case c == '"':
		_, err = r.Text("text")
	case c == '-' || c >= '0' && c <= '9':
		_, err = r.Number()
	case r.Literal() == "":
		err = r.Want("a value")
	}
	return err
}

// limits reads the limits of a request.
func (r *Request) limits() ([]stint.Limit, error) {
	if len(r.Limits) == 0 || len(r.Limits) > MaxLimits {
		return nil, fmt.Errorf("limits: %d given, want from 1 to %d", len(r.Limits), MaxLimits)
	}
	limits := make([]stint.Limit, len(r.Limits))
	for i, text := range r.Limits {
		l, err := stint.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("limits[%d]: %s", i, strings.TrimPrefix(err.Error(), "stint: "))
		}
		limits[i] = l
	}
	return limits, nil
}

// horizon returns the horizon, or 0 if it is not given.
func (r *Request) horizon() (int64, error) {
	if r.Horizon == "" {
		return 0, nil
	}
	return length("horizon", r.Horizon, 1)
}

// lasts returns how long each request is in flight, or 0 if that is not given.
func (r *Request) lasts(limits []stint.Limit) (int64, error) {
	ns, err := optional("lasts", r.Lasts)
	if i := slices.IndexFunc(limits, stint.Limit.InFlight); i >= 0 && ns == 0 && err == nil {
		err = fmt.Errorf("lasts: missing: limits[%d] is in flight: want how long each request lasts, such as 1.5s", i)
	}
	return ns, err
}

// columns returns the number of columns.
func (r *Request) columns() (int64, error) {
	switch {
	case r.Columns == 0:
		return 120, nil
	case r.Columns < 0 || r.Columns > MaxColumns:
		return 0, fmt.Errorf("columns: %d, want from 1 to %d", r.Columns, MaxColumns)
	}
	return int64(r.Columns), nil
}

// optional reads a duration that may be missing.
func optional(name, text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	return length(name, text, 0)
}

// length reads a duration of at least the given number of nanoseconds.
func length(name, text string, least int64) (int64, error) {
	d, err := time.ParseDuration(text)
	switch {
	case text == "":
		return 0, fmt.Errorf("%s: missing: want a duration such as 1.5s", name)
	case err != nil:
		return 0, fmt.Errorf("%s: %s is no duration: want one such as 1.5s", name, strconv.Quote(clip(text)))
	case int64(d) < least || int64(d) > maxHorizon:
		return 0, fmt.Errorf("%s: %v, want from %v to %v", name, d, time.Duration(least), time.Duration(maxHorizon))
	}
	return int64(d), nil
}

// clip shortens a text that an error quotes.
func clip(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
