package simulate

import (
	"errors"
	"fmt"
	"time"

	"github.com/stint-dev/stint/internal/strictjson"
)

// A Verb is what an operation does.
type Verb string

// The verbs. Empty stands for take.
const (
	Take     Verb = "take"
	Peek     Verb = "peek"
	TakeUpTo Verb = "take_up_to"
	Reserve  Verb = "reserve"
	Settle   Verb = "settle"
	Cancel   Verb = "cancel"
	Refund   Verb = "refund"
	Reset    Verb = "reset"
	Change   Verb = "change"
)

const verbs = "write take, peek, take_up_to, reserve, settle, cancel, refund, reset or change"

// An Op is one operation, as one line gives it.
type Op struct {
	// T is the time as it was given; it is repeated in the answer.
	T string
	// At is the same time in nanoseconds since the Unix epoch.
	At int64
	// Key is the key under the limits that all lines share. It is also the key of those in Limits
	// that name none.
	Key string
	// NoKey says that the line gave no key, and the answer has none.
	NoKey bool
	// Verb is what to do.
	Verb Verb
	// Cost is in units: what to take, at most to take, to reserve or to return, or the true cost of
	// a settlement. The default is 1.
	Cost int64
	// Lasts is how long a take stays in flight, under limits in flight.
	Lasts time.Duration
	// TTL is the time to live of a reservation. The default value is 1m.
	TTL time.Duration
	// Excuses is how long the reserved units excuse denials ([stint.Layer]).
	Excuses time.Duration
	// Reservation names the reservation to settle or cancel: "r1" is the first that was granted.
	Reservation string
	// Limits are the line's own layers, in place of the limits that all lines share. A change
	// replaces those shared limits with them.
	Limits []OpLimit
}

// An OpLimit is one layer that a line brings: a limit as text, and its key.
type OpLimit struct {
	Limit, Key string

	noKey bool // set while reading: the key is the line's
}

// The fields of a line, as a set.
const (
	hasT = 1 << iota
	hasKey
	hasOp
	hasCost
	hasLasts
	hasTTL
	hasExcuses
	hasReservation
	hasLimits
	hasLimit
)

// ParseOp reads one line. Fields that an operation does not use, such as the cost of a cancel, must
// be well formed and are otherwise ignored.
func ParseOp(line []byte) (Op, error) {
	op := Op{Cost: 1}
	s := strictjson.New(string(line), "the line")
	var seen int
	err := s.Object(func(name string) error {
		field, err := op.field(&s, name)
		if err == nil && seen&field != 0 {
			err = fmt.Errorf("%q is given twice", name)
		}
		seen |= field
		return err
	})
	if err == nil {
		err = s.End()
	}
	if err != nil {
		return Op{}, err
	}
	op.NoKey = seen&hasKey == 0
	return op, op.check(seen)
}

// check looks for missing fields, and completes the line's own limits.
func (op *Op) check(seen int) error {
	switch settles := op.Verb == Settle || op.Verb == Cancel; {
	case seen&hasT == 0:
		return errors.New(`"t" is missing`)
	case settles && seen&hasReservation == 0:
		return fmt.Errorf(`%s needs a "reservation"`, op.Verb)
	case op.Verb == Settle && seen&hasCost == 0:
		return errors.New(`settle needs a "cost", the true one`)
	case op.Verb == Change && seen&hasLimits == 0:
		return errors.New(`change needs "limits", those that all lines share from now on`)
	case settles || op.Verb == Change:
		return nil
	case op.NoKey && seen&hasLimits == 0:
		return errNoKey
	}
	for i := range op.Limits {
		if l := &op.Limits[i]; l.noKey {
			if op.NoKey {
				return fmt.Errorf(`"limits": %w`, errNoKey)
			}
			l.Key, l.noKey = op.Key, false
		}
	}
	return nil
}

// quoted says in errors what a field of text must be.
const quoted = "text in quotes"

var errNoKey = errors.New(`"key" is missing`)

// field reads the value of the named field and returns the field's bit.
func (op *Op) field(s *strictjson.Reader, name string) (field int, err error) {
	switch name {
	case "t":
		field = hasT
		if op.T, err = s.Text(quoted); err == nil {
			op.At, err = parseTime(op.T)
		}
	case "key":
		field = hasKey
		op.Key, err = s.Text(quoted)
	case "op":
		field, err = hasOp, op.verb(s)
	case "cost":
		field = hasCost
		op.Cost, err = cost(s)
	case "lasts":
		field = hasLasts
		var text string
		if text, err = s.Text(quoted); err == nil {
			op.Lasts, err = lasts(text)
		}
	case "ttl":
		field = hasTTL
		op.TTL, err = ttl(s)
	case "excuses":
		field = hasExcuses
		op.Excuses, err = ttl(s)
	case "reservation":
		field = hasReservation
		op.Reservation, err = s.Text(quoted)
	case "limits":
		field, err = hasLimits, op.limits(s)
	default:
		return 0, fmt.Errorf("unknown field %q", name)
	}
	if err != nil {
		err = fmt.Errorf("%q: %w", name, err)
	}
	return field, err
}

func (op *Op) verb(s *strictjson.Reader) error {
	name, err := s.Text(quoted)
	if err != nil {
		return err
	}
	for _, v := range [...]Verb{Take, Peek, TakeUpTo, Reserve, Settle, Cancel, Refund, Reset, Change} {
		if name == string(v) {
			op.Verb = v
			return nil
		}
	}
	return fmt.Errorf("unknown op %q: %s", name, verbs)
}

// limits reads the line's own layers. A layer that names no key has the line's key, which may come
// later in the line.
func (op *Op) limits(s *strictjson.Reader) error {
	err := s.List(func() error {
		l, err := limit(s)
		op.Limits = append(op.Limits, l)
		return err
	})
	if err == nil && len(op.Limits) == 0 {
		err = errors.New("none there")
	}
	return err
}

func limit(s *strictjson.Reader) (l OpLimit, err error) {
	var seen int
	err = s.Object(func(name string) (err error) {
		var field int
		switch name {
		case "limit":
			field = hasLimit
			l.Limit, err = s.Text(quoted)
		case "key":
			field = hasKey
			l.Key, err = s.Text(quoted)
		default:
			err = fmt.Errorf("unknown field %q", name)
		}
		if err == nil && seen&field != 0 {
			err = fmt.Errorf("%q is given twice", name)
		}
		seen |= field
		return err
	})
	if err == nil && seen&hasLimit == 0 {
		err = errors.New(`"limit" is missing`)
	}
	l.noKey = seen&hasKey == 0
	return l, err
}

// cost reads a whole number from 0 to the greatest int64.
func cost(s *strictjson.Reader) (int64, error) {
	if s.Next() == '-' {
		return 0, s.Fail("below zero", "refund gives back")
	}
	return s.Integer()
}

func ttl(s *strictjson.Reader) (time.Duration, error) {
	text, err := s.Text(quoted)
	if err != nil {
		return 0, err
	}
	ns, err := parseDuration(text)
	if err != nil {
		return 0, err
	}
	if ns <= 0 {
		return 0, fmt.Errorf("%s is not above zero", text)
	}
	return time.Duration(ns), nil
}
