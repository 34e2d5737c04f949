package storecheck

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/stint-dev/stint/redisstore"

	"github.com/redis/go-redis/v9"
)

// What is warned of: a server this full, clocks this far apart.
const (
	fullFrom = 0.8
	farApart = 500 * time.Millisecond
)

// judgeNodes says what is wrong or unwise about what the servers say of
// themselves.
func (r *Report) judgeNodes() {
	cluster, unknown := false, false
	for i := range r.Nodes {
		n := &r.Nodes[i]
		at := r.at(n)
		cluster = cluster || n.Mode == "cluster"
		unknown = unknown || !n.known
		switch {
		case n.Mode == "sentinel":
			r.Problems = append(r.Problems, Finding{at + "a Sentinel, which keeps no keys", "name the master that it watches: redis://host:26379?master_set=mymaster"})
		case n.Role == "replica" && n.Mode != "cluster":
			r.Problems = append(r.Problems, Finding{at + "a replica, which takes no writes", nameMaster})
		case n.Role == "replica":
		default:
			r.judgeMemory(n, at)
			r.judgeReplicas(n, at)
		}
	}
	if unknown {
		r.warn("let the user have INFO", "the server may not be asked about itself (INFO): its memory, role and replicas are not known")
	}
	if cluster {
		r.warn("", "a cluster: a request that rules hold by several keys is a call for each slot, and what passed is given back when one denies")
	}
}

func (r *Report) judgeMemory(n *Node, at string) {
	switch {
	case n.MaxMemory == 0:
		r.warn("set maxmemory below what the machine has", "%sno maxmemory: a flood of keys takes memory until the system ends the server", at)
	case n.MaxMemory > 0 && float64(n.UsedMemory) > fullFrom*float64(n.MaxMemory):
		r.warn("give it more, or keep less there", "%s%d %% of maxmemory are used: beyond it, nothing is decided or keys in use are forgotten", at, n.UsedMemory*100/n.MaxMemory)
	}
	if f, unwise := n.evicting(); unwise {
		r.warn(f.Hint, "%s%s", at, f.What)
	}
	if n.Evicted > 0 {
		r.warn("", "%shas evicted %d keys since it started", at, n.Evicted)
	}
}

// judgeReplicaClocks compares the clocks of replicas with that of the master: one of them
// is the master after a failover.
func (r *Report) judgeReplicaClocks(ctx context.Context, dial func(address string) redis.UniversalClient) {
	for i := range r.Nodes {
		for _, address := range r.Nodes[i].replicas {
			client := dial(address)
			clock, err := clockOf(ctx, client)
			_ = client.Close()
			if err != nil {
				r.warn("", "the clock of the replica %s is not known: %v", address, err)
				continue
			}
			if apart := (clock.Ahead - r.Clock.Ahead).Abs(); apart-clock.Within-r.Clock.Within > farApart {
				r.warn("run NTP on both", "the clock of the replica %s is %v from the master's: after a failover, limits are full again or locked for as long", address, apart.Round(time.Millisecond))
			}
		}
	}
}

func (r *Report) judgeReplicas(n *Node, at string) {
	if n.Replicas > 0 && n.MinWrite == 0 {
		r.warn("set min-replicas-to-write 1", "%sa master that is cut off from its replicas goes on charging, and a failover forgets that", at)
	}
}

// judgeTimes says what is unwise about how long calls take, and about clocks.
func (r *Report) judgeTimes(deadline time.Duration) {
	if r.Decision.P99 > deadline {
		r.warn("use a server that is nearer, or less busy", "one decision in a hundred took longer than the %v that it has: such are decided without the server", deadline)
	}
	if apart := r.Clock.Ahead.Abs(); apart-r.Clock.Within > farApart {
		r.warn("run NTP on both", "the clocks are %v apart: days and other windows begin by the server's", apart.Round(time.Millisecond))
	}
}

const nameMaster = "name its master, or the Sentinels: redis://host:26379?master_set=mymaster"

// HintFor says what to do about an error of a server, "" if it says so itself.
func HintFor(err error) string {
	text := err.Error()
	switch {
	case strings.Contains(text, "NOAUTH"):
		return "it wants a password: redis://user:password@host"
	case strings.Contains(text, "WRONGPASS"):
		return "another user or password"
	case strings.Contains(text, "x509"):
		return "name who vouches for it (?cacert=FILE), or the name that its certificate has (?server_name=NAME)"
	case strings.Contains(text, "certificate required"):
		return "it wants a certificate: ?cert=FILE&key=FILE"
	case strings.Contains(text, "tls:"):
		return "rediss:// is for servers with TLS, redis:// for those without"
	case strings.Contains(text, "NOPERM"), strings.Contains(text, "can't run this command"), strings.Contains(text, "no permissions"):
		return hintForRefusal(text)
	case strings.Contains(text, "MOVED"):
		return "a cluster, which the user may not ask who has which key: " + letHave + permissions(inCluster)
	case strings.Contains(text, "READONLY"):
		return nameMaster
	case strings.Contains(text, "OOM"):
		return "it has no memory left: give it more"
	case strings.Contains(text, "NOREPLICAS"):
		return "it wants more replicas than it has (min-replicas-to-write)"
	case strings.Contains(text, "LOADING"):
		return "it is reading its data: try again"
	case strings.Contains(text, "unknown command"):
		return "the server lacks what the script needs: " + permissions(commands)
	case errors.Is(err, redisstore.ErrAmbiguous):
		return "no answer came"
	}
	return ""
}
