package grpclimit

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// A Key returns the key that a call is counted under, and false if it has none.
// method is the full method name, /package.Service/Method.
type Key func(ctx context.Context, method string) (key string, ok bool)

// PeerKey counts calls by the address that the connection comes from, without its port; of an
// IPv6 address by the first 64 bits, which one subscriber has. Behind a proxy, that is the
// proxy's address. A call over a Unix socket has no key.
func PeerKey() Key {
	return func(ctx context.Context, _ string) (string, bool) {
		addr, ok := peerAddr(ctx)
		if !ok {
			return "", false
		}
		if addr.Is6() {
			prefix, _ := addr.Prefix(64) // no error: an IPv6 address has 128 bits
			return prefix.Addr().String(), true
		}
		return addr.String(), true
	}
}

// MetadataKey counts calls by the first metadata value of a name, such as x-api-key, without
// the blanks around it that HTTP/2 may carry. A call with an empty value has no key. Clients
// choose the value freely, unless your program checks it before. MetadataKey panics if the name is none of
// metadata.
func MetadataKey(name string) Key {
	if name = strings.ToLower(name); strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" || name == "" {
		panic(fmt.Sprintf("grpclimit: MetadataKey(%q): no call has this metadata", name))
	}
	return func(ctx context.Context, _ string) (string, bool) {
		value, _ := metadataValue(ctx, name)
		if !strings.HasSuffix(name, "-bin") {
			value = strings.Trim(value, " \t")
		}
		return value, value != ""
	}
}

// MethodKey counts calls by the full method: all callers of a method share its limit.
func MethodKey() Key {
	return func(_ context.Context, method string) (string, bool) { return method, true }
}

// All counts all calls under one key.
func All() Key {
	return func(context.Context, string) (string, bool) { return "", true }
}

// peerAddr returns the address of the peer, unmapped and without a zone.
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
