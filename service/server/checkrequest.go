package server

import (
	"strconv"
	"strings"
	"time"

	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/internal/strictjson"
)

// The fields of a check, as a set.
type fields uint8

const (
	fieldAttributes fields = 1 << iota
	fieldCost
	fieldTTL
	fieldReservation
	fieldRequests
)

var fieldNames = []string{"attributes", "cost", "ttl", "reservation", "requests"}

// names returns the names of the fields in a set.
func (f fields) names() (names []string) {
	for i, name := range fieldNames {
		if f>>i&1 == 1 {
			names = append(names, name)
		}
	}
	return names
}

// field returns the field of a name, or none.
func field(name string) fields {
	for i, known := range fieldNames {
		if name == known {
			return 1 << i
		}
	}
	return 0
}

// Bounds of a check. Rules look at a handful of attributes.
const (
	maxAttributes = 64
	maxTTL        = 24 * time.Hour
	defaultTTL    = time.Minute
)

// A checkRequest is one check: who, how much, and for a reservation how long or
// which.
type checkRequest struct {
	attributes  attributes
	cost        int64
	ttl         time.Duration
	reservation string
	has         fields
}

// attributes implements policy.Attributes. There are few, so that searching is
// as fast as hashing.
type attributes []attribute

type attribute struct{ name, value string }

// Attribute returns the value of an attribute, and whether there is one.
func (a *attributes) Attribute(name string) (string, bool) {
	for i := range *a {
		if one := &(*a)[i]; one.name == name {
			return one.value, true
		}
	}
	return "", false
}

func (a *checkRequest) reset() {
	clear(a.attributes)
	*a = checkRequest{attributes: a.attributes[:0], cost: 1, ttl: defaultTTL}
}

// read reads a check of the fields that it may have and must have. A list of
// checks is read by more, for fieldRequests.
func (a *checkRequest) read(s *strictjson.Reader, may, must fields, more func() error) error {
	err := s.Object(func(name string) error {
		f := field(name) & may
		switch {
		case f == 0:
			return bad(name, "unknown field: there is %s", strings.Join(may.names(), ", "))
		case a.has&f != 0:
			return bad(name, "given twice")
		}
		a.has |= f
		var err error
		switch f {
		case fieldAttributes:
			err = a.readAttributes(s)
		case fieldCost:
			a.cost, err = readCost(s)
		case fieldTTL:
			err = a.readTTL(s)
		case fieldReservation:
			a.reservation, err = s.Text("text in quotes")
		case fieldRequests:
			err = more()
		}
		return in(name, err)
	})
	if err != nil {
		return err
	}
	if a.has&fieldRequests != 0 {
		if others := a.has &^ fieldRequests; others != 0 {
			return bad(others.names()[0], "stands beside requests: put it into each of them")
		}
		return nil
	}
	if missing := must &^ a.has; missing != 0 {
		return bad(missing.names()[0], "missing")
	}
	return nil
}

// readAttributes reads a map of text. Names of headers have no case, and are
// brought to lower case as rules have them.
func (a *checkRequest) readAttributes(s *strictjson.Reader) error {
	return s.Object(func(name string) error {
		if name = request.Name(name); name == "" {
			return bad("", "an attribute without a name")
		}
		if _, twice := a.attributes.Attribute(name); twice {
			return bad(name, "given twice")
		}
		if len(a.attributes) == maxAttributes {
			return bad("", "more than %d", maxAttributes)
		}
		value, err := s.Text("text in quotes")
		a.attributes = append(a.attributes, attribute{name, value})
		return in(name, err)
	})
}

// readCost reads a whole number.
func readCost(s *strictjson.Reader) (int64, error) {
	if s.Next() == '-' {
		return 0, bad("", "below zero: /v1/refund gives back")
	}
	return s.Integer()
}

func (a *checkRequest) readTTL(s *strictjson.Reader) error {
	text, err := s.Text("a duration in quotes")
	if err != nil {
		return err
	}
	d, fail := time.ParseDuration(text)
	if fail != nil {
		return bad("", `no duration: write "30s" or "1m30s"`)
	}
	if d <= 0 || d > maxTTL {
		return bad("", "want more than 0s and at most %v", maxTTL)
	}
	a.ttl = d
	return nil
}

// checkRequests are the checks of one body. They are reused.
type checkRequests struct {
	one  checkRequest   // of a body that has no requests
	list []checkRequest // of one that has
}

// batch reports whether the body has requests.
func (q *checkRequests) batch() bool { return q.one.has&fieldRequests != 0 }

// read reads a body. most is for requests; 0 where there may be none.
func (q *checkRequests) read(body string, may, must fields, most int) *problem {
	s := strictjson.New(body, "the body")
	outer := may
	if most > 0 {
		outer |= fieldRequests
	}
	q.one.reset()
	q.list = q.list[:0]
	err := q.one.read(&s, outer, must, func() error { return q.readList(&s, may, must, most) })
	if err == nil {
		err = s.End()
	}
	return problemOf(err)
}

func (q *checkRequests) readList(s *strictjson.Reader, may, must fields, most int) error {
	err := s.List(func() error {
		n := len(q.list)
		if n == most {
			return bad("", "more than %d", most)
		}
		if n < cap(q.list) {
			q.list = q.list[:n+1]
		} else {
			q.list = append(q.list, checkRequest{})
		}
		q.list[n].reset()
		if err := q.list[n].read(s, may, must, nil); err != nil {
			return in("["+strconv.Itoa(n)+"]", err)
		}
		return nil
	})
	if err == nil && len(q.list) == 0 {
		err = bad("", "none there")
	}
	return err
}

// release releases the body.
func (q *checkRequests) release() {
	q.one.reset()
	for i := range q.list {
		q.list[i].reset()
	}
}
