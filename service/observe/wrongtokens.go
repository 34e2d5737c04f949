package observe

import "net/netip"

// An Interface is an interface that accepts tokens, named by the flag that opens it.
type Interface uint8

// The interfaces.
const (
	HTTP Interface = iota
	GRPC
	RESP
	Admin
	interfaces = iota
)

var interfaceNames = [interfaces]string{"http", "grpc", "resp", "admin"}

// WrongToken counts a token that was refused because it is unknown, has expired or was revoked, and
// logs the peer, "address:port".
func (o *Observer) WrongToken(at Interface, peer string) {
	o.wrongTokens[at].Add(1)
	o.log.wrongToken(interfaceNames[at], peer)
}

// wrongToken logs the first wrong token of an address in a period.
func (d *denials) wrongToken(at, peer string) {
	if d == nil {
		return
	}
	address := "unix" // a socket has no address
	if from, err := netip.ParseAddrPort(peer); err == nil {
		address = from.Addr().Unmap().String()
	}
	if d.wrongTokens.first(at+" "+address, at+" others") {
		d.log.Warn("wrong token", "interface", at, "address", address)
	}
}
