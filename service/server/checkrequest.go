package server

import (
	"strconv"
	"strings"
	"time"

	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/internal/strictjson"
	"github.com/stint-dev/stint/policy"
)

// fields is a set of fields of a check.
type fields uint8

const (
	fieldAttributes fields = 1 << iota
	fieldCost
	fieldCosts
	fieldTTL
	fieldReservation
	fieldRequests
)

var fieldNames = []string{"attributes", "cost", "costs", "ttl", "reservation", "requests"}

// names returns the names of the fields in a set.
func (f fields) names() (names []string) {
	for i, name := range fieldNames {
		if f>>i&1 == 1 {
			names = append(names, name)
		}
	}
	return names
}

// field returns the field of a name, or the empty set.
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

// A checkRequest is one check: the attributes and the cost, and of a reservation the time
// to live or the ID.
type checkRequest struct {
	attributes  attributes
	cost        int64
	costs       policy.Costs // by rule; nil if none are named
	ttl         time.Duration
	reservation string
	has         fields
}

// attributes implements policy.Attributes. There are few, so a search is as fast as a
// hash.
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

// read reads a check, given the fields that it may have and must have. more reads the
// list of checks, for fieldRequests.
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
		case fieldCosts:
			err = a.readCosts(s)
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

// readAttributes reads a map of text. It changes names of headers, which have no case, to
// lower case as in rules.
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
	cost, err := s.Integer()
	if cost > strictjson.MaxExact {
		err = bad("", "above 2^53 - 1, %d: many programs round greater numbers", int64(strictjson.MaxExact))
	}
	return cost, err
}

// readCosts reads costs by the names of rules.
func (a *checkRequest) readCosts(s *strictjson.Reader) error {
	a.costs = make(policy.Costs)
	err := s.Object(func(name string) error {
		if _, twice := a.costs[name]; twice {
			return bad(name, "given twice")
		}
		if len(a.costs) == policy.MaxCosts {
			return bad("", "more than %d", policy.MaxCosts)
		}
		cost, err := readCost(s)
		a.costs[name] = cost
		return in(name, err)
	})
	if err == nil && len(a.costs) == 0 {
		err = bad("", "none there: name rules, such as {\"tokens\": 4000}, or drop the field")
	}
	return err
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
	one  checkRequest   // the check of a body without requests
	list []checkRequest // the checks of a body with requests
}

// batch reports whether the body has requests.
func (q *checkRequests) batch() bool { return q.one.has&fieldRequests != 0 }

// read reads a body. most is how many requests it may have, 0 if the field is not allowed.
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

// release drops the references to the body, for the next use.
func (q *checkRequests) release() {
	q.one.reset()
	for i := range q.list {
		q.list[i].reset()
	}
}
