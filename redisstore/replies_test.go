package redisstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// hostile are replies that no server of Redis gives.
var hostile = map[string]string{
	"the longest string":     "$9223372036854775807\r\n",
	"a long string":          "$999999999999\r\n",
	"a length beyond int":    "$99999999999999999999\r\n",
	"a negative length":      "$-9\r\n",
	"a long error":           "!999999999999\r\n",
	"a long verbatim":        "=999999999999\r\n",
	"a large array":          "*2147483647\r\n",
	"the largest array":      "*9223372036854775807\r\n",
	"a large set":            "~2147483647\r\n",
	"a large push":           ">2147483647\r\n",
	"a large map":            "%9223372036854775807\r\n",
	"large arrays in arrays": strings.Repeat("*900000\r\n", 30),
	"arrays without end":     strings.Repeat("*1\r\n", 1<<20),
	"in an array":            "*2\r\n:1\r\n$9223372036854775807\r\n",
	"a line without end":     "+" + strings.Repeat("a", 1<<20),
	"attributes":             strings.Repeat("|0\r\n", 1<<16),
	"an error within":        "*2\r\n-OOM no\r\n:1\r\n",
	"a long error within":    "*2\r\n!6\r\nOOM no\r\n:1\r\n",
	"not in numbers":         "$x\r\n",
}

// TestHostileReplies has a server declare what go-redis would make room for: the call
// fails, and nothing else does.
func TestHostileReplies(t *testing.T) {
	for _, command := range []string{"EVALSHA", "HELLO", "CLUSTER"} {
		for name, reply := range hostile {
			t.Run(command+"/"+name, func(t *testing.T) {
				t.Parallel()
				store := openPlain(t, redisstore.Options{URL: "redis://" + impostor(t, command, reply), Timeout: within})
				if d, err := bind(t, store, short).Decide(ctx, meter.OpTake, "a", 1); err == nil {
					t.Errorf("%+v", d)
				} else if command == "EVALSHA" && (!errors.Is(err, redisstore.ErrAmbiguous) || !strings.Contains(err.Error(), "redisstore: a reply ")) {
					t.Errorf("told %v", err)
				}
			})
		}
	}
}

// TestSaid has a server or a proxy say what the tests of real ones do not make them say: of a
// server that a proxy lost when that had the call, in the words of Envoy, twemproxy, predixy,
// Codis and redis-cluster-proxy, and of one that looks for memory in the middle of a script, as
// Dragonfly does, the call may have run. A command that a server does not know has not. A
// server that serves nobody opens the breaker.
func TestSaid(t *testing.T) {
	for said, want := range map[string]error{
		"upstream failure":                        redisstore.ErrAmbiguous,
		"ERR Connection reset by peer":            redisstore.ErrAmbiguous,
		"ERR unknown":                             redisstore.ErrAmbiguous,
		"ERR server connection close":             redisstore.ErrAmbiguous,
		"ERR handle response, backend conn reset": redisstore.ErrAmbiguous,
		"ERR Cluster node disconnected: ":         redisstore.ErrAmbiguous,
		"ERR Out of memory":                       redisstore.ErrAmbiguous,
		"ERR unknown command 'evalsha'":           redisstore.ErrConfiguration,
		"MISCONF Redis is configured to save RDB snapshots, but cannot":  redisstore.ErrNotExecuted,
		"BUSY Redis is busy running a script. You can only SCRIPT KILL.": redisstore.ErrNotExecuted,
		"LOADING Redis is loading the dataset in memory":                 redisstore.ErrNotExecuted,
	} {
		store := openPlain(t, redisstore.Options{URL: "redis://" + impostor(t, "EVALSHA", "-"+said+"\r\n"), Timeout: within})
		limit := bind(t, store, short)
		for range 5 {
			_, err := limit.Decide(ctx, meter.OpTake, "a", 1)
			for _, class := range []error{redisstore.ErrAmbiguous, redisstore.ErrNotExecuted, redisstore.ErrConfiguration} {
				if errors.Is(err, class) != (class == want) {
					t.Errorf("%s: told %v, want %v", said, err, want)
				}
			}
		}
		if breaks := strings.HasPrefix(said, "BUSY") || strings.HasPrefix(said, "LOADING"); store.Stats().Open > 0 != breaks {
			t.Errorf("%s: %d breakers are open", said, store.Stats().Open)
		}
	}
}

// cut is what comes of a connection, in parts of some lengths.
type cut struct {
	net.Conn
	rest  []byte
	parts func() int
}

func (c *cut) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), c.parts())], c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// value draws a reply.
func value(t *rapid.T, deep int) []byte {
	kinds := "+-:_,#($!="
	if deep > 0 {
		kinds += "*~>%*~>%"
	}
	kind := rapid.SampledFrom([]byte(kinds)).Draw(t, "kind")
	switch n := rapid.IntRange(0, 4).Draw(t, "n"); kind {
	case '$', '!', '=':
		payload := rapid.SliceOfN(rapid.SampledFrom([]byte("\r\n$*9a")), 0, 40).Draw(t, "payload")
		return fmt.Appendf(nil, "%c%d\r\n%s\r\n", kind, len(payload), payload)
	case '*', '~', '>', '%':
		out := fmt.Appendf(nil, "%c%d\r\n", kind, n)
		if n == 0 {
			return []byte(string(kind) + "-1\r\n")
		}
		if kind == '%' {
			n *= 2
		}
		for range n {
			one := value(t, deep-1)
			if one[0] == '-' || one[0] == '!' {
				one = []byte("_\r\n")
			}
			out = append(out, one...)
		}
		return out
	default:
		return fmt.Appendf(nil, "%c%s\r\n", kind, strings.Repeat("x", n))
	}
}

// TestRepliesPass cuts replies that are within bounds anyhow, and reads them anyhow: they
// stay as they are. What is out of bounds behind them does not pass.
func TestRepliesPass(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var want []byte
		for range rapid.IntRange(1, 5).Draw(t, "replies") {
			want = append(want, value(t, 3)...)
		}
		most := 1 << 16
		sizes := rapid.IntRange(1, 1+len(want))
		bad := rapid.SampledFrom([]string{"", "$" + strconv.Itoa(most) + "\r\n", "*" + strconv.Itoa(most/16) + "\r\n", "%" + strconv.Itoa(most/32) + "\r\n"}).Draw(t, "bad")
		conn := redisstore.Checked(&cut{rest: []byte(string(want) + bad), parts: func() int { return sizes.Draw(t, "comes") }}, most)
		var got []byte
		var err error
		for err == nil {
			p := make([]byte, sizes.Draw(t, "asked"))
			var n int
			n, err = conn.Read(p)
			got = append(got, p[:n]...)
		}
		if !bytes.Equal(got, want) || errors.Is(err, io.EOF) != (bad == "") {
			t.Fatalf("%q, %v; want %q", got, err, want)
		}
	})
}

// TestRepliesWhileMoreComes has the begin of a reply come with the end of the one before:
// this one is read, and the other when it is whole, also after a deadline.
func TestRepliesWhileMoreComes(t *testing.T) {
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	conn := redisstore.Checked(here, 1<<16)
	go io.WriteString(there, "+OK\r\n$")
	p := make([]byte, 64)
	if n, err := conn.Read(p); err != nil || string(p[:n]) != "+OK\r\n" {
		t.Fatalf("%q, %v", p[:n], err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond))
	if n, err := conn.Read(p); err == nil {
		t.Fatalf("%q", p[:n])
	}
	_ = conn.SetReadDeadline(time.Time{})
	go io.WriteString(there, "1\r\na\r\n")
	if _, err := io.ReadFull(conn, p[:7]); err != nil || string(p[:7]) != "$1\r\na\r\n" {
		t.Fatalf("%q, %v", p[:7], err)
	}
}

// TestNilReply has no answer to anything: only of a reservation does that say that there
// is none.
func TestNilReply(t *testing.T) {
	store := openPlain(t, redisstore.Options{Driver: answers(func(context.Context, []string) (any, error) { return nil, nil })})
	limit := bind(t, store, "5/1h")
	layers := []stint.Layer{{Bound: limit, Key: "a"}}
	for name, call := range map[string]func() error{
		"take":       func() error { _, err := store.Decide(ctx, meter.OpTake, layers, 1); return err },
		"peek":       func() error { _, err := store.Decide(ctx, meter.OpPeek, layers, 1); return err },
		"take up to": func() error { _, err := store.Decide(ctx, meter.OpTakeUpTo, layers, 1); return err },
		"refund":     func() error { _, err := store.Refund(ctx, layers, 1); return err },
		"reserve":    func() error { _, _, err := store.Reserve(ctx, layers, 1, time.Minute); return err },
	} {
		want := redisstore.ErrAmbiguous
		if name == "peek" { // it has charged nothing, whatever ran
			want = redisstore.ErrNotExecuted
		}
		if err := call(); !errors.Is(err, want) || errors.Is(err, stint.ErrReservation) {
			t.Errorf("%s: %v", name, err)
		}
	}
	id := stint.ReservationID(strings.Repeat("A", 26) + "-0000")
	if _, err := store.Settle(ctx, id, 1); !errors.Is(err, stint.ErrReservation) {
		t.Errorf("settle: %v", err)
	}
}
