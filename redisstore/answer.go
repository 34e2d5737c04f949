package redisstore

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/stint-dev/stint"
)

// An answer is the script's: the cost that it decided on, then five numbers
// for each limit, in its own units and in µs.
type answer []int64

const (
	answersOK = iota
	answersRemaining
	answersReset
	answersRetry
	answersDelay
	answersEach
)

// readAnswer reads a reply of so many numbers; nil is for a reservation that
// is not there.
func readAnswer(reply any, numbers int) (answer, error) {
	list, ok := reply.([]any)
	if reply == nil {
		return nil, stint.ErrReservation
	}
	if !ok || len(list) != numbers {
		return nil, unexpected(reply)
	}
	a := make(answer, len(list))
	for i, v := range list {
		switch v := v.(type) {
		case int64:
			a[i] = v
		case string: // from 2^53 on
			n, err := strconv.ParseUint(v, 10, 64)
			if err != nil && n != math.MaxUint64 {
				return nil, unexpected(reply)
			}
			a[i] = int64(min(n, math.MaxInt64))
		default:
			return nil, unexpected(reply)
		}
	}
	return a, nil
}

// readAsked reads the reply to a verb on so many parts: a settlement's ends with
// the capacities, that of a charge that can be given back with where it went to.
func readAsked(reply any, verb string, parts int) (a asked) {
	numbers := 1 + answersEach*parts
	list, _ := reply.([]any)
	switch {
	case verb == "s":
		numbers += parts
	case verb == "k" && len(list) == numbers+parts:
		for _, mark := range list[numbers:] {
			text, _ := mark.(string)
			a.marks = append(a.marks, text)
		}
		reply = list[:numbers]
	}
	a.answer, a.err = readAnswer(reply, numbers)
	return a
}

// unexpected is for a reply that this script does not make: what ran is not
// known.
func unexpected(reply any) error {
	return fmt.Errorf("%w: a reply of %T that is none of this version's script", ErrAmbiguous, reply)
}

// staleAt reports whether the script wants a calendar's bounds for another
// time, and for which, in ns.
func staleAt(reply any) (bool, int64) {
	text, ok := reply.(string)
	if !ok {
		return false, 0
	}
	at, ok := strings.CutPrefix(text, "stale ")
	us, err := strconv.ParseInt(at, 10, 64)
	return ok && err == nil, int64(duration(us))
}

// duration returns µs as a duration, held at the longest there is.
func duration(us int64) time.Duration {
	if us > math.MaxInt64/1000 {
		return math.MaxInt64
	}
	return time.Duration(us * 1000)
}

// allowed reports whether every limit lets the request pass.
func (a answer) allowed() bool {
	for i := 1 + answersOK; i < len(a); i += answersEach {
		if a[i] == 0 {
			return false
		}
	}
	return true
}

// denied returns which limits deny.
func (a answer) denied() (m stint.Mask) {
	for i := 0; 1+(i+1)*answersEach <= len(a) && i < stint.MaxLayers; i++ {
		if a[1+i*answersEach+answersOK] == 0 {
			m |= 1 << uint(i)
		}
	}
	return m
}

// join makes one decision of the answers of all limits, and tells each its own.
func (a answer) join(parts []part, charges bool) (d stint.Decision) {
	allowed := true
	for i := range parts {
		if a[1+i*answersEach+answersOK] == 0 {
			d.Denied |= 1 << uint(i)
			allowed = false
		}
	}
	denied := d.Denied
	for i := range parts {
		one := a[1+i*answersEach:][:answersEach]
		p := &parts[i]
		of := stint.Decision{
			Allowed:    allowed,
			Limit:      p.form.capacity,
			Remaining:  one[answersRemaining],
			ResetAfter: duration(one[answersReset]),
			RetryAfter: stint.Never,
		}
		if allowed {
			of.Delay = duration(one[answersDelay])
		}
		if one[answersRetry] >= 0 {
			of.RetryAfter = stint.Wait(duration(one[answersRetry]))
		}
		if p.answer != nil {
			p.tell(of, denied.Has(i), charges, a[0])
		}
		of.Limit /= p.weight
		of.Remaining /= p.weight
		if of.Tightest = p.at; i == 0 {
			d = of
		} else {
			d.Join(&of)
		}
	}
	d.Denied = denied
	if allowed && charges {
		d.Taken = a[0]
	}
	return d
}

// tell writes the limit's own answer where the caller wants it.
func (p *part) tell(of stint.Decision, denied, charges bool, cost int64) {
	if of.Allowed && charges {
		of.Taken = cost * p.weight
	}
	of.Allowed, of.Denied = !denied, 1
	if !denied {
		of.RetryAfter, of.Denied = 0, 0
	}
	*p.answer = of
}
