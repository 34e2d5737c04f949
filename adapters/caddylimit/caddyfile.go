package caddylimit

import (
	"strconv"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func init() {
	httpcaddyfile.RegisterHandlerDirective("stint", func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		one := new(Handler)
		return one, one.UnmarshalCaddyfile(h.Dispenser)
	})
	httpcaddyfile.RegisterDirectiveOrder("stint", httpcaddyfile.Before, "basic_auth")
}

var _ caddyfile.Unmarshaler = (*Handler)(nil)

// UnmarshalCaddyfile implements [caddyfile.Unmarshaler]:
//
//	stint NAME [LIMIT...] {
//		limit      LIMIT...
//		key        PLACEHOLDER...
//		on_missing shared | deny | skip
//		shadow
//		rules      FILE
//		store      URL
//		nodes      N
//		max_keys   N
//		secret     TEXT
//		dialect    draft11 | draft06 | x-ratelimit | none
//	}
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if !d.NextArg() {
		return d.Err("want a name behind stint, such as stint site \"100/min\"")
	}
	h.Name = d.Val()
	h.Limits = d.RemainingArgs()
	for d.NextBlock(0) {
		if err := h.option(d); err != nil {
			return err
		}
	}
	return nil
}

// option reads one line of the block.
func (h *Handler) option(d *caddyfile.Dispenser) error {
	texts := map[string]*string{
		"on_missing": &h.OnMissing, "rules": &h.RulesFile, "store": &h.Store, "secret": &h.Secret, "dialect": &h.Dialect,
	}
	numbers := map[string]*int{"nodes": &h.Nodes, "max_keys": &h.MaxKeys}
	name, args := d.Val(), d.RemainingArgs()
	switch {
	case name == "limit" && len(args) > 0:
		h.Limits = append(h.Limits, args...)
	case name == "key" && len(args) > 0:
		h.Key = append(h.Key, args...)
	case name == "shadow" && len(args) == 0:
		h.Shadow = true
	case texts[name] != nil && len(args) == 1:
		*texts[name] = args[0]
	case numbers[name] != nil && len(args) == 1:
		n, err := strconv.Atoi(args[0])
		if err != nil || n < 1 {
			return d.Errf("%s %s: want a whole number, at least 1", name, args[0])
		}
		*numbers[name] = n
	case name == "limit", name == "key", name == "shadow", texts[name] != nil, numbers[name] != nil:
		return d.ArgErr()
	default:
		return d.Errf("unknown option %s: there are limit, key, on_missing, shadow, rules, store, nodes, max_keys, secret and dialect", name)
	}
	return nil
}
