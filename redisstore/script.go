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

//go:embed lua/*.lua
var lua embed.FS

// files are the files of the script, in their order in it.
var files = []string{
	"crossslot", "overflow", "fastpath_single", "fastpath", "lease", "heartbeat", "inflight", "room", "entries", "fastpath_log", "numbers", "bucket", "interval", "window", "counter", "list", "log", "parts", "layers", "ban", "open", "push", "charge", "turn", "take", "batch", "decide",
}

// source is the whole script without its comments, sha its name in Redis.
var source, sha = assemble(files...)

func assemble(files ...string) (source, sha string) {
	var b strings.Builder
	for _, file := range files {
		text, err := lua.ReadFile("lua/" + file + ".lua")
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

// A reader reads the reply to a call. Its error matches [ErrAmbiguous] if the script makes no
// such reply.
type reader func(reply any) error

// unread is the reader of a reply that says no more than that the call ran.
func unread(any) error { return nil }

// eval runs the script, and loads it if it is not loaded.
func (s *Store) eval(ctx context.Context, keys, args []string, read reader) error {
	return s.evalBy(ctx, s.until(ctx), keys, args, read)
}

// boundedKey marks a context whose deadline is from [Store.until], which then does not
// shorten it again.
type boundedKey struct{}

// until returns the deadline of the calls of a request that begins now: after the store's
// timeout, or after three quarters of the time that its caller has. The rest is left to
// decide without the store.
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

// within returns a context for a request of several calls, which have together the time of
// one.
func (s *Store) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return s.by(ctx, s.until(ctx))
}

// by is within with a deadline.
func (s *Store) by(ctx context.Context, deadline time.Time) (context.Context, context.CancelFunc) {
	within, cancel := context.WithDeadline(ctx, deadline)
	return context.WithValue(within, boundedKey{}, true), cancel
}

// by returns the time at d from now.
func by(d time.Duration) time.Time { return time.Now().Add(d) }

// evalBy is eval with a deadline.
func (s *Store) evalBy(ctx context.Context, deadline time.Time, keys, args []string, read reader) error {
	if s.closed.Load() {
		return stint.ErrClosed
	}
	within, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	err := s.callThroughBreaker(within, keys, args, read)
	switch word(err) {
	case "READONLY": // the server is no longer the master: the driver may know the new one by now
		err = s.callThroughBreaker(within, keys, args, read)
	case "TRYAGAIN": // the slot is moving: its keys are on two nodes
		select {
		case <-time.After(2 * time.Millisecond):
		case <-within.Done():
		}
		err = s.callThroughBreaker(within, keys, args, read)
	}
	return err
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

// A call that waits for something other than an answer (a connection, the topology of a
// cluster, room in a queue) may go on after its context ends: that is up to the client
// library. While that is likely, calls are made in goroutines of their own, which are left
// behind at the deadline.
const (
	mostDirect = 512         // with more calls on their way, a library's queue may be full
	mostCalls  = 16384       // the most calls on their way, with those that were left behind
	patience   = time.Second // how long a call that was left behind may take: connections take longer than calls
	slowPart   = 4           // no answer within one slowPart-th of the timeout counts as slow, whoever set the deadline
)

// A callResult is the result of a call.
type callResult struct {
	value any
	err   error
}

// region returns the slot of a key in a cluster, and 0 for a single server.
func (s *Store) region(key string) uint16 {
	if s.driver.Cluster() {
		return slotOf(key)
	}
	return 0
}

// callThroughBreaker makes a call if its time is not up, the breaker of the keys' node is
// closed, and there is room for one more. It returns when ctx ends at the latest. [Stats]
// counts how the call ended, after its reply was read.
func (s *Store) callThroughBreaker(ctx context.Context, keys, args []string, read reader) (err error) {
	defer func() { s.tally.ended(err) }()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrNotExecuted, err)
	}
	slot := s.region(keys[0])
	n := s.nodeOf(slot)
	if !n.lets() {
		return n.unavailable()
	}
	begun := s.since()
	calls := s.calls.Add(1)
	if calls > mostCalls {
		s.calls.Add(-1)
		return ErrUnavailable
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
	if r.err != nil {
		return r.err
	}
	return read(r.value)
}

// callDetached makes a call, which s.calls counts already, in a goroutine that goes on for
// patience when its caller has gone, so that the next call finds the connection that this
// one waits for.
func (s *Store) callDetached(ctx context.Context, n *node, keys, args []string) callResult {
	done := make(chan callResult, 1)
	followed, call := s.follow(context.WithoutCancel(ctx))
	go func() {
		longer, cancel := context.WithTimeout(followed, max(patience, s.timeout))
		defer cancel()
		defer s.calls.Add(-1)
		value, err := s.run(longer, n, keys, args)
		done <- callResult{value, err}
	}()
	select {
	case r := <-done:
		return r
	case <-ctx.Done():
		err := ctx.Err()
		if call.leave() {
			err = fmt.Errorf("%w: %w", ErrNotExecuted, err)
		}
		return callResult{err: err}
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

// An answer is the script's answer: the cost that it decided on, then for each limit seven
// numbers, in the limit's own units and in µs.
type answer []int64

const (
	answersOK = iota
	answersRemaining
	answersReset
	answersRetry
	answersDelay // −1 if a ban denies, −2 if open reservations excuse the denial
	answersStep  // step of the bucket's state, with div after it; 0 if they are the limit's
	answersDiv
	answersEach
)

// readNumbers reads a reply that is a list of the given number of integers.
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

// readGroupAnswer reads the reply to a verb on the given number of parts. The reply to a
// charge that can be given back ends with where the charge went, and the reply to giving it
// back with 1 if nothing of it stands. To a settlement, nil says that there is no such
// reservation.
func readGroupAnswer(reply any, verb string, parts int) (a groupAnswer) {
	numbers := 1 + answersEach*parts
	list, _ := reply.([]any)
	switch {
	case reply == nil && verb == "s", reply == "gone" && verb == "r":
		a.err = stint.ErrReservation
		return a
	case verb == "s" && len(list) == 3 && list[0] == "s": // the answer of an earlier settlement
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

// unexpected returns the error of a reply that this script does not make: it is not known what
// ran.
func unexpected(reply any) error {
	return fmt.Errorf("%w: a reply of %T that is none of this version's script", ErrAmbiguous, reply)
}

// staleAt reports whether the server's time is not within the bounds of a call, which has done
// nothing then, and returns that time in ns.
func staleAt(reply any) (bool, int64) {
	text, ok := reply.(string)
	if !ok {
		return false, 0
	}
	at, ok := strings.CutPrefix(text, "stale ")
	us, err := strconv.ParseInt(at, 10, 64)
	return ok && err == nil, int64(duration(us))
}

// duration returns µs as a duration, or the longest one if that is shorter.
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

// counts reports whether count_denied limits count the request: a limit denies it, and no open
// reservations excuse that.
func (a answer) counts() bool {
	for i := 1; i < len(a); i += answersEach {
		if a[i+answersOK] == 0 && a[i+answersDelay] != -2 {
			return true
		}
	}
	return false
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

// join makes one decision of the answers of all limits, and writes each its own.
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
			Banned:     one[answersDelay] == -1,
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

// setAnswer writes the limit's own decision to the caller's Layer.Answers.
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

// said is the class of an error reply, by its first word. After these words the script has
// not written: all that can go wrong with a request does so before it writes, and servers
// check memory, role and permissions at a script's first write. ERR is not among them: with
// it, or without a word, proxies report that they lost a server which had the call.
var said = map[string]error{
	"NOSCRIPT": ErrNotExecuted, "LOADING": ErrNotExecuted, "BUSY": ErrNotExecuted,
	"MOVED": ErrNotExecuted, "ASK": ErrNotExecuted, "TRYAGAIN": ErrNotExecuted,
	"CLUSTERDOWN": ErrNotExecuted, "READONLY": ErrNotExecuted, "MASTERDOWN": ErrNotExecuted,
	"NOREPLICAS": ErrNotExecuted, "OOM": ErrNotExecuted, "MISCONF": ErrNotExecuted,
	"NOAUTH": ErrConfiguration, "WRONGPASS": ErrConfiguration, "NOPERM": ErrConfiguration,
	"WRONGTYPE": ErrConfiguration, "CROSSSLOT": ErrConfiguration, "STINT": ErrConfiguration,
	"ACL": ErrConfiguration, // ACL failure in script: of Valkey
}

// classify wraps an error of a driver in its class.
func classify(err error) error {
	var reply ReplyError
	var dial *net.OpError
	switch {
	case err == nil || errors.Is(err, stint.ErrClosed) || errors.Is(err, ErrNotExecuted) || errors.Is(err, ErrConfiguration):
		return err
	case errors.As(err, &reply) && deniedInScript(string(reply)):
		return fmt.Errorf("%w: the server's user may not run a command of the script (ACL LOG names it): %w", ErrConfiguration, err)
	case strings.HasPrefix(string(reply), "ERR unknown command"):
		return fmt.Errorf("%w: %w", ErrConfiguration, err)
	case said[word(err)] != nil:
		return fmt.Errorf("%w: %w", said[word(err)], err)
	case errors.As(err, &dial) && dial.Op == "dial":
		return fmt.Errorf("%w: %w", ErrNotExecuted, err)
	}
	return fmt.Errorf("%w: %w", ErrAmbiguous, err)
}

// deniedInScript reports whether a reply says that a command of the script is denied,
// in the words of Redis 7.0, or of later ones and Valkey.
func deniedInScript(reply string) bool {
	return strings.Contains(reply, "can't run this command") || strings.HasPrefix(strings.TrimPrefix(reply, "ERR "), "ACL failure in script: ") && strings.Contains(reply, "no permissions to run")
}

// word returns the first word of an error reply, which is in capitals, or "" for any other
// error. It is ERR if a program other than Redis answers without such a word.
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

// healthOf returns what a request's call says about the server. A call that was canceled, or
// had too little time, says nothing: its caller has gone, is in a great hurry, or has used up
// its time for earlier calls.
func (s *Store) healthOf(err error, waited time.Duration) health {
	var late interface{ Timeout() bool } // context.DeadlineExceeded, or an error of a driver
	if errors.Is(err, context.Canceled) || errors.As(err, &late) && late.Timeout() && waited < s.timeout/slowPart {
		return healthUnknown
	}
	return healthAfter(context.Background(), err)
}

// healthAfter returns what a call's error says about the server. A server that answers is
// well, unless its answer says that it serves no caller. A call whose ctx has ended says
// nothing.
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

	beats atomic.Uint64 // how many heartbeats were answered, which says nothing about requests

	took  [len(tookBounds) + 1]atomic.Uint64
	total atomic.Int64 // how long all calls in took took, in ns

	together, batches, denialsCached, crossSlot atomic.Uint64
}

// ended counts how a call has ended, even if it was not made.
func (t *tally) ended(err error) {
	switch {
	case err == nil || errors.Is(err, stint.ErrReservation): // ErrReservation is an answer
		t.ok.Add(1)
	case errors.Is(err, ErrConfiguration): // also without a call, while the breaker is open
		t.configuration.Add(1)
	case errors.Is(err, ErrUnavailable):
		t.unavailable.Add(1)
	case errors.Is(err, ErrAmbiguous):
		t.ambiguous.Add(1)
	default: // or the store was closed
		t.notExecuted.Add(1)
	}
}

// lasted counts how long a call took.
func (t *tally) lasted(d time.Duration) {
	i := 0
	for i < len(tookBounds) && d > tookBounds[i] {
		i++
	}
	t.took[i].Add(1)
	t.total.Add(int64(d))
}

// number returns an integer as an argument of the script.
func number(n int64) string { return strconv.FormatInt(n, 10) }
