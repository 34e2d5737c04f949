package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/policy"
)

// pieces is a Reader of so many pieces of 400 bytes, one for each Read.
type pieces int

func (p *pieces) Read(b []byte) (int, error) {
	if *p == 0 {
		return 0, io.EOF
	}
	*p--
	return copy(b, strings.Repeat("x", 400)), nil
}

// TestCut ends a response where its budget of 1,000 is used up: what has been written by
// then has been sent, and is charged.
func TestCut(t *testing.T) {
	const bytes = `"cost": {"response": "bytes", "reserve": 100, "cut": true}`
	write := func(n int) func(io.Writer) error {
		return func(w io.Writer) (err error) {
			for i := 0; i < n && err == nil; i++ {
				_, err = io.WriteString(w, strings.Repeat("x", 400))
			}
			return err
		}
	}
	events := func(w io.Writer) (err error) {
		for n := 400; n <= 2000 && err == nil; n += 400 {
			_, err = fmt.Fprintf(w, "data: {\"n\":%d}\n\n", n)
		}
		return err
	}
	for _, c := range []struct {
		name, rule string
		write      func(io.Writer) error
		sent       string // what the client has got when the response is cut
		cut        bool
		charged    int64
	}{
		{"bytes", bytes, write(10), "", true, 1200},
		{"not asked for", `"cost": {"response": "bytes", "reserve": 100}`, write(4), "", false, 1600},
		{"at its end", bytes, write(3), "", false, 1200},
		{"within the budget", bytes, write(2), "", false, 800},
		{"of a reader", bytes, func(w io.Writer) error {
			p := pieces(10)
			_, err := io.Copy(w, struct{ io.Reader }{&p})
			return err
		}, "", true, 1200},
		{"of a body", `"cost": {"response": "/n", "reserve": 100, "cut": true}`, events, "\"n\":1200}\n\n", true, 1200},
		{"a status that does not count", bytes + `, "count": {"status": "4xx"}`, write(4), "", false, 0},
		{"in shadow", bytes + `, "shadow": true`, write(4), "", false, 1600},
	} {
		t.Run(c.name, func(t *testing.T) {
			failed := make(chan error, 1)
			m := metering(t, fmt.Sprintf(`{"rules": [{"name": "r", "key": [], "limits": ["1000/h"], %s}]}`, c.rule), func(w http.ResponseWriter, _ *http.Request) {
				failed <- c.write(w)
			})
			_, body := m.get("/")
			if err := <-failed; errors.Is(err, httplimit.ErrCut) != c.cut || !c.cut && err != nil {
				t.Errorf("the handler gets %v", err)
			}
			sent, cut := strings.CutSuffix(body, " (unexpected EOF)")
			if cut != c.cut || !strings.HasSuffix(sent, c.sent) || c.sent == "" && c.cut && len(sent) != 1200 {
				t.Errorf("the client gets %d bytes, cut: %v: %.60s", len(sent), cut, sent)
			}
			var r policy.Result
			if err := m.policy.Peek(context.Background(), policy.Map{}, 1, &r); err != nil {
				t.Fatal(err)
			}
			e := r.Rules[0] // the limit of 100; seconds until the next pass if there is no room
			charged := 1000 - e.Remaining
			if wait, _ := r.Decision.RetryAfter.Duration(); wait > 0 {
				charged = 900 + int64(wait/(3600*time.Millisecond))
			}
			if e.Shadow {
				charged = c.charged // clients are not told what they owe to a rule in shadow
			}
			if charged != c.charged {
				t.Errorf("charged %d: want %d", charged, c.charged)
			}
		})
	}
}
