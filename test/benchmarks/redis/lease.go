package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/redisstore"
)

const (
	leaseNodes = 4
	hotLimit   = "1000000/s"
	hotRate    = 1_000_000 // a second
	hotDemand  = 1_500_000 // a second, of all nodes together
)

// leases measures nodes that hold one hot key by leases, and a flood that is
// denied: what both cost the server.
func (f *figures) leases() error {
	s := f.server
	warm, length := 4*time.Second, 5*time.Second
	if f.Short {
		warm, length = 20*time.Millisecond, 50*time.Millisecond
	}
	hot, err := s.nodes(redisstore.Lease, hotLimit)
	if err != nil {
		return err
	}
	defer hot.close()
	begun := time.Now()
	if err := hot.ask(warm, hotDemand); err != nil {
		return err
	}
	before, had, from := hot.passed.Load(), hot.asked.Load(), time.Now()
	calls, err := s.calls()
	if err != nil {
		return err
	}
	if err := hot.ask(length, hotDemand); err != nil {
		return err
	}
	took, end := time.Since(from), time.Since(begun)
	after, err := s.calls()
	if err != nil {
		return err
	}
	admitted, asked := hot.passed.Load()-before, hot.asked.Load()-had
	used := float64(admitted) / (took.Seconds() * hotRate)
	trips := float64(after-calls) / float64(admitted) * 1000
	envelope := float64(hot.passed.Load()) / (hotRate + end.Seconds()*hotRate)
	f.Table([][]string{
		{fmt.Sprintf("%d nodes, one key, `%s`, lease", leaseNodes, hotLimit), ""},
		{"asked a second", fmt.Sprintf("%.0f", float64(asked)/took.Seconds())},
		{"admitted a second", fmt.Sprintf("%.0f", float64(admitted)/took.Seconds())},
		{"of the limit", fmt.Sprintf("%.4f", used)},
		{"round trips per 1,000 admitted", fmt.Sprintf("%.4f", trips)},
		{"admitted from the beginning, of what the envelope allows", fmt.Sprintf("%.4f", envelope)},
	})
	f.AtMost(1, trips, "", "lease: round trips per 1,000 admitted")
	f.AtLeast(0.97, used, "", "lease: part of the limit that is used")
	f.AtMost(1, envelope, "", "lease: admitted, of what the envelope allows")
	fmt.Fprintln(f.Out)
	return f.denied(s, length)
}

// denied floods a key that is used up, from nodes that remember the denial.
func (f *figures) denied(s *redisServer, length time.Duration) error {
	flood, err := s.nodes(redisstore.Strict, "1/1h")
	if err != nil {
		return err
	}
	defer flood.close()
	if err := flood.ask(length/10, 100_000); err != nil {
		return err
	}
	had, from := flood.asked.Load(), time.Now()
	calls, err := s.calls()
	if err != nil {
		return err
	}
	if err := flood.ask(length, 100_000); err != nil {
		return err
	}
	after, err := s.calls()
	if err != nil {
		return err
	}
	took := time.Since(from).Seconds()
	each := float64(after-calls) / leaseNodes
	f.Table([][]string{
		{fmt.Sprintf("%d nodes, one key, `1/1h`, strict, all denied", leaseNodes), ""},
		{"asked a second", fmt.Sprintf("%.0f", float64(flood.asked.Load()-had)/took)},
		{fmt.Sprintf("calls of Redis in %.1f s by each node", took), fmt.Sprintf("%.2f", each)},
	})
	f.AtMost(1, (each-1)/took, "", "a denied flood: calls of Redis a second, node and key, after the first")
	return nil
}

// calls returns how many scripts the server has run.
func (s *redisServer) calls() (sum int64, err error) {
	text, err := s.goRedis.Info(context.Background(), "commandstats").Result()
	if err != nil {
		return 0, err
	}
	for _, name := range []string{"evalsha", "eval"} {
		_, rest, ok := strings.Cut(text, "cmdstat_"+name+":calls=")
		if !ok {
			continue
		}
		number, _, _ := strings.Cut(rest, ",")
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// nodes are processes, played by stores with a client each, that hold one key.
type nodes struct {
	stores        []*redisstore.Store
	clients       []rueidis.Client
	bound         []stint.Bound
	asked, passed atomic.Int64
}

func (s *redisServer) nodes(mode redisstore.Mode, text string) (*nodes, error) {
	limit, err := stint.Parse(text)
	if err != nil {
		return nil, err
	}
	n := &nodes{}
	for range leaseNodes {
		client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.address}, DisableCache: true, ForceSingleClient: true})
		if err != nil {
			return n, err
		}
		n.clients = append(n.clients, client)
		store, err := redisstore.New(redisstore.Options{Client: client, Timeout: 10 * time.Second})
		if err != nil {
			return n, err
		}
		n.stores = append(n.stores, store)
		bound, err := store.Mode(mode).Bind("hot "+mode.String(), limit)
		if err != nil {
			return n, err
		}
		n.bound = append(n.bound, bound)
	}
	return n, nil
}

func (n *nodes) close() {
	for _, one := range n.stores {
		_ = one.Close()
	}
	for _, one := range n.clients {
		one.Close()
	}
}

// ask asks at a pace, a node's part of it at each: as many each millisecond as
// are due by then. A node that falls behind drops what is older than 50 ms.
func (n *nodes) ask(length time.Duration, demand int64) error {
	var wg sync.WaitGroup
	errs := make([]error, len(n.bound))
	begun := time.Now()
	for i, bound := range n.bound {
		wg.Go(func() {
			ctx := context.Background()
			part := demand / int64(len(n.bound))
			done := int64(0)
			for passed := time.Duration(0); passed < length; passed = time.Since(begun) {
				due := int64(passed) * part / int64(time.Second)
				done = max(done, due-part/20)
				for ; done < due; done++ {
					ok, err := bound.Allow(ctx, "hot", 1)
					if err != nil {
						errs[i] = err
						return
					}
					n.asked.Add(1)
					if ok {
						n.passed.Add(1)
					}
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
