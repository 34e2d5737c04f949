package resp_test

import (
	"bufio"
	"fmt"
	"strings"
	"testing"

	"github.com/stint-dev/stint/service/observe"
	"github.com/stint-dev/stint/service/observe/topkeys"
	"github.com/stint-dev/stint/service/resp"
)

// TestCosts reserves tokens and a request in one, and settles the tokens alone.
func TestCosts(t *testing.T) {
	keys := topkeys.New()
	o := observe.New(observe.Options{TopKeys: keys})
	defer o.Close()
	address, _ := start(t, resp.Options{Observer: o})
	c := dial(t, address)
	in := bufio.NewReader(c)
	ask := func(line string) (all []string) {
		t.Helper()
		_, _ = fmt.Fprintf(c, "%s\r\nPING\r\n", line)
		for {
			got, err := in.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if got = strings.TrimSpace(got); got == "+PONG" {
				return all
			}
			all = append(all, got)
		}
	}
	after := func(all []string, name string) string {
		for i, line := range all {
			if line == name && i+1 < len(all) {
				return strings.Join(all[i+1:min(i+3, len(all))], " ")
			}
		}
		return ""
	}
	got := ask("STINT.RESERVE path /work user a COST.work 4000 COST.login 2")
	_, token, _ := strings.Cut(after(got, "reservation"), " ")
	if token == "" || !strings.HasPrefix(after(got, "remaining"), ":6000 ") {
		t.Fatalf("%q", got)
	}
	got = ask("STINT.SETTLE " + token + " COST.work 1500 COST.login 1")
	if !strings.HasPrefix(after(got, "remaining"), ":8500 ") || after(got, "counted") != "*1 $4" {
		t.Errorf("settled: %q", got)
	}
	if near := keys.Nearest(9); len(near) != 2 || near[0].Used+near[1].Used != 1501 {
		t.Errorf("who has used how much: %+v", near)
	}
	if got = ask("STINT.SETTLE " + token + " COST.requests 1"); got[0] != `-ERR policy: costs of "requests": no such rule: there is work, login` {
		t.Errorf("a name that it was not made with: %q", got)
	}
	if got = ask("STINT.SETTLE " + token + " 3"); !strings.HasPrefix(after(got, "remaining"), ":47 ") {
		t.Errorf("the plain cost: %q", got)
	}
	if got = ask("STINT.PEEK path /work user a COST 48"); after(got, "allowed") != ":0 $4" {
		t.Errorf("a request more than is left: %q", got)
	}

	// Each is settled once: 0 for all gives back what is not settled, named or not.
	for settled, want := range map[string]string{"2": "10000 48", "COST.work 1500": "8500 50"} {
		user := settled[:1]
		got = ask("STINT.RESERVE path /work user " + user + " COST.work 4000 COST 1")
		_, token, _ := strings.Cut(after(got, "reservation"), " ")
		ask("STINT.SETTLE " + token + " " + settled)
		ask("STINT.SETTLE " + token + " 0 COST.work 0")
		work, _, _ := strings.Cut(after(ask("STINT.PEEK path /work user "+user+" COST.work 10000 COST 0"), "remaining"), " ")
		requests, _, _ := strings.Cut(after(ask("STINT.PEEK path /work user "+user+" COST.work 0 COST 51"), "remaining"), " ")
		if got := work[1:] + " " + requests[1:]; got != want {
			t.Errorf("settled %s, then 0: %s left of work and requests, want %s", settled, got, want)
		}
	}
}
