// Command errors measures how far the limits that keep less than a log err
// from the log, which is exact: the sliding counter, strict and relaxed, the
// sub-windows, the fixed window and the bucket. It prints Markdown.
//
//	go run ./cmd/errors          # in the module proof
//	go run ./cmd/errors -quick   # a shorter search
//
// First on a real access log, client by client: the file that STINT_LOG
// names. Then on the worst arrivals that a search finds, beside what theory allows.
// Last, the fixed window's double burst, step by step.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/stint-dev/stint"
)

func main() {
	short := flag.Bool("quick", false, "search for a second or so only")
	flag.Parse()
	steps := 20_000
	if *short {
		steps = 2_000
	}
	if err := report(os.Stdout, steps); err != nil {
		fmt.Fprintln(os.Stderr, "errors:", err)
		os.Exit(1)
	}
}

// contenders are the kinds that are compared, by what follows the rate.
var contenders = []string{
	"sliding_log",
	"sliding_counter",
	"sliding_counter relaxed",
	"sliding_buckets parts 10",
	"sliding_buckets",
	"fixed_window",
	"gcra",
}

// rates are those that some clients of a small site feel. The log is a sample
// that holds the sixth minute of every hour and no other, so a window of a
// minute never slides over an edge in it; those of seconds and of hours do.
var rates = []string{"5/10s", "10/20s", "10/1m", "60/1m", "30/1h", "100/1h", "50/6h", "100/24h", "500/24h"}

func report(w io.Writer, steps int) error {
	fmt.Fprint(w, "### On a real log\n\n")
	clients, err := openLog()
	if err != nil {
		fmt.Fprintf(w, "No log to measure on: %v.\n", err)
	} else if err := reportLog(w, clients); err != nil {
		return err
	}
	if err := reportWorst(w, steps); err != nil {
		return err
	}
	return reportBurst(w)
}

// reportLog replays the log under every rate and kind.
func reportLog(w io.Writer, clients clients) error {
	fmt.Fprintf(w, "%d requests of %d clients. Each kind is judged by its own admissions: an admission is false when\n"+
		"the limit's count had passed in the window before it, a denial when it had not. *Differs* compares\n"+
		"with what the log decided on the same requests.\n\n", clients.requests(), len(clients))
	fmt.Fprintln(w, "| limit | kind | denied | differs | false denials | false admissions | most in a window |")
	fmt.Fprintln(w, "|---|---|--:|--:|--:|--:|--:|")
	for _, rate := range rates {
		for _, kind := range contenders {
			e, err := replay(clients, rate, kind)
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "| %s | %s | %d | %.2f %% | %d | %d | %d of %d |\n", rate, kind, e.denied,
				100*float64(e.differs)/float64(e.decisions), e.falseDenials, e.falseAdmissions, e.most, e.count)
		}
	}
	return nil
}

// A bound is what theory says of a kind of count L and window W.
type bound struct {
	kind   string
	excess string // the most in any window
	late   string // how much longer than a log it denies one unit
}

var bounds = []bound{
	{"sliding_log", "L", "0"},
	{"sliding_counter", "under 2 L", "W"},
	{"sliding_counter relaxed", "one more: 2 L", "W"},
	{"sliding_buckets parts 10", "L", "W/10"},
	{"sliding_buckets", "L", "W/60"},
	{"fixed_window", "2 L", "0"},
	{"gcra", "2 L − 1 (B + d/T)", "0"},
}

// reportWorst searches for the worst arrivals for each kind.
func reportWorst(w io.Writer, steps int) error {
	fmt.Fprintf(w, "\n### On the worst arrivals that a search found\n\n"+
		"L units in a window of W = 1m; %d steps of hill climbing for each cell. Shown are the units that\n"+
		"were admitted in the fullest window, as units @ time.\n\n", steps)
	fmt.Fprintln(w, "| kind | L | most in a window | at most | by | one unit denied longer than by a log | at most |")
	fmt.Fprintln(w, "|---|--:|--:|--:|---|--:|--:|")
	for _, b := range bounds {
		for _, count := range []int64{10, 100} {
			l, err := stint.Parse(fmt.Sprintf("%d/1m %s", count, b.kind))
			if err != nil {
				return err
			}
			most, err := newSearch(l, greatestExcess).climb(steps)
			if err != nil {
				return err
			}
			late, err := newSearch(l, longestLate).climb(steps)
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "| %s | %d | %d = %.2f L | %s | %v | %v | %s |\n", b.kind, count,
				most.score, float64(most.score)/float64(count), b.excess, most.admitted, time.Duration(late.score), b.late)
		}
	}
	return nil
}

// reportBurst shows twice the limit around an edge.
func reportBurst(w io.Writer) error {
	fmt.Fprint(w, "\n### The fixed window's double burst\n\n"+
		"| at | units | `10/1m fixed_window` | `10/1m sliding_log` | `10/1m sliding_counter` |\n|--:|--:|---|---|---|\n")
	var keys []*key
	for _, kind := range []string{"fixed_window", "sliding_log", "sliding_counter"} {
		l, err := stint.Parse("10/1m " + kind)
		if err != nil {
			return err
		}
		k, err := newKey(l)
		if err != nil {
			return err
		}
		keys = append(keys, k)
	}
	for _, at := range []time.Duration{time.Minute - 1, time.Minute} {
		fmt.Fprintf(w, "| %v | 10 |", at)
		for _, k := range keys {
			d := k.take(int64(at), 10)
			if d.Allowed {
				fmt.Fprint(w, " passes |")
			} else {
				fmt.Fprintf(w, " denied, retry after %v |", d.RetryAfter)
			}
		}
		fmt.Fprintln(w)
	}
	return nil
}
