package redisstore

import (
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint"
)

// A calendar gives the script the bounds of the windows around a time, which
// only floor 0 can tell. It may be used from many goroutines at once.
type calendar struct {
	meter   *stint.Meter
	monthly bool
	last    atomic.Pointer[bounds]
}

// bounds are windows one after the other, as arguments, and for which times
// they serve: with a window before and two after.
type bounds struct {
	from, until int64 // ns
	args        []string
}

// at returns the bounds around now: how many arguments follow, the index of
// the first window, then where each begins and the last ends, in µs.
func (c *calendar) at(now int64) []string {
	now = max(now, 0)
	b := c.last.Load()
	if b == nil || now < b.from || now >= b.until {
		b = c.around(now)
		c.last.Store(b)
	}
	return b.args
}

func (c *calendar) around(now int64) *bounds {
	back := 36 * time.Hour
	if c.monthly {
		back = 45 * 24 * time.Hour
	}
	start := max(now-int64(back), 0)
	index, end := c.window(start)
	args := []string{number(int64(index)), micros(start), micros(end)}
	b := &bounds{from: now, until: now + 1}
	for range 8 { // 36 h or 45 days are a few windows; then two to come
		if end > now && b.until == now+1 {
			b.until = end
		}
		_, end = c.window(end)
		args = append(args, micros(end))
	}
	b.args = append([]string{number(int64(len(args)))}, args...)
	return b
}

// window returns the number of the window that holds a time, and its end; time
// itself ends with int64.
func (c *calendar) window(t int64) (index uint64, end int64) {
	state := make([]uint64, c.meter.Words())
	mark := c.meter.Reserve(&stint.Reservations{}, state, t, 1, t)
	return mark[1], t + int64(c.meter.Answer(state, t, 0, true).ResetAfter)
}

// micros rounds up: bounds are whole seconds, but for the end of time.
func micros(ns int64) string {
	us := ns / 1000
	if ns%1000 != 0 {
		us++
	}
	return number(us)
}
