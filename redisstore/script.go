package redisstore

import (
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint"
)

// The script, in the order in which its parts stand.
//
//go:embed lua/*.lua
var lua embed.FS

var parts = []string{
	"crossslot", "overflow", "fastpath_single", "fastpath", "lease", "heartbeat", "inflight", "room", "entries", "fastpath_log", "numbers", "bucket", "interval", "window", "counter", "list", "log", "parts", "layers", "ban", "open", "push", "charge", "take", "batch", "decide",
}

// source is the whole script without its comments, sha its name in Redis.
var source, sha = assemble(parts...)

func assemble(parts ...string) (source, sha string) {
	var b strings.Builder
	for _, part := range parts {
		text, err := lua.ReadFile("lua/" + part + ".lua")
		if err != nil {
			panic(err) // embedded: the list above names a file that is not there
		}
		for line := range strings.Lines(string(text)) {
			if code := strings.TrimSpace(line); code != "" && !strings.HasPrefix(code, "--") {
				b.WriteString(line)
			}
		}
	}
	sum := sha1.Sum([]byte(b.String()))
	return b.String(), hex.EncodeToString(sum[:])
}

// eval runs the script, by its text where it is not loaded: then it had not run.
func (s *Store) eval(ctx context.Context, keys, args []string) (any, error) {
	return s.evalBy(ctx, s.until(ctx), keys, args)
}

// boundedKey marks a context of calls whose deadline [Store.until] has said: no part of
// it is kept from them again.
type boundedKey struct{}

// until returns when the calls of a request that comes now have to be back: after the
// store's deadline, or when three quarters of the time are up that its caller waits.
// The rest is for who decides without the store.
func (s *Store) until(ctx context.Context) time.Time {
	now := time.Now()
	end, ok := ctx.Deadline()
	if !ok {
		return now.Add(s.timeout)
	}
	left := end.Sub(now)
	if ctx.Value(boundedKey{}) != nil && left < s.timeout {
		return end
	}
	return now.Add(min(s.timeout, left-left/4))
}

// within returns a context for a request that may take several calls: all of them
// together have the time that one has.
func (s *Store) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return s.by(ctx, s.until(ctx))
}

// by is within with a deadline.
func (s *Store) by(ctx context.Context, deadline time.Time) (context.Context, context.CancelFunc) {
	within, cancel := context.WithDeadline(ctx, deadline)
	return context.WithValue(within, boundedKey{}, true), cancel
}

// by returns when a stretch that begins now ends.
func by(d time.Duration) time.Time { return time.Now().Add(d) }

// evalBy is eval with a deadline.
func (s *Store) evalBy(ctx context.Context, deadline time.Time, keys, args []string) (any, error) {
	if s.closed.Load() {
		return nil, stint.ErrClosed
	}
	within, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	reply, err := s.callThroughBreaker(within, keys, args)
	switch word(err) {
	case "READONLY": // of what was the master: the driver may know better by now
		reply, err = s.callThroughBreaker(within, keys, args)
	case "TRYAGAIN": // of a slot that is moving: some of the keys are here, some there
		select {
		case <-time.After(2 * time.Millisecond):
		case <-within.Done():
		}
		reply, err = s.callThroughBreaker(within, keys, args)
	}
	return reply, err
}

// run makes the call, whatever the state of the server.
func (s *Store) run(ctx context.Context, n *node, keys, args []string) (any, error) {
	keys, args = s.named(keys, args)
	reply, err := s.driver.EvalSHA(ctx, sha, keys, args)
	if word(err) == "NOSCRIPT" {
		return s.load(ctx, n, keys, args)
	}
	return reply, err
}

// clock appends the time to the arguments, unless it is the server's.
func (s *Store) clock(args []string) []string {
	if s.now == nil {
		return args
	}
	return append(args, strconv.FormatInt(max(s.now(), 0)/1000, 10))
}

// Calls that wait for something other than an answer (a connection to be made,
// the topology of a cluster, room in a queue) may not end when their context
// does: that is up to the client library. While that is likely they are made
// from a goroutine of their own, and left behind at the deadline.
const (
	mostDirect = 512         // calls on their way at once, beyond which a library's queue may be full
	mostCalls  = 16384       // on their way at once, with those that were left behind
	patience   = time.Second // for what is left behind: connections take longer than calls
	slowPart   = 4           // of the deadline, one part without an answer is slow, whoever set it
)

// A callResult is what came of a call.
type callResult struct {
	value any
	err   error
}

// region returns the slot of a key in a cluster, and 0 where all keys are in one
// server.
func (s *Store) region(key string) uint16 {
	if s.driver.Cluster() {
		return slotOf(key)
	}
	return 0
}

// callThroughBreaker makes a call if its time is not up, the breaker of the keys' node lets
// it in, and there is room. Its answer comes when ctx ends at the latest. [Stats] counts how
// it ended.
func (s *Store) callThroughBreaker(ctx context.Context, keys, args []string) (value any, err error) {
	defer func() { s.tally.ended(err) }()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotExecuted, err)
	}
	slot := s.region(keys[0])
	n := s.nodeOf(slot)
	if !n.lets() {
		return nil, n.unavailable()
	}
	begun := s.since()
	calls := s.calls.Add(1)
	if calls > mostCalls {
		s.calls.Add(-1)
		return nil, ErrUnavailable
	}
	var r callResult
	if calls <= mostDirect && !n.trouble.Load() {
		r.value, r.err = s.run(ctx, n, keys, args)
		s.calls.Add(-1)
	} else {
		r = s.callDetached(ctx, n, keys, args)
	}
	r.err = s.where(n, classify(r.err))
	took := s.since() - begun
	s.tally.lasted(took)
	n.calls.Add(1)
	n.took.Add(int64(took))
	s.ended(n, s.healthOf(r.err, took), slot, r.err)
	return r.value, r.err
}

// callDetached makes a call, one of s.calls, that goes on for a while when its caller
// is gone, so that what it waits for is there for the next.
func (s *Store) callDetached(ctx context.Context, n *node, keys, args []string) callResult {
	done := make(chan callResult, 1)
	go func() {
		longer, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(patience, s.timeout))
		defer cancel()
		defer s.calls.Add(-1)
		value, err := s.run(longer, n, keys, args)
		done <- callResult{value, err}
	}()
	select {
	case r := <-done:
		return r
	case <-ctx.Done():
		return callResult{err: ctx.Err()}
	}
}

// since is the store's monotonic clock.
func (s *Store) since() time.Duration { return time.Since(s.born) }

// moment is since in ns, or the virtual clock if there is one.
func (s *Store) moment() int64 {
	if s.now != nil {
		return s.now()
	}
	return int64(s.since())
}

// An answer is the script's: the cost that it decided on, then seven numbers
// for each limit, in its own units and in µs.
type answer []int64

const (
	answersOK = iota
	answersRemaining
	answersReset
	answersRetry
	answersDelay // −1 where a ban denies
	answersStep  // of the numbers by which a bucket drains; 0: those of the limit
	answersDiv
	answersEach
)

// readNumbers reads a reply of the given number of numbers.
func readNumbers(reply any, numbers int) ([]int64, error) {
	list, ok := reply.([]any)
	if !ok || len(list) != numbers {
		return nil, unexpected(reply)
	}
	all := make([]int64, len(list))
	for i, v := range list {
		if all[i], ok = v.(int64); !ok {
			return nil, unexpected(reply)
		}
	}
	return all, nil
}

// readGroupAnswer reads the reply to a verb on the given number of parts. That of a
// charge that can be given back ends with where it went, that of giving it back with whether
// nothing of it stands; nil means to settling that the reservation does not exist.
func readGroupAnswer(reply any, verb string, parts int) (a groupAnswer) {
	numbers := 1 + answersEach*parts
	list, _ := reply.([]any)
	switch {
	case reply == nil && verb == "s":
		a.err = stint.ErrReservation
		return a
	case verb == "s" && len(list) == 3 && list[0] == "s": // before, and this is the answer of then
		a.before = list
		return a
	case verb == "k" && len(list) == numbers+parts:
		for _, mark := range list[numbers:] {
			text, _ := mark.(string)
			a.marks = append(a.marks, text)
		}
		reply = list[:numbers]
	case verb == "y" && len(list) == numbers+1:
		a.stands = list[numbers] != int64(1)
		reply = list[:numbers]
	}
	a.answer, a.err = readNumbers(reply, numbers)
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
func (a answer) denied() (m stint.LimitSet) {
	for i := 0; 1+(i+1)*answersEach <= len(a) && i < stint.MaxLimits; i++ {
		if a[1+i*answersEach+answersOK] == 0 {
			m |= 1 << uint(i)
		}
	}
	return m
}

// join makes one decision of the answers of all limits, and hands each its own.
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
			Limit:      p.compiled.capacity,
			Remaining:  one[answersRemaining],
			ResetAfter: duration(one[answersReset]),
			RetryAfter: stint.Never,
			Banned:     one[answersDelay] < 0,
		}
		if allowed {
			of.Delay = duration(one[answersDelay])
		}
		if one[answersRetry] >= 0 {
			of.RetryAfter = stint.Wait(duration(one[answersRetry]))
		}
		p.drain = p.compiled.drain(one)
		if p.answer != nil {
			p.setAnswer(of, denied.Has(i), charges, a[0])
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

// setAnswer writes the limit's own answer where the caller wants it.
func (p *part) setAnswer(of stint.Decision, denied, charges bool, cost int64) {
	if of.Allowed && charges {
		of.Taken = cost * p.weight
	}
	of.Allowed, of.Denied = !denied, 1
	if !denied {
		of.RetryAfter, of.Denied = 0, 0
	}
	*p.answer = of
}

// The classes of errors of operations, for errors.Is. Each error of Redis is in one
// of them.
var (
	// ErrNotExecuted is for a call that certainly did not run. Nothing was
	// charged.
	ErrNotExecuted = errors.New("redisstore: not executed")
	// ErrAmbiguous is for a call that may have run: no answer came. It is not
	// sent again, since that could charge twice.
	ErrAmbiguous = stint.ErrAmbiguous
	// ErrConfiguration is for a call that cannot run until the operator changes
	// the configuration: a password, a permission, a key of another program, keys
	// of one request in different slots. Nothing was charged.
	ErrConfiguration = errors.New("redisstore: configuration")
)

// said is what an error reply means, by the word that it begins with. An error
// reply means that the script did not write: what can go wrong with a request
// does so before it writes, and servers look for memory, role and permission at
// a script's first write.
var said = map[string]error{
	"NOSCRIPT": ErrNotExecuted, "LOADING": ErrNotExecuted, "BUSY": ErrNotExecuted,
	"MOVED": ErrNotExecuted, "ASK": ErrNotExecuted, "TRYAGAIN": ErrNotExecuted,
	"CLUSTERDOWN": ErrNotExecuted, "READONLY": ErrNotExecuted, "MASTERDOWN": ErrNotExecuted,
	"NOREPLICAS": ErrNotExecuted, "OOM": ErrNotExecuted, "MISCONF": ErrNotExecuted,
	"NOAUTH": ErrConfiguration, "WRONGPASS": ErrConfiguration, "NOPERM": ErrConfiguration,
	"WRONGTYPE": ErrConfiguration, "CROSSSLOT": ErrConfiguration, "STINT": ErrConfiguration,
	"ACL": ErrConfiguration, "ERR": ErrConfiguration, // ACL failure in script: of Valkey
}

// classify wraps an error of a driver in what it means.
func classify(err error) error {
	var reply ReplyError
	var dial *net.OpError
	var unmade dialError
	switch {
	case err == nil || errors.Is(err, stint.ErrClosed) || errors.Is(err, ErrNotExecuted) || errors.Is(err, ErrConfiguration):
		return err
	case errors.As(err, &reply):
		if class := said[word(err)]; class != nil {
			if deniedInScript(string(reply)) {
				return fmt.Errorf("%w: the server's user may not run a command of the script (ACL LOG names it): %w", class, err)
			}
			return fmt.Errorf("%w: %w", class, err)
		}
	case errors.As(err, &unmade), errors.As(err, &dial) && dial.Op == "dial":
		return fmt.Errorf("%w: %w", ErrNotExecuted, err)
	}
	return fmt.Errorf("%w: %w", ErrAmbiguous, err)
}

// deniedInScript reports whether a reply says that a command of the script is denied,
// in the words of Redis 7.0, or of later ones and Valkey.
func deniedInScript(reply string) bool {
	return strings.Contains(reply, "can't run this command") || strings.HasPrefix(reply, "ACL failure in script: ") && strings.Contains(reply, "no permissions to run")
}

// word returns the word that an error reply begins with, or "". It is in
// capitals; where another program than Redis answers without one, it is ERR.
func word(err error) string {
	var reply ReplyError
	if !errors.As(err, &reply) {
		return ""
	}
	word, _, _ := strings.Cut(string(reply), " ")
	if word != strings.ToUpper(word) {
		return "ERR"
	}
	return word
}

// healthOf returns what a request's call says about the server. One that was not waited for
// until the deadline, or for too short a time to tell, says nothing: its caller has gone, is
// in a great hurry, or has used up the time for calls before it.
func (s *Store) healthOf(err error, waited time.Duration) health {
	var late interface{ Timeout() bool } // context.DeadlineExceeded, or a driver's
	if errors.Is(err, context.Canceled) || errors.As(err, &late) && late.Timeout() && waited < s.timeout/slowPart {
		return healthUnknown
	}
	return healthAfter(context.Background(), err)
}

// healthAfter returns what a call's error says about the server. A server that answers is
// well, whatever the answer, unless it serves no caller. A caller that gave up by
// itself says nothing.
func healthAfter(ctx context.Context, err error) health {
	switch word(err) {
	case "":
	case "CLUSTERDOWN":
		if unserved(err) {
			return healthGood
		}
		return healthBad
	case "LOADING", "BUSY", "READONLY", "MASTERDOWN":
		return healthBad
	default:
		if refuses(err) {
			return healthBad
		}
		return healthGood
	}
	switch {
	case err == nil:
		return healthGood
	case ctx.Err() != nil || errors.Is(err, stint.ErrClosed) || errors.Is(err, ErrConfiguration) || errors.Is(err, errNoNode):
		return healthUnknown
	}
	return healthBad
}

// A tally counts for Stats. It may be used from many goroutines at once.
type tally struct {
	ok, notExecuted, ambiguous, configuration, unavailable atomic.Uint64

	took  [len(tookBounds) + 1]atomic.Uint64
	total atomic.Int64 // of what took counts, in ns

	together, batches, denialsCached, crossSlot atomic.Uint64
}

// ended notes how a call has ended, whether it was made or not.
func (t *tally) ended(err error) {
	switch {
	case err == nil:
		t.ok.Add(1)
	case errors.Is(err, ErrConfiguration): // also of what is not asked any more
		t.configuration.Add(1)
	case errors.Is(err, ErrUnavailable):
		t.unavailable.Add(1)
	case errors.Is(err, ErrAmbiguous):
		t.ambiguous.Add(1)
	default: // or the store was closed
		t.notExecuted.Add(1)
	}
}

// lasted notes how long a call took that was made.
func (t *tally) lasted(d time.Duration) {
	i := 0
	for i < len(tookBounds) && d > tookBounds[i] {
		i++
	}
	t.took[i].Add(1)
	t.total.Add(int64(d))
}

// number returns an argument of a script.
func number(n int64) string { return strconv.FormatInt(n, 10) }
