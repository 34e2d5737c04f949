package server

import (
	"log/slog"
	"net/http"
)

// refund gives cost back to the keys of a request.
func (h *Handler) refund(_ http.ResponseWriter, r *http.Request, c *call, a *checkRequest) (int, *problem) {
	err := c.policy.Refund(r.Context(), &a.attributes, a.cost, &c.result)
	h.audit(r, "refund", c, err, slog.Int64("cost", a.cost))
	if err != nil {
		return 0, h.fail(entrypoint, r, err)
	}
	c.out = appendResult(c.out, &c.result)
	return http.StatusOK, nil
}

// reset forgets the keys of a request, and answers with the rules that matched it.
func (h *Handler) reset(_ http.ResponseWriter, r *http.Request, c *call, a *checkRequest) (int, *problem) {
	err := c.policy.Reset(r.Context(), &a.attributes, &c.result)
	h.audit(r, "reset", c, err)
	if err != nil {
		return 0, h.fail(entrypoint, r, err)
	}
	c.out = appendTexts(append(c.out, `"rules":`...), c.rules())
	return http.StatusOK, nil
}

// rules returns the names of the rules with limits that matched.
func (c *call) rules() (names []string) {
	for _, e := range c.result.ByRule {
		if e.Action == "" {
			names = append(names, e.Rule)
		}
	}
	return names
}

// audit logs what an operator did: a line for each rule, with the hash of its key.
func (h *Handler) audit(r *http.Request, what string, c *call, err error, more ...slog.Attr) {
	attrs := append([]slog.Attr{slog.Int("token_line", c.by)}, more...)
	if err != nil {
		attrs = append(attrs, slog.String("error", err.Error()))
	}
	logged := false
	for i, e := range c.result.ByRule {
		if e.Action == "" {
			logged = true
			h.o.Log.LogAttrs(r.Context(), slog.LevelInfo, what,
				append(attrs, slog.String("rule", e.Rule), slog.String("key_hash", c.result.KeyHash(i)))...)
		}
	}
	if !logged {
		h.o.Log.LogAttrs(r.Context(), slog.LevelInfo, what, append(attrs, slog.String("rule", ""))...)
	}
}
