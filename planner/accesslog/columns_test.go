package accesslog_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/planner/accesslog"
)

// A server that begins again names its columns anew: each block says which hold
// for it, so that any parser may read it.
func TestColumnsChange(t *testing.T) {
	const first, second = "#Fields: date time c-ip cs-uri-stem\n", "#Fields: date time s-ip c-ip cs-uri-stem\n"
	var log strings.Builder
	at := time.Date(2024, 3, 5, 12, 0, 0, 0, time.UTC)
	write := func(heading, address string, n int) {
		log.WriteString("#Software: a server\n" + heading)
		for range n {
			at = at.Add(time.Second)
			fmt.Fprintf(&log, "%s %s /a\n", at.Format("2006-01-02 15:04:05"), address)
		}
	}
	write(first, "192.0.2.1", 20_000)
	write(second, "10.0.0.1 192.0.2.1", 20_000)
	write("#Fields: date c-ip\n", "192.0.2.1", 10)                                // no time: not to be read
	write("#Fields: date time c-ip c-ip cs-uri-stem\n", "192.0.2.1 10.0.0.1", 10) // which is it?
	write(first, "192.0.2.1", 20_000)
	o := accesslog.Options{Attributes: []string{"ip"}}
	f, err := accesslog.From("w3c", strings.NewReader(log.String()), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	format, err := f.Detect(o)
	if err != nil {
		t.Fatal(err)
	}
	parsers := [2]accesslog.Parser{format.Parser(), format.Parser()}
	r := accesslog.Record{Values: make([][]byte, 1)}
	good, bad, blocks := 0, 0, 0
	for block, err := f.Next(nil); err == nil; block, err = f.Next(nil) {
		blocks++
		for len(block) > 0 {
			var line []byte
			line, block = accesslog.Line(block)
			switch err := parsers[blocks%2].Parse(line, &r); {
			case err == nil && string(r.Values[0]) == "192.0.2.1":
				good++
			case err == nil:
				t.Fatalf("%s: the address is %s", line, r.Values[0])
			case err != accesslog.ErrSkip:
				bad++
			}
		}
	}
	if good != 60_000 || bad != 20 || blocks < 8 {
		t.Errorf("%d good and %d bad lines in %d blocks", good, bad, blocks)
	}
}
