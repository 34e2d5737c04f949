// Package caddylimit is the module http.handlers.stint for Caddy: it holds requests to limits
// before later handlers see them.
//
//	example.com {
//		stint site "100/min"
//		reverse_proxy 127.0.0.1:9000
//	}
//
// Limits are in the Caddyfile, with any of Caddy's placeholders as keys, or in a rules file like
// those of stint serve and stint proxy. A denied request is answered as package httplimit does: 429
// with Retry-After and the RateLimit fields. What keys have used belongs to the handler's name: it
// survives a reload of Caddy's configuration, and with a store in Redis the process.
//
// docs/CADDY.md describes the directive and the JSON.
package caddylimit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/policy"
)

func init() { caddy.RegisterModule(new(Handler)) }

// Handler holds requests to limits, or to the rules of a file. One of Limits, Rules and RulesFile
// is required.
type Handler struct {
	// Name is the name of the state of keys. Handlers of one name share it, so give each a name of
	// its own. Clients and metrics see the name, too.
	Name string `json:"name"`
	// Limits are texts such as "10/s burst 20". A request must pass all of them.
	Limits []string `json:"limits,omitempty"`
	// Key says for whom a request counts under Limits: placeholders, or text with placeholders.
	// Several texts together make one key. Placeholders that correspond to attributes of rules,
	// such as {http.request.header.X-User}, are read as these attributes. The default is
	// {http.vars.client_ip}, the address by trusted_proxies of the server; IPv6 addresses count by
	// /64.
	Key []string `json:"key,omitempty"`
	// OnMissing says what happens under Limits to requests with an empty text in the key: shared
	// (one key for all of them, the default), deny or skip.
	OnMissing string `json:"on_missing,omitempty"`
	// Shadow decides and counts under Limits, but denies nothing.
	Shadow bool `json:"shadow,omitempty"`

	// RulesFile is a rules file, YAML or JSON. It is read when Caddy loads its configuration.
	// Attributes that it declares are Caddy's placeholders, without their braces.
	RulesFile string `json:"rules_file,omitempty"`
	// Rules is the contents of a rules file, in place of RulesFile.
	Rules json.RawMessage `json:"rules,omitempty"`

	// Store is the Redis or Valkey with the state of keys, such as redis://host:6379. Placeholders
	// such as {env.REDIS_URL} are replaced. The default is the memory of this process.
	Store string `json:"store,omitempty"`
	// Nodes is how many processes share the store. By default they count each other.
	Nodes int `json:"nodes,omitempty"`
	// MaxKeys is the most keys in memory, a key once for each limit: 1,048,576 by default.
	MaxKeys int `json:"max_keys,omitempty"`
	// Secret is the secret for hashing long keys, and keys of rules that ask for it: at least 16
	// bytes, the same for all processes on one store. Placeholders are replaced.
	Secret string `json:"secret,omitempty"`
	// Dialect is the header fields of answers: draft11 (the default), draft06,
	// x-ratelimit or none.
	Dialect string `json:"dialect,omitempty"`

	guard   func(http.Handler) http.Handler
	policy  *policy.Policy
	store   *store
	metrics *metrics
	log     *slog.Logger
}

var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.CleanerUpper          = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)

// CaddyModule implements [caddy.Module].
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.stint", New: func() caddy.Module { return new(Handler) }}
}

// Provision implements [caddy.Provisioner].
func (h *Handler) Provision(ctx caddy.Context) error {
	h.log = ctx.Slogger()
	dialect, err := httplimit.ParseDialect(cmp.Or(h.Dialect, "draft11"))
	switch {
	case h.Name == "":
		return errors.New("name: give one, such as site: what clients have used belongs to it")
	case err != nil:
		return err
	case h.MaxKeys < 0:
		return fmt.Errorf("max_keys %d: at least 1", h.MaxKeys)
	case h.Nodes < 0:
		return fmt.Errorf("nodes %d: at least 1", h.Nodes)
	}
	rules, err := h.rules()
	if err != nil {
		return err
	}
	if h.metrics, err = newMetrics(ctx.GetMetricsRegistry()); err != nil {
		return err
	}
	if h.store, err = openStore(h); err != nil {
		return err
	}
	if h.policy, err = h.store.bind(rules, h); err != nil {
		return err
	}
	h.guard, err = httplimit.NewPolicy(h.policy, httplimit.ClientIP{}, httplimit.Options{
		Dialect: dialect, Attribute: h.attribute, OnError: h.failed, OnDecision: h.decided,
	})
	return err
}

// Cleanup implements [caddy.CleanerUpper]. Caddy calls it after the handlers that replace this one
// have been provisioned, so that the state of keys still exists for them.
func (h *Handler) Cleanup() error {
	if h.policy != nil {
		h.store.unbind(h.policy)
	}
	return h.store.close()
}

// ServeHTTP implements [caddyhttp.MiddlewareHandler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) (err error) {
	asked := r
	if client, ok := caddyhttp.GetVar(r.Context(), caddyhttp.ClientIPVarKey).(string); ok && client != "" {
		copied := *r // the guard uses the peer, and Caddy has determined the client
		copied.RemoteAddr = client
		asked = &copied
	}
	h.guard(http.HandlerFunc(func(w http.ResponseWriter, passed *http.Request) {
		if passed != asked { // rules have read the body, or will read the response
			copied := *passed
			copied.RemoteAddr = r.RemoteAddr
			r = &copied
		}
		err = next.ServeHTTP(w, r)
		if told, ok := w.(interface{ Failed(status int) }); ok && err != nil {
			told.Failed(statusOf(err))
		}
	})).ServeHTTP(w, asked)
	return err
}

// statusOf returns the status with which Caddy answers an error of a handler.
func statusOf(err error) int {
	var failed caddyhttp.HandlerError
	if errors.As(err, &failed) && failed.StatusCode > 0 {
		return failed.StatusCode
	}
	return http.StatusInternalServerError
}

// attribute returns attributes that not every request has: texts of the key, and placeholders.
func (h *Handler) attribute(r *http.Request, name string) (string, bool) {
	replacer, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	if !ok {
		return "", false
	}
	if part, ok := h.part(name); ok {
		value := replacer.ReplaceAll(part, "")
		return value, value != ""
	}
	value, ok := replacer.GetString(name)
	return value, ok && value != ""
}

// failed counts a request for which no decision could be made, and logs why.
func (h *Handler) failed(r *http.Request, err error) {
	if errors.Is(err, httplimit.ErrSettle) {
		h.log.Log(context.WithoutCancel(r.Context()), slog.LevelWarn, "not settled", "name", h.Name, "error", err)
		return
	}
	h.metrics.undecided.WithLabelValues(h.Name).Inc()
	if errors.Is(err, policy.ErrRequest) || r.Context().Err() != nil {
		return // the client's fault, which is not logged
	}
	h.log.Log(context.WithoutCancel(r.Context()), slog.LevelError, "no decision", "name", h.Name, "error", err)
}

// decided counts a decision.
func (h *Handler) decided(_ *http.Request, o httplimit.Outcome) {
	h.metrics.duration.WithLabelValues(h.Name).Observe(o.Took.Seconds())
	h.metrics.count(h.Name, o.Rules)
}
