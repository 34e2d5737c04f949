// Package storetest is the suite that any [stint.Store] must pass.
//
// [Run] is all that most stores need, in a test of their own:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t testing.TB, now func() int64) stint.Store {
//			return memstore.New(memstore.Options{Now: now})
//		})
//	}
//
// It has two halves. Vectors are operations with what must come back, from
// articles, from the tests of other limiters, and worked out by hand from
// docs/SEMANTICS.md (own_…); package simulate says how they are written. Laws
// hold for every limit and every history: a denial changes nothing, waits are
// tight, giving back never mints, all layers are charged by their weights or
// none is, no interleaving of goroutines admits a unit too many. They run on
// histories drawn from a fixed seed, so a failure repeats.
//
// Run it with -race too. The suite makes some 600,000 decisions, one after the
// other but for those about concurrency.
package storetest

import (
	"bytes"
	"context"
	"embed"
	"io/fs"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/simulate"
)

// Vectors are the files vectors/*.jsonl.
//
//go:embed vectors/*.jsonl
var Vectors embed.FS

// Run holds a store whose clock has a quantum of 1 ns to the suite. Open
// returns an empty store whose clock is now, in nanoseconds since the Unix
// epoch; the suite closes it.
func Run(t *testing.T, open func(t testing.TB, now func() int64) stint.Store) {
	Suite{Open: open}.Run(t)
}

// A Suite is the suite with its settings.
type Suite struct {
	// Open returns an empty store whose clock is now, in nanoseconds since the
	// Unix epoch; the suite closes it. Two stores that are open at the same
	// time share nothing.
	Open func(t testing.TB, now func() int64) stint.Store
	// Quantum is that of the store's clock: all times are multiples of it, and
	// vectors with others are skipped. The default value is 1 ns.
	Quantum time.Duration
	// Parallel runs the laws as parallel tests, for a store that waits for a
	// server more than it works. The default value is false.
	Parallel bool
	// Part, if it is above 1, holds each law to one limit in Part, a different
	// one for each law, and those that are about many keys or histories to one in
	// Part of them, for a store that takes minutes for all. The default value holds each law to every limit.
	Part int
}

// Run runs every vector and every law as a subtest.
func (s Suite) Run(t *testing.T) {
	if s.Quantum <= 0 {
		s.Quantum = 1
	}
	t.Run("vectors", s.vectors)
	for k, law := range laws {
		t.Run(law.name, func(t *testing.T) {
			if law.once != nil {
				s.parallel(t)
				s.with(t, func(e *env) { law.once(e) })
				return
			}
			for i, text := range limits {
				if s.Part > 1 && (i+k)%s.Part != 0 {
					continue
				}
				t.Run(text, func(t *testing.T) {
					s.parallel(t)
					s.with(t, func(e *env) { law.each(e, e.limit(text)) })
				})
			}
		})
	}
}

func (s Suite) parallel(t *testing.T) {
	if s.Parallel {
		t.Parallel()
	}
}

// A law holds for each limit, or once for the store.
type law struct {
	name string
	each func(e *env, l limit)
	once func(e *env)
}

var laws = []law{
	{name: "a denial changes nothing", each: denialChangesNothing},
	{name: "n takes of 1 are one take of n", each: unitsMakeSums},
	{name: "retry_after is tight", each: retryIsTight},
	{name: "remaining is true", each: remainingIsTrue},
	{name: "reset_after is true", each: resetIsTrue},
	{name: "what only asks changes nothing", each: askingChangesNothing},
	{name: "all ways to ask agree", each: waysAgree},
	{name: "impossible is never", each: impossibleIsNever},
	{name: "reserve and cancel are nothing", each: cancelUndoes},
	{name: "settle is take", each: settleIsTake},
	{name: "a reservation ends", each: reservationEnds},
	{name: "giving back never mints", each: givingBackNeverMints},
	{name: "a settlement rewrites history", each: settlingRewrites},
	{name: "a reservation outlives what it excuses", each: excusesEnd},
	{name: "refund", each: refundReturns},
	{name: "reset is unseen", each: resetIsUnseen},
	{name: "a clock that steps back mints nothing", each: clockStepsBack},
	{name: "layers, all or none", once: layersAllOrNone},
	{name: "keys are apart", once: keysAreApart},
	{name: "limits are apart", once: limitsAreApart},
	{name: "forgetting is lossless", once: forgettingIsLossless},
	{name: "changing a limit", once: changingALimit},
	{name: "alternating mints nothing", once: alternatingMintsNothing},
	{name: "a change locks nobody out", once: changeLocksNobodyOut},
	{name: "a ban ends when it should", once: bansEnd},
	{name: "a block lasts", once: blocksLast},
	{name: "what is open bans nobody", once: openBansNobody},
	{name: "who waits is denied what a queue delays", once: turnsAreNotDelayed},
	{name: "errors", once: errorsAreReturned},
	{name: "closed", once: closedIsClosed},
	{name: "greatest values", once: greatestValues},
	{name: "concurrent takes", each: concurrentTakes},
	{name: "concurrent reservations", each: concurrentReservations},
	{name: "concurrent layers", once: concurrentLayers},
	{name: "concurrent changes", once: concurrentChanges},
	{name: "concurrent blocks", once: concurrentBlocks},
}

// limits is every kind, with ratios that do not divide and every option.
var limits = []string{
	"5/s",
	"7/1m",
	"3/1us",
	"10/s burst 20",
	"13/1m burst 4",
	"13/1m burst 4 debt 30",
	"5/s burst 10 debt 3",
	"1_000_000_007/1h burst 50",
	"every 2s",
	"5/s burst 10 token_bucket_interval",
	"7/1m token_bucket_interval",
	"3/10s burst 2 token_bucket_interval",
	"3/10s burst 2 debt 9 token_bucket_interval",
	"5/s burst 10 leaky_queue",
	"7/1m burst 3 leaky_queue",
	"7/1m burst 3 debt 25 leaky_queue",
	"3/s burst 0 leaky_queue",
	"5/s fixed_window",
	"7/1m fixed_window count_denied",
	"5/s fixed_window from first",
	"7/1m fixed_window from first count_denied",
	"6 per day in Europe/Paris",
	"9 per month in UTC",
	"9 per month from 31 in Europe/Paris",
	"9 per quarter in UTC",
	"5/s sliding_log",
	"7/1m sliding_log",
	"4/1m sliding_log count_denied",
	"10/1m sliding_counter",
	"3/1us sliding_counter",
	"7/1m sliding_counter relaxed",
	"7/10s sliding_counter count_denied",
	"5/s sliding_counter relaxed count_denied",
	"10/1m sliding_buckets",
	"7/1m sliding_buckets parts 7",
	"5/s sliding_buckets parts 1",
	"9/10s sliding_buckets parts 3 count_denied",
}

func (s Suite) vectors(t *testing.T) {
	files, err := fs.Glob(Vectors, "vectors/*.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(path.Base(file), ".jsonl"), func(t *testing.T) { s.vector(t, file) })
	}
}

func (s Suite) vector(t testing.TB, file string) {
	text, err := Vectors.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range bytes.Split(text, []byte("\n"))[1:] {
		op, err := simulate.ParseOp(withoutWant(line))
		if err == nil && op.At%int64(s.Quantum) != 0 {
			t.Skipf("it has times that are no multiples of %v", s.Quantum)
		}
	}
	var clock simulate.Clock
	store := s.Open(t, clock.Now)
	defer store.Close()
	found, err := simulate.RunVectors(store, &clock, s.Quantum, bytes.NewReader(text))
	if err != nil {
		t.Error(err)
	}
	for _, m := range found {
		t.Error(m)
	}
}

// withoutWant cuts a line off before what is wanted, which stands last.
func withoutWant(line []byte) []byte {
	if i := bytes.LastIndex(line, []byte(`, "want"`)); i >= 0 {
		return append(line[:i:i], '}')
	}
	return line
}

// with opens a store, runs a check on it and closes it.
func (s Suite) with(t testing.TB, check func(e *env)) {
	e := &env{TB: t, suite: s, ctx: context.Background(), quantum: int64(s.Quantum)}
	e.rewind()
	e.store = s.Open(t, e.now.Load)
	check(e)
	if err := e.store.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}
