package sizing

import (
	"context"
	"strconv"
	"strings"

	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"

	"github.com/stint-dev/stint/planner/luaserver"
)

const slidingLog = meter.SlidingLog

// A scale is a server in this process that weighs what it keeps and what goes to
// and fro.
type scale struct {
	*luaserver.Server
	ctx  context.Context
	last exchange
}

// An exchange is a call, in bytes of the protocol.
type exchange struct {
	sent, received int
	head           int // of sent: what a call has besides its keys and arguments
}

var _ redisstore.Driver = (*scale)(nil)

func newScale() *scale { return &scale{Server: luaserver.New(), ctx: context.Background()} }

// EvalSHA implements [redisstore.Driver].
func (s *scale) EvalSHA(ctx context.Context, sha string, keys, args []string) (any, error) {
	reply, err := s.Server.EvalSHA(ctx, sha, keys, args)
	s.note(sha, keys, args, reply)
	return reply, err
}

// Eval implements [redisstore.Driver]. It is weighed as a call of the script that
// is loaded, as all but the first are.
func (s *scale) Eval(ctx context.Context, script string, keys, args []string) (any, error) {
	reply, err := s.Server.Eval(ctx, script, keys, args)
	s.note(strings.Repeat("0", 40), keys, args, reply)
	return reply, err
}

func (s *scale) note(sha string, keys, args []string, reply any) {
	x := exchange{head: len("*0\r\n") + bulk(len("EVALSHA")) + bulk(len(sha)) + bulk(1)}
	x.sent = x.head
	for _, list := range [][]string{keys, args} {
		for _, word := range list {
			x.sent += bulk(len(word))
		}
	}
	x.received = weigh(reply)
	s.last = x
}

// bulk returns the bytes of a reply that is a text of n bytes.
func bulk(n int) int { return len("$\r\n\r\n") + len(strconv.Itoa(n)) + n }

// weigh returns the bytes of a reply.
func weigh(reply any) int {
	switch v := reply.(type) {
	case int64:
		return len(":\r\n") + len(strconv.FormatInt(v, 10))
	case string:
		return bulk(len(v))
	case []any:
		sum := len("*\r\n") + len(strconv.Itoa(len(v)))
		for _, one := range v {
			sum += weigh(one)
		}
		return sum
	}
	return len("$-1\r\n")
}

// entry returns the one key of a client that there is. Beside it there is what a store
// keeps for all, such as the record of a name's limits.
func (s *scale) entry() (e entry) {
	s.Each(func(key, text string) {
		if !strings.HasPrefix(key, "stint::") {
			e = entry{len(key), len(text)}
		}
	})
	return e
}
