package lab

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// mostLines is how many requests are written out one by one for stint simulate where no phases
// describe them.
const mostLines = 2_000

// A Copy is one limit in forms to paste elsewhere.
type Copy struct {
	Limit int `json:"limit"`
	// Rule is a rules file, Go is a program, and Simulate is a command that prints the same totals.
	Rule     string `json:"rule"`
	Go       string `json:"go"`
	Simulate string `json:"simulate"`
}

// copy writes the limit of the row in each form.
func (row *Row) copy(t *traffic) *Copy {
	return &Copy{Rule: row.rule(), Go: row.program(), Simulate: row.command(t)}
}

// rule writes a rules file in shadow, since a first guess should deny no client.
func (row *Row) rule() string {
	return fmt.Sprintf(`rules:
  - name: lab
    key: [ip]
    limits: ["%s"]
    shadow: true # decides and counts, but lets pass: without this line it denies
`, row.Limit)
}

// program writes a program that holds a client to the limit.
func (row *Row) program() string {
	ask := `	allowed, err := limiter.Allow(context.Background(), "client")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("allowed:", allowed)
`
	switch {
	case row.limit.InFlight():
		ask = `	d, release, err := limiter.Acquire(context.Background(), "client")
	if err != nil {
		log.Fatal(err)
	}
	defer release() // when the request ends
	fmt.Println("allowed:", d.Allowed)
`
	case row.limit.Algorithm().Queues():
		ask = `	if err := limiter.Wait(context.Background(), "client", 1); err != nil {
		log.Fatal(err)
	}
	fmt.Println("it is this client's turn")
`
	}
	return fmt.Sprintf(`package main

import (
	"context"
	"fmt"
	"log"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
)

func main() {
	limit, err := stint.Parse(%q)
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := stint.NewLimiter(memstore.New(memstore.Options{}), "client", limit)
	if err != nil {
		log.Fatal(err)
	}
%s}
`, row.Limit, ask)
}

// command writes a command line of stint simulate: with phases where they describe the requests,
// otherwise with every request on standard input.
func (row *Row) command(t *traffic) string {
	lasts, flag := "", ""
	if row.limit.InFlight() {
		lasts = time.Duration(t.lasts).String()
		flag = " --lasts " + lasts
	}
	if t.phases != "" {
		return fmt.Sprintf("stint simulate --arrivals '%s'%s \\\n    --compare '%s'\n", strings.Join(strings.Fields(t.phases), " "), flag, row.Limit)
	}
	if row.Requests > mostLines {
		return fmt.Sprintf("# These are %d requests that no phases describe, too many to write out here:\n# at most %d. Take a shorter time or a lower rate.\n", row.Requests, mostLines)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "stint simulate --compare '%s' <<'END'\n", row.Limit)
	for i, at := range row.sent.At {
		line, err := json.Marshal(struct {
			T     string `json:"t"`
			Key   string `json:"key"`
			Cost  int64  `json:"cost"`
			Lasts string `json:"lasts,omitempty"`
		}{time.Duration(at).String(), t.key(row.sent.who[i]), row.sent.cost[i], lasts})
		if err != nil {
			panic(err) // unreachable: the value is strings and a number
		}
		b.Write(line)
		b.WriteByte('\n')
	}
	b.WriteString("END\n")
	return b.String()
}
