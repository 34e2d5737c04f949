package grpclimit

import (
	"context"
	"net/netip"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// A Key returns the key that a call is counted under, and false if it has none.
// method is the full method name, /package.Service/Method.
type Key func(ctx context.Context, method string) (key string, ok bool)

// PeerKey counts by the address that a connection comes from, without its port;
// of IPv6 by the first 64 bits, which one subscriber has. Behind a proxy that
// is the proxy's. What comes over a Unix socket has no key.
func PeerKey() Key {
	return func(ctx context.Context, _ string) (string, bool) {
		addr, ok := peerAddr(ctx)
		if !ok {
			return "", false
		}
		if addr.Is6() {
			prefix, _ := addr.Prefix(64) // it has as many bits
			return prefix.Addr().String(), true
		}
		return addr.String(), true
	}
}

// MetadataKey counts by the first value of a name, such as x-api-key, without the
// blanks around it that HTTP/2 carries. An empty one is none. Clients choose it freely, unless something checks it before.
func MetadataKey(name string) Key {
	name = strings.ToLower(name)
	return func(ctx context.Context, _ string) (string, bool) {
		value, _ := metadataValue(ctx, name)
		if !strings.HasSuffix(name, "-bin") {
			value = strings.Trim(value, " \t")
		}
		return value, value != ""
	}
}

// MethodKey counts by the full method: one limit for all callers of each.
func MethodKey() Key {
	return func(_ context.Context, method string) (string, bool) { return method, true }
}

// All counts all calls together.
func All() Key {
	return func(context.Context, string) (string, bool) { return "", true }
}

// peerAddr returns the address of the other side, as [policy] has addresses.
func peerAddr(ctx context.Context) (netip.Addr, bool) {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return netip.Addr{}, false
	}
	at, err := netip.ParseAddrPort(p.Addr.String())
	if err != nil {
		return netip.Addr{}, false
	}
	return at.Addr().Unmap().WithZone(""), true
}

func metadataValue(ctx context.Context, name string) (string, bool) {
	values := metadata.ValueFromIncomingContext(ctx, name)
	if len(values) == 0 || values[0] == "" {
		return "", false
	}
	return values[0], true
}
