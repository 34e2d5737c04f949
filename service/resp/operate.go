package resp

import (
	"context"
	"log/slog"

	"github.com/stint-dev/stint/policy"
)

// refund is STINT.REFUND attribute value … [COST n].
func (c *conn) refund(args [][]byte) {
	c.operate(args, "refund", func(ctx context.Context, p *policy.Policy, q *question) error {
		return p.Refund(ctx, q.attributes, q.cost, &c.result)
	}, func() { c.answer("") })
}

// forget is STINT.RESET attribute value …. It answers with the rules that had
// such a key.
func (c *conn) forget(args [][]byte) {
	c.operate(args, "reset", func(ctx context.Context, p *policy.Policy, q *question) error {
		return p.Reset(ctx, q.attributes, &c.result)
	}, func() {
		names := c.limited()
		c.out.array(len(names))
		for _, i := range names {
			c.out.text(c.result.Rules[i].Rule)
		}
	})
}

// operate does what operators may, and logs it.
func (c *conn) operate(args [][]byte, what string, do func(context.Context, *policy.Policy, *question) error, answer func()) {
	if !c.operator {
		c.out.fail("NOPERM", "this needs a token of --operator-token-file, shown by AUTH")
		return
	}
	q, ok := c.read(args, false)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), askWithin)
	defer cancel()
	err := do(ctx, c.server.o.Source.Policy(), &q)
	c.audit(what, q.cost, err)
	if err != nil {
		c.failed(err)
		return
	}
	answer()
}

// limited returns the places of the rules with limits in the result.
func (c *conn) limited() (places []int) {
	for i, e := range c.result.ByRule {
		if e.Action == "" {
			places = append(places, i)
		}
	}
	return places
}

// audit logs what an operator did, for each rule by the hash of its key.
func (c *conn) audit(what string, cost int64, err error) {
	attrs := []any{slog.String("interface", entrypoint), slog.Int64("conn", c.id)}
	if what == "refund" {
		attrs = append(attrs, slog.Int64("cost", cost))
	}
	if err != nil {
		attrs = append(attrs, slog.Any("error", err))
	}
	for _, i := range c.limited() {
		c.server.o.Log.With(attrs...).Info(what, "rule", c.result.Rules[i].Rule, "key_hash", c.result.KeyHash(i))
	}
}
