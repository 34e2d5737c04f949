package proof_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// rowsDiffer is in how many rows a vector or a case of ours is not theirs; what it says
// about itself has the reason. Other answers of a Single stand in rows of their own.
var rowsDiffer = map[string]int{
	"TestLimiterJumpBackwards": 1,
	"TestReserveSetBurst":      1, // a Single cannot be asked at an earlier time
	"TestAllow":                1, // of redis_rate, as is the next
	"TestAllowAtMost":          1,
}

// rowsOf are the suites whose tests are tables: how to read the rows in a function of
// theirs, and in a vector of ours.
var rowsOf = map[string]struct{ theirs, ours func(text string) []string }{
	"golang.org/x/time":                  {rateRows, rateVector},
	"github.com/throttled/throttled/v2":  {throttledRows, throttledVector},
	"github.com/go-redis/redis_rate/v10": {redisRateRows, redisRateVector},
}

// TestPublicRows holds the rows of our tables to those in the sources of x/time/rate,
// throttled and redis_rate: the same steps at the same times, with the same answers.
// Tests that are programs are not among them.
func TestPublicRows(t *testing.T) {
	if os.Getenv("STINT_MUTANT") != "" {
		t.Skip("it looks at tables, and needs the module proxy")
	}
	for _, s := range publicSuites(t) {
		read, ok := rowsOf[s.module]
		if !ok {
			continue
		}
		var sources strings.Builder
		for _, path := range sourcesOf(t, &s) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			sources.Write(text)
		}
		compared := 0
		for name, where := range s.cases {
			path, section, _ := strings.Cut(where, "#")
			theirs := read.theirs(functionOf(sources.String(), name))
			isVector := strings.HasPrefix(path, "storetest/vectors/")
			if len(theirs) == 0 || !isVector && filepath.Base(path) != "xtime_test.go" {
				continue
			}
			text, err := os.ReadFile(filepath.Join("..", path))
			if err != nil {
				t.Fatal(err)
			}
			ours := rateCase(string(text), strings.Trim(section, `"`))
			if isVector {
				ours = read.ours(string(text))
			}
			compared++
			compareRows(t, name, theirs, ours)
		}
		if sources.Len() > 0 && compared == 0 {
			t.Errorf("%s: %d tables found", s.module, compared)
		}
	}
}

func compareRows(t *testing.T, name string, theirs, ours []string) {
	t.Helper()
	if len(theirs) != len(ours) {
		t.Errorf("%s has %d rows, ours %d:\n%s\n\n%s", name, len(theirs), len(ours), strings.Join(theirs, "\n"), strings.Join(ours, "\n"))
		return
	}
	var differ []string
	for i := range theirs {
		if theirs[i] != ours[i] {
			differ = append(differ, fmt.Sprintf("row %d: %s, here %s", i, theirs[i], ours[i]))
		}
	}
	if len(differ) != rowsDiffer[name] {
		t.Errorf("%s: %d rows differ, want %d:\n%s", name, len(differ), rowsDiffer[name], strings.Join(differ, "\n"))
	}
}

// functionOf returns the text of a function, empty if it is not there.
func functionOf(source, name string) string {
	_, rest, _ := strings.Cut(source, "\nfunc "+name+"(")
	body, _, _ := strings.Cut(rest, "\n}\n")
	return body
}

var (
	rateLimiter = regexp.MustCompile(`NewLimiter\((\d+), (\d+)\)`)
	rateRow     = regexp.MustCompile(`(?m)\{t(\d), -?(\d+), (\d+), (true|false)\}` +
		`|(?:(\w+) := )?runReserve(Max)?\(t, lim, request\{t(\d), (\d+), (?:t(\d)|time\.Time\{\}), (true|false)\}` +
		`|(\w+)\.CancelAt\(t(\d)\)` +
		`|lim\.Set(Limit|Burst)At\(t(\d), (\d+)\)`)
)

// rateRows are the rows of x/time/rate: what passes at once with the tokens that there
// were before, or when a reservation lets act, in tenths of a second.
func rateRows(body string) (rows []string) {
	limiter := rateLimiter.FindStringSubmatch(body)
	if limiter == nil {
		return nil
	}
	rate, burst := limiter[1], limiter[2]
	bare := strings.Contains(body, "run(t, NewLimiter")
	row := make(map[string]int) // of a reservation, by the name of its variable
	acts := make(map[string]int)
	waits, number := 0, make(map[string]int)
	for _, m := range rateRow.FindAllStringSubmatch(body, -1) {
		switch {
		case m[1] != "" && bare:
			rows = append(rows, fmt.Sprintf("at %s00ms %s of %s: %s", m[1], m[3], m[2], m[4]))
		case m[1] != "":
			rows = append(rows, step(m[1], "allow", m[3], m[1], m[4]))
		case m[7] != "":
			op := "wait"
			if m[6] != "" {
				op = "soon"
			}
			row[m[5]], number[m[5]] = len(rows), waits
			acts[m[5]], _ = strconv.Atoi(m[9])
			waits++
			rows = append(rows, step(m[7], op, m[8], m[9], m[10]))
		case m[11] != "":
			rows = append(rows, step(m[12], "cancel", strconv.Itoa(number[m[11]]), "", "false"))
			if at, _ := strconv.Atoi(m[12]); at <= acts[m[11]] {
				i := row[m[11]]
				rows[i] = rows[i][:strings.LastIndex(rows[i], ":")] + ": never"
			}
		default:
			if m[13] == "Limit" {
				rate = m[15]
			} else {
				burst = m[15]
			}
			rows = append(rows, step(m[14], rate+"/s burst "+burst, "0", "", "false"))
		}
	}
	return rows
}

// step is a row of memstore/xtime_test.go, with what rate does.
func step(at, op, n, when, ok string) string {
	if ok == "false" {
		when = "never"
	}
	return fmt.Sprintf("at %s %s %s: %s", at, op, n, when)
}

var caseStep = regexp.MustCompile(`(?:operation|differs)\((\d+), "([^"]+)", (\d+), (\d+|never)`)

// rateCase returns the steps of a case of memstore/xtime_test.go.
func rateCase(source, name string) (rows []string) {
	_, rest, _ := strings.Cut(source, "\n\t{\""+name)
	text, _, _ := strings.Cut(rest, "\n\t}},")
	for _, m := range caseStep.FindAllStringSubmatch(text, -1) {
		rows = append(rows, step(m[1], m[2], m[3], m[4], "true"))
	}
	return rows
}

// A vectorLine is a line of a vector, as far as rows have it.
type vectorLine struct {
	T    string
	Op   string
	Cost *int64
	Want struct {
		Allowed   *bool
		Remaining int64
		Taken     int64
		Reset     string `json:"reset_after"`
		Retry     string `json:"retry_after"`
	}
}

func vectorLines(text string) (lines []vectorLine) {
	for i, line := range strings.Split(strings.TrimSpace(text), "\n") {
		var l vectorLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			panic(err)
		}
		if one := int64(1); l.Cost == nil {
			l.Cost = &one
		}
		if i > 0 {
			lines = append(lines, l)
		}
	}
	return lines
}

// rateVector has a look at the tokens before each request.
func rateVector(text string) (rows []string) {
	lines := vectorLines(text)
	for i := 0; i+1 < len(lines); i += 2 {
		look, l := lines[i], lines[i+1]
		rows = append(rows, fmt.Sprintf("at %s %d of %d: %v", milliseconds(l.T), *l.Cost, look.Want.Remaining, *l.Want.Allowed))
	}
	return rows
}

func milliseconds(text string) string {
	d, err := time.ParseDuration(text)
	if err != nil {
		return text // never
	}
	return fmt.Sprintf("%03dms", d.Round(10*time.Millisecond).Milliseconds())
}

var throttledRow = regexp.MustCompile(`\{start(?:\.Add\((\d+) \* time\.Millisecond\))?, (\d+), (\d+), ([^,]+), ([^,]+), (true|false)\}`)

// throttledRows are the rows of throttled: −1 as a retry is that none is known.
func throttledRows(body string) (rows []string) {
	for _, m := range throttledRow.FindAllStringSubmatch(body, -1) {
		at, retry := m[1], goDuration(m[5])
		if at == "" {
			at = "0"
		}
		if m[5] == "-1" {
			retry = map[string]string{"true": "never", "false": "000ms"}[m[6]]
		}
		rows = append(rows, fmt.Sprintf("at %sms %s: %s left, reset %s, retry %s, limited %s", at, m[2], m[3], goDuration(m[4]), retry, m[6]))
	}
	return rows
}

func throttledVector(text string) (rows []string) {
	for _, l := range vectorLines(text) {
		rows = append(rows, fmt.Sprintf("at %s %d: %d left, reset %s, retry %s, limited %v",
			l.T, *l.Cost, l.Want.Remaining, milliseconds(l.Want.Reset), milliseconds(l.Want.Retry), l.Want.Allowed == nil || !*l.Want.Allowed))
	}
	return rows
}

var goTerm = regexp.MustCompile(`^(?:(\d+) ?\* ?)?time\.(Second|Millisecond)$`)

// goDuration reads a duration as sources have it, to ten milliseconds: redis_rate
// counts in floats, and says 999 where it means 1000.
func goDuration(text string) string {
	n, unit := int64(1), time.Millisecond
	if m := goTerm.FindStringSubmatch(text); m == nil {
		return "000ms" // 0, or −1
	} else {
		if m[1] != "" {
			n, _ = strconv.ParseInt(m[1], 10, 64)
		}
		if m[2] == "Second" {
			unit = time.Second
		}
	}
	return milliseconds((time.Duration(n) * unit).String())
}

var redisRateRow = regexp.MustCompile(`(?s)l\.(Allow|AllowN|AllowAtMost|Reset)\(ctx, "test_id"(?:, limit)?(?:, (\d+))?\)` +
	`(?:\s+require\.Nil\(t, err\)\s+require\.Equal\(t, res\.Allowed, (\d+)\)\s+require\.Equal\(t, res\.Remaining, (\d+)\)` +
	`\s+require\.\w+\(t, res\.RetryAfter, ([^,)]+\)?)[^\n]*\s+require\.\w+\(t, res\.ResetAfter, ([^,)]+\)?))?`)

// redisRateRows are the calls of redis_rate with what each must answer.
func redisRateRows(body string) (rows []string) {
	for _, m := range redisRateRow.FindAllStringSubmatch(body, -1) {
		op, n := m[1], m[2]
		switch {
		case op == "Reset":
			rows = append(rows, "Reset")
			continue
		case m[3] == "":
			return nil // it is no table
		case op == "Allow":
			op, n = "AllowN", "1"
		}
		rows = append(rows, fmt.Sprintf("%s %s: %s, %s left, retry %s, reset %s", op, n, m[3], m[4], goDuration(m[5]), goDuration(m[6])))
	}
	return rows
}

func redisRateVector(text string) (rows []string) {
	for _, l := range vectorLines(text) {
		op, got := "AllowN", int64(0)
		switch {
		case l.Op == "reset":
			rows = append(rows, "Reset")
			continue
		case l.Op == "take_up_to":
			op, got = "AllowAtMost", l.Want.Taken
		case *l.Want.Allowed:
			got = *l.Cost
		}
		rows = append(rows, fmt.Sprintf("%s %d: %d, %d left, retry %s, reset %s", op, *l.Cost, got, l.Want.Remaining, milliseconds(l.Want.Retry), milliseconds(l.Want.Reset)))
	}
	return rows
}
