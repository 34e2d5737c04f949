package lab

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/stint-dev/stint/meter"
)

// mostLines is how many requests are written out for stint simulate where no
// phases describe them.
const mostLines = 2_000

// A Copy is a limit in forms to paste elsewhere.
type Copy struct {
	Limit int `json:"limit"`
	// Rule is a rules file, Go a program, and Simulate a command that shows
	// the same totals.
	Rule     string `json:"rule"`
	Go       string `json:"go"`
	Simulate string `json:"simulate"`
}

// copy writes the forms of the row's limit.
func (row *Row) copy(t *traffic) *Copy {
	return &Copy{Rule: row.rule(), Go: row.program(), Simulate: row.command(t)}
}

// rule writes a rules file, in shadow: a first guess should deny no client.
func (row *Row) rule() string {
	return fmt.Sprintf(`rules:
  - name: lab
    key: [ip]
    limits: ["%s"]
%s    shadow: true # decides and counts, but lets pass: without this line it denies
`, row.Limit, row.mode())
}

// mode writes how several processes hold the rule.
func (row *Row) mode() string {
	if row.Shared == nil || row.Shared.Mode == "strict" {
		return ""
	}
	return "    mode: " + row.Shared.Mode + "\n"
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
	case row.limit.Algorithm() == meter.LeakyQueue:
		ask = `	if err := limiter.Wait(context.Background(), "client", 1); err != nil {
		log.Fatal(err)
	}
	fmt.Println("it is this client's turn")
`
	}
	imported, store := "memstore", "memstore.New(memstore.Options{})"
	if s := row.Shared; s != nil {
		imported, store = "redisstore", "shared.Mode(redisstore."+strings.ToUpper(s.Mode[:1])+s.Mode[1:]+")"
		if row.limit.InFlight() {
			store = "shared"
		}
	}
	return fmt.Sprintf(`package main

import (
	"context"
	"fmt"
	"log"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/%s"
)

func main() {
	limit, err := stint.Parse(%q)
	if err != nil {
		log.Fatal(err)
	}
%s	limiter, err := stint.NewLimiter(%s, "client", limit)
	if err != nil {
		log.Fatal(err)
	}
%s}
`, imported, row.Limit, row.Shared.opening(), store, ask)
}

// opening writes how a program opens the Redis that processes share.
func (s *Shared) opening() string {
	if s == nil {
		return ""
	}
	options := `URL: "redis://127.0.0.1:6379"`
	if s.Mode == "share" {
		options += fmt.Sprintf(", Modes: redisstore.Modes{Nodes: %d}", s.Nodes)
	}
	return fmt.Sprintf(`	shared, err := redisstore.New(redisstore.Options{%s})
	if err != nil {
		log.Fatal(err)
	}
	defer shared.Close()
`, options)
}

// command writes the line of stint simulate: the phases where they say what
// was sent, else every request, on standard input.
func (row *Row) command(t *traffic) string {
	lasts, flag := "", ""
	if row.limit.InFlight() {
		lasts = time.Duration(t.lasts).String()
		flag = " --lasts " + lasts
	}
	if s := row.Shared; s != nil {
		if t.phases == "" || s.AwayTo > 0 || s.Skew > 0 {
			return "# stint simulate has no requests of other shapes for several processes, no Redis\n# that is away, and no clocks that differ.\n"
		}
		store := ""
		if s.Mode == "lease" || s.Mode == "async" {
			store = " --store redis://127.0.0.1:6379"
		}
		return fmt.Sprintf("stint simulate --arrivals '%s'%s \\\n    --limit '%s' --nodes %d --mode %s%s\n", strings.Join(strings.Fields(t.phases), " "), flag, row.Limit, s.Nodes, s.Mode, store)
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
		}{time.Duration(at).String(), t.clients[row.keys[i]], row.sent.cost[i], lasts})
		if err != nil {
			panic(err) // strings and a number
		}
		b.Write(line)
		b.WriteByte('\n')
	}
	b.WriteString("END\n")
	return b.String()
}
