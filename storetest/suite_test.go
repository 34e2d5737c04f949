package storetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// A witness is a testing.TB that remembers failures instead of telling.
type witness struct {
	testing.TB
	mu    sync.Mutex
	first string
}

func (w *witness) Helper() {}

func (w *witness) Errorf(format string, args ...any) { w.Error(fmt.Sprintf(format, args...)) }

func (w *witness) Error(args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.first == "" {
		w.first = fmt.Sprint(args...)
	}
}

func (w *witness) Fatalf(format string, args ...any) { w.Fatal(fmt.Sprintf(format, args...)) }

func (w *witness) Fatal(args ...any) {
	w.Error(args...)
	runtime.Goexit()
}

func (w *witness) Logf(string, ...any) {}

// witnessed runs a check and returns its first failure.
func witnessed(t *testing.T, check func(testing.TB)) string {
	w := &witness{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		check(w)
	}()
	<-done
	return w.first
}

// Every planted fault must be caught by the vectors or by a law: a suite that
// catches none is a suite that says nothing.
func TestFaultsAreCaught(t *testing.T) {
	for name, c := range map[string]struct {
		plant fault
		by    string // the law that it breaks most plainly
	}{
		"charges denials":         {fault{chargesDenials: true}, "a denial changes nothing"},
		"charges first":           {fault{chargesFirst: true}, "layers, all or none"},
		"check, then act":         {fault{checksThenActs: true}, "concurrent takes"},
		"joined keys":             {fault{joinsKeys: true}, "keys are apart"},
		"floored waits":           {fault{floors: true}, "retry_after is tight"},
		"finite for never":        {fault{neverIsLong: true}, "impossible is never"},
		"evicts live keys":        {fault{forgets: 300}, "forgetting is lossless"},
		"rounded T":               {fault{rounds: true}, "vectors"},
		"settles twice":           {fault{settlesTwice: true}, "settle is take"},
		"mints":                   {fault{mints: true}, "giving back never mints"},
		"peek charges":            {fault{peekCharges: true}, "what only asks changes nothing"},
		"ignores count_denied":    {fault{ignoresDenied: true}, "a denial changes nothing"},
		"take_up_to is take":      {fault{upToIsTake: true}, "n takes of 1 are one take of n"},
		"wrong layer":             {fault{sameEverywhere: true}, "layers, all or none"},
		"remaining one too small": {fault{starvesFirst: true}, "remaining is true"},
		"reservations stay":       {fault{neverExpires: true}, "a reservation ends"},
		"a reset resets all":      {fault{resetsAll: true}, "reset is unseen"},
		"settles without weights": {fault{settlesUnits: true}, "layers, all or none"},
		"weights that wrap":       {fault{wrapsWeights: true}, "greatest values"},
		"a change mints":          {fault{startsAfresh: true}, "changing a limit"},
		"a change cuts":           {fault{cutsUnits: true}, "changing a limit"},
		"in turns, it cuts":       {fault{cutsUnits: true}, "alternating mints nothing"},
		"a look converts":         {fault{peekConverts: true}, "changing a limit"},
		"reads its own numbers":   {fault{readsOwn: true}, "changing a limit"},
		"converts twice":          {fault{convertsTwice: true}, "changing a limit"},
		"requests prolong a ban":  {fault{banProlongs: true}, "a ban ends when it should"},
		"a peek bans":             {fault{peekBans: true}, "a ban ends when it should"},
		"a neighbour bans":        {fault{neighbourBans: true}, "a ban ends when it should"},
		"a reset leaves a ban":    {fault{banStays: true}, "a ban ends when it should"},
		"a block shortens a ban":  {fault{blockShortens: true}, "a block lasts"},
		"unblocking resets":       {fault{unblockResets: true}, "a block lasts"},
		"a block in two steps":    {fault{blockInSteps: true}, "concurrent blocks"},
		"raises what is gone":     {fault{raisesAny: true}, "a reservation ends"},
		"one answer for all":      {fault{sharesAnswers: true}, "layers, all or none"},
	} {
		t.Run(name, func(t *testing.T) {
			suite := Suite{Quantum: 1, Open: func(_ testing.TB, now func() int64) stint.Store {
				return newNaive(now, c.plant)
			}}
			why := suite.breaks(t, c.by)
			if why == "" {
				t.Fatalf("not caught by %q", c.by)
			}
			t.Logf("%.300s", why)
		})
	}
}

// breaks runs one law, or the vectors, and returns the first failure.
func (s Suite) breaks(t *testing.T, name string) string {
	if name == "vectors" {
		files, err := fs.Glob(Vectors, "vectors/*.jsonl")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if why := witnessed(t, func(w testing.TB) { s.vector(w, file) }); why != "" {
				return file + ": " + why
			}
		}
		return ""
	}
	for _, law := range laws {
		if law.name != name {
			continue
		}
		for _, text := range limits {
			why := witnessed(t, func(w testing.TB) {
				s.with(w, func(e *env) {
					if law.once != nil {
						law.once(e)
					} else {
						law.each(e, e.limit(text))
					}
				})
			})
			if why != "" || law.once != nil {
				return why
			}
		}
	}
	return ""
}

// A store with a coarse clock passes too.
func TestQuantum(t *testing.T) {
	const quantum = time.Microsecond
	Suite{Quantum: quantum, Open: func(_ testing.TB, now func() int64) stint.Store {
		s := newNaive(now, fault{})
		s.quantum = quantum
		return s
	}}.Run(t)
}

// Every algorithm is among the limits of the suite, its changes and its vectors.
func TestEveryAlgorithm(t *testing.T) {
	var changed, vectors []string
	for _, c := range changes {
		changed = append(changed, c[:]...)
	}
	files, err := fs.Glob(Vectors, "vectors/*.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := Vectors.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		first, _, _ := bytes.Cut(text, []byte("\n"))
		var head struct{ Limits []string }
		if err := json.Unmarshal(first, &head); err != nil {
			t.Fatal(file, err)
		}
		vectors = append(vectors, head.Limits...)
	}
	for what, texts := range map[string][]string{"limits": limits, "changes": changed, "vectors": vectors} {
		has := make(map[meter.Algorithm]bool)
		for _, text := range texts {
			l, err := stint.Parse(text)
			if err != nil {
				t.Fatal(what, err)
			}
			has[l.Algorithm()] = true
		}
		for _, a := range meter.Algorithms() {
			if !has[a] {
				t.Errorf("%s: none is of %v", what, a)
			}
		}
	}
}
