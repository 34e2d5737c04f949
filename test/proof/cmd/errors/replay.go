package main

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// clients are the times of requests by client, sorted: ns since the epoch.
type clients map[string][]int64

func (c clients) requests() (n int) {
	for _, times := range c {
		n += len(times)
	}
	return n
}

// openLog reads the access log that STINT_LOG names. Where it is not, the error
// matches fs.ErrNotExist.
func openLog() (clients, error) {
	path := os.Getenv("STINT_LOG")
	if path == "" {
		return nil, fmt.Errorf("STINT_LOG names no access log: %w", fs.ErrNotExist)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c, err := readLog(f, filepath.Ext(path) == ".gz")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// readLog reads lines in Apache's common or combined format. Lines that are
// not are skipped, unless all are.
func readLog(r io.Reader, zipped bool) (clients, error) {
	if zipped {
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, err
		}
		r = z
	}
	c := clients{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		client, rest, _ := strings.Cut(lines.Text(), " ")
		_, rest, _ = strings.Cut(rest, "[")
		stamp, _, _ := strings.Cut(rest, "]")
		if at, err := time.Parse("02/Jan/2006:15:04:05 -0700", stamp); err == nil {
			c[client] = append(c[client], at.UnixNano())
		}
	}
	if len(c) == 0 && lines.Err() == nil {
		return nil, errors.New("no line of an access log in it")
	}
	for _, times := range c {
		slices.Sort(times)
	}
	return c, lines.Err()
}

// key is the state of one client under one limit, without a store.
type key struct {
	meter *meter.Meter
	words []uint64
}

func newKey(l stint.Limit) (*key, error) {
	m, err := l.Meter()
	if err != nil {
		return nil, err
	}
	return &key{m, make([]uint64, m.Words())}, nil
}

// room makes sure that a log can note a charge.
func (k *key) room(now, cost int64) {
	if need := k.meter.Room(k.words, now, cost); need > len(k.words) {
		words := make([]uint64, 2*need)
		k.meter.Move(words, k.words)
		k.words = words
	}
}

func (k *key) take(now, cost int64) (d stint.Decision) {
	k.room(now, cost)
	a, ok := k.meter.Take(k.words, now, cost)
	d.Set(k.meter, a, ok, cost)
	return d
}

// admit notes what another limit admitted.
func (k *key) admit(now, cost int64) {
	k.room(now, cost)
	k.meter.Charge(k.words, now, cost)
}

// units returns how many units a log holds at a moment.
func (k *key) units(now int64) int64 {
	return k.meter.Spec().Count - k.meter.Answer(k.words, now, 0, true).Remaining
}

// mistakes are what a kind did on a log.
type mistakes struct {
	decisions, denied, differs    int
	falseDenials, falseAdmissions int
	count, most                   int64
}

// replay decides every request of the log, client by client.
func replay(c clients, rate, kind string) (e mistakes, err error) {
	judged, err := stint.Parse(rate + " " + kind)
	if err != nil {
		return e, err
	}
	log, err := stint.Parse(rate + " sliding_log")
	if err != nil {
		return e, err
	}
	e.count = log.Count()
	wide := stint.New(4*log.Count(), log.Period()).WithAlgorithm(meter.SlidingLog) // of what was admitted: never full
	for _, times := range c {
		var own [3]*key
		for i, l := range []stint.Limit{judged, log, wide} {
			if own[i], err = newKey(l); err != nil {
				return e, err
			}
		}
		for _, at := range times {
			e.decide(own[0], own[1], own[2], at)
		}
	}
	return e, nil
}

// decide adds one decision: admitted holds what the judged kind has admitted in
// the window.
func (e *mistakes) decide(judged, log, admitted *key, at int64) {
	passes, exact := judged.take(at, 1).Allowed, log.take(at, 1).Allowed
	before := admitted.units(at)
	e.decisions++
	if passes != exact {
		e.differs++
	}
	switch {
	case passes:
		if before >= e.count {
			e.falseAdmissions++
		}
		admitted.admit(at, 1)
		e.most = max(e.most, before+1)
	default:
		e.denied++
		if before < e.count {
			e.falseDenials++
		}
	}
}
