package main

import (
	"fmt"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
)

// A kindRow is a limit of one kind, and what stands beside it: the number of
// ns that is quoted for it, on another machine, and what an article would
// write, nil where articles write none.
type kindRow struct {
	name   string
	limit  string // never reached
	quoted string
	naive  func() func() bool
}

// The log is shorter than the others: one that is never reached would hold all
// requests of the run. It still passes everything, with some hundred entries.
var kindRows = []kindRow{
	{"token bucket", "1_000_000_000/s", "43", naiveTokenBucket},
	{"token bucket, uneven period", "1_000_000_000/1000000007ns", "", nil},
	{"token bucket by interval", "1_000_000_000/s token_bucket_interval", "", nil},
	{"leaky queue", "1_000_000_000/s leaky_queue", "", naiveQueue},
	{"fixed window", "1_000_000_000/s fixed_window", "43", naiveFixedWindow},
	{"sliding log", "2000 per 10us sliding_log", "45", naiveLog},
	{"sliding counter", "1_000_000_000/s sliding_counter", "51", naiveCounter},
	{"sub-windows, 10", "1_000_000_000/s sliding_buckets parts 10", "", naiveParts},
	{"sub-windows, 60", "1_000_000_000/s sliding_buckets", "", nil},
}

// kinds measures every kind on one key that passes, on one core: through the
// keyed Limiter, through the single one, and as articles write it.
func (f *figures) kinds() error {
	var contenders []contender
	for _, k := range kindRows {
		three, err := k.contenders()
		if err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
		contenders = append(contenders, three...)
	}
	rs, err := f.race(contenders)
	if err != nil {
		return err
	}
	fmt.Fprintf(f.out, "\nns per decision, one key, one core. Quoted: figures from an article, measured on another machine. "+
		"Naive: one key, a mutex, time.Now and the code that articles show, measured in this run.\n")
	t := table{head: []string{"kind", "quoted", "naive", "single Allow", "single Take", "keyed Allow", "keyed Take", "× naive", "keyed B/op", "naive B/op"}}
	for _, k := range kindRows {
		row := []string{k.name, k.quoted, "", number(rs.ns(k.name + singleAllow)), number(rs.ns(k.name + singleTake)),
			number(rs.ns(k.name + keyedAllow)), number(rs.ns(k.name + keyedTake)), "", "", ""}
		keyed, _ := rs.of(k.name+keyedTake, 1)
		row[8] = number(keyed.bytes)
		if naive, ok := rs.of(k.name+naiveAllow, 1); ok {
			one, _ := rs.of(k.name+singleAllow, 1)
			row[2], row[7], row[9] = number(naive.median()), fmt.Sprintf("%.2f", one.ratio(naive)), number(naive.bytes)
		}
		t.add(row...)
	}
	t.print(f)
	f.noAllocations(rs, "every kind")
	fmt.Fprintln(f.out, "\n“× naive” is single Allow over naive: both have one key and give the short answer.")
	return nil
}

const (
	keyedAllow  = ", keyed Allow"
	keyedTake   = ", keyed Take"
	singleAllow = ", single Allow"
	singleTake  = ", single Take"
	naiveAllow  = ", naive"
)

func (rs results) ns(name string) float64 {
	r, _ := rs.of(name, 1)
	return r.median()
}

func (k kindRow) contenders() ([]contender, error) {
	limit, err := stint.Parse(k.limit)
	if err != nil {
		return nil, err
	}
	l, _, err := newStint(1, limit)
	if err != nil {
		return nil, err
	}
	one, err := memstore.NewSingle(limit, memstore.SingleOptions{})
	if err != nil {
		return nil, err
	}
	key := repeated("user:1234567")
	cs := []contender{
		{name: k.name + keyedAllow, cores: 1, ours: true, run: sweep(key, allows(l))},
		{name: k.name + keyedTake, cores: 1, ours: true, run: sweep(key, takes(l))},
		{name: k.name + singleAllow, cores: 1, ours: true, run: count(one.Allow)},
		{name: k.name + singleTake, cores: 1, ours: true, run: count(func() bool {
			d, err := one.Take(1)
			return d.Allowed && err == nil
		})},
	}
	if k.naive != nil {
		cs = append(cs, contender{name: k.name + naiveAllow, cores: 1, run: count(k.naive())})
	}
	return cs, nil
}

// count returns a contender's run of something without keys.
func count(allow func() bool) func(worker, n int) int {
	return func(_, n int) (passed int) {
		for range n {
			if allow() {
				passed++
			}
		}
		return passed
	}
}
