package redistest

import (
	"fmt"
	"net"
	"runtime"
	"testing"
)

// A Divided is a cluster between whose nodes stands a network that can part.
// Nodes have loopback addresses of their own to connect from, by which it tells who
// talks to whom.
type Divided struct {
	Cluster
	ways [][]*Proxy // to each node: for clients and replicas, and to its bus
}

// source is what a node connects from.
func source(node int) string { return fmt.Sprintf("127.0.1.%d", node+1) }

// StartDivided starts a cluster of three masters with a replica each, whole for
// now, with more in its environment. All of 127.0.0.0/8 is this machine on Linux
// alone; elsewhere the test is skipped.
func StartDivided(t testing.TB, env ...string) *Divided {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("a network that parts takes several loopback addresses, as Linux has")
	}
	d := &Divided{}
	for i := range 6 {
		way, bus := NewProxy(t, ""), NewProxy(t, "")
		_, port, _ := net.SplitHostPort(way.Addr)
		_, busPort, _ := net.SplitHostPort(bus.Addr)
		s, itsBus := startNode(t, env, "--bind-source-addr", source(i),
			"--cluster-announce-ip", "127.0.0.1", "--cluster-announce-port", port, "--cluster-announce-bus-port", busPort)
		way.lead(s.Addr)
		bus.lead(itsBus)
		d.Nodes = append(d.Nodes, s)
		d.ways = append(d.ways, []*Proxy{way, bus})
	}
	d.create(t, d.Addrs(), 1)
	return d
}

// Addrs returns the addresses by which clients, and the nodes, know the nodes.
func (d *Divided) Addrs() (all []string) {
	for _, ways := range d.ways {
		all = append(all, ways[0].Addr)
	}
	return all
}

// Way has what clients and replicas send a node, and are sent, suffer a fault.
func (d *Divided) Way(node *Server, f Fault) {
	for i, s := range d.Nodes {
		if s == node {
			d.ways[i][0].Set(f)
		}
	}
}

// Part leaves a node alone with its clients: what it and the other nodes send each
// other vanishes.
func (d *Divided) Part(alone *Server) {
	var rest []string
	at := 0
	for i, s := range d.Nodes {
		if s == alone {
			at = i
		} else {
			rest = append(rest, source(i))
		}
	}
	for i, ways := range d.ways {
		from := []string{source(at)}
		if i == at {
			from = rest
		}
		for _, way := range ways {
			way.Set(Fault{Stall: true, From: from})
		}
	}
}

// Join makes the network whole again. What was on its way arrives late.
func (d *Divided) Join() {
	for _, ways := range d.ways {
		for _, way := range ways {
			way.Set(Fault{})
		}
	}
}
