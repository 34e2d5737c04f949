package main

import (
	"log/slog"

	"github.com/stint-dev/stint/cmd/internal/service/server"
)

// connFlags bound the connections of clients.
type connFlags struct {
	MaxConns           int `name:"max-conns" env:"STINT_MAX_CONNS" default:"0" placeholder:"N" help:"The most connections of clients at once. Without it, as many as the limit of descriptors leaves."`
	MaxConnsPerAddress int `name:"max-conns-per-address" env:"STINT_MAX_CONNS_PER_ADDRESS" default:"0" placeholder:"N" help:"The most of one address, IPv6 by /64; trusted proxies may have all. Without it, a quarter."`
}

// check refuses flags that make no sense.
func (f *connFlags) check() error {
	switch {
	case f.MaxConns < 0:
		return usage("--max-conns", "%d: at least 1", f.MaxConns)
	case f.MaxConnsPerAddress < 0:
		return usage("--max-conns-per-address", "%d: at least 1", f.MaxConnsPerAddress)
	}
	return nil
}

// conns returns the bounds; a connection takes the given number of descriptors.
func (f *connFlags) conns(s *sources, descriptors int, logger *slog.Logger) *server.Conns {
	return server.NewConns(server.ConnsOptions{
		Max: f.MaxConns, PerAddress: f.MaxConnsPerAddress, Trusted: s.client.Trusted, PerConn: descriptors, Log: logger,
	})
}
