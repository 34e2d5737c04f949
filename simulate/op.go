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

// An Op is one operation: a line that was read.
type Op struct {
	// T is the time as it was given; it is repeated in the answer.
	T string
	// At is the same in nanoseconds since the Unix epoch.
	At int64
	// Key is the key under the limits that all lines share, and the key of
	// those in Limits that name none.
	Key string
	// NoKey says that the line gave no key, and the answer has none.
	NoKey bool
	// Verb is what to do.
	Verb Verb
	// Cost is in units: what to take at once or at most, to return, or the
	// true cost. A line that gives none means 1.
	Cost int64
	// Lasts is how long a take is in flight, under limits in flight.
	Lasts time.Duration
	// TTL is the time to live of a reservation. The default value is 1m.
	TTL time.Duration
	// Reservation names what to settle or cancel: "r1" is the first that was
	// granted.
	Reservation string
	// Limits are the line's own layers, instead of those that all lines share;
	// of a change, what these become.
	Limits []OpLimit
}

// An OpLimit is one layer that a line brings: a limit as text, and the key
// under it.
type OpLimit struct {
	Limit, Key string

	noKey bool // while reading: on the line's key
}

// The fields of a line, as a set.
const (
	hasT = 1 << iota
	hasKey
	hasOp
	hasCost
	hasLasts
	hasTTL
	hasReservation
	hasLimits
	hasLimit
)

// ParseOp reads one line. What an op has no use for, such as the cost of a
// cancel, must be well formed and is not looked at further.
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

// check looks for what is missing, and completes the line's own limits.
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

// quoted is what a field of text wants.
const quoted = "text in quotes"

var errNoKey = errors.New(`"key" is missing`)

// field reads the value of one field and returns which it was.
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

// limits reads the line's own layers. One that names no key is on the line's
// key, which may stand behind it.
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
