package redisstore_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// What a farServer does to its clients.
const (
	farWell       int32 = iota
	farRefuses          // nothing listens
	farSilent           // connections are accepted, and nothing is said on them
	farSlow             // the first answer on a connection comes when callers have left
	farSwallows         // scripts are not answered
	farCuts             // the connection ends when a script has come
	farCutsWithin       // the connection ends when a script has begun to come
	farRedirects        // scripts are sent to another node
)

// A farServer is a server, a node or a Sentinel that keeps nothing, and notes which keys
// named call-N have come in whole calls of a script.
type farServer struct {
	testing.TB
	addr string
	does atomic.Int32
	all  []*farServer      // of a cluster, or the master of a Sentinel
	says map[string]string // the answer to a command, where it is another

	mu      sync.Mutex // guards what follows
	listens net.Listener
	conns   map[net.Conn]bool
	arrived map[string]int
	running sync.WaitGroup
}

func newFarServer(t testing.TB) *farServer { return farSaying(t, nil) }

// impostor returns the address of a server that answers one command with a reply, and
// others as an old Redis would.
func impostor(t testing.TB, command, reply string) string {
	return farSaying(t, map[string]string{strings.ToLower(command): reply}).addr
}

func farSaying(t testing.TB, says map[string]string) *farServer {
	t.Helper()
	f := &farServer{TB: t, says: says, conns: map[net.Conn]bool{}, arrived: map[string]int{}}
	f.addr = f.listen("127.0.0.1:0")
	t.Cleanup(func() {
		f.hangUp(true)
		f.running.Wait()
	})
	return f
}

// listen begins to listen, and returns where.
func (f *farServer) listen(addr string) string {
	f.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		f.Fatal(err)
	}
	f.mu.Lock()
	f.listens = l
	f.mu.Unlock()
	f.running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			f.mu.Lock()
			f.conns[conn] = true
			f.mu.Unlock()
			f.running.Go(func() { f.serve(conn) })
		}
	})
	return l.Addr().String()
}

// hangUp ends all connections, and the listener if it is to refuse.
func (f *farServer) hangUp(refuse bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if refuse && f.listens != nil {
		f.listens.Close()
		f.listens = nil
	}
	for conn := range f.conns {
		conn.Close()
	}
}

// set begins or ends what it does.
func (f *farServer) set(does int32) {
	if f.does.Swap(does) == farRefuses {
		f.listen(f.addr)
	}
	f.hangUp(does == farRefuses)
}

func (f *farServer) serve(conn net.Conn) {
	defer func() {
		conn.Close()
		f.mu.Lock()
		delete(f.conns, conn)
		f.mu.Unlock()
	}()
	in := bufio.NewReader(conn)
	for first := true; ; first = false {
		if f.does.Load() == farSilent {
			_, _ = io.Copy(io.Discard, in)
			return
		}
		words, err := f.read(in)
		if err != nil {
			return
		}
		script := strings.HasPrefix(words[0], "eval")
		if script {
			f.note(words)
		}
		switch does := f.does.Load(); {
		case does == farSlow && first:
			time.Sleep(3 * farTimeout)
		case does == farSwallows && script:
			continue
		case does == farCuts && script:
			return
		case does == farRedirects && script:
			f.redirect(conn)
			continue
		}
		if _, err := io.WriteString(conn, f.answer(words)); err != nil {
			return
		}
	}
}

// redirect names a node that is not this one.
func (f *farServer) redirect(conn net.Conn) {
	for _, node := range f.all {
		if node != f {
			fmt.Fprintf(conn, "-MOVED 0 %s\r\n", node.addr)
		}
	}
}

// read reads a command.
func (f *farServer) read(in *bufio.Reader) (words []string, err error) {
	var count, length int
	if _, err := fmt.Fscanf(in, "*%d\r\n", &count); err != nil {
		return nil, err
	}
	for range count {
		if _, err := fmt.Fscanf(in, "$%d\r\n", &length); err != nil {
			return nil, err
		}
		word := make([]byte, length+2)
		if _, err := io.ReadFull(in, word); err != nil {
			return nil, err
		}
		words = append(words, string(word[:length]))
		if f.does.Load() == farCutsWithin && strings.HasPrefix(words[0], "eval") {
			return nil, io.ErrUnexpectedEOF
		}
	}
	words[0] = strings.ToLower(words[0])
	return words, nil
}

var callName = regexp.MustCompile(`call-\d+`)

func (f *farServer) note(words []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, word := range words {
		if name := callName.FindString(word); name != "" {
			f.arrived[name]++
		}
	}
}

func (f *farServer) answer(words []string) string {
	if said, ok := f.says[words[0]]; ok {
		return said
	}
	bulk := func(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }
	switch words[0] {
	case "evalsha", "eval":
		return ":0\r\n"
	case "ping":
		return "+PONG\r\n"
	case "cluster":
		if f.all == nil {
			return "-ERR This instance has cluster support disabled\r\n"
		}
		out := fmt.Sprintf("*%d\r\n", len(f.all))
		each := 16384 / len(f.all)
		for i, node := range f.all {
			host, port, _ := net.SplitHostPort(node.addr)
			out += fmt.Sprintf("*3\r\n:%d\r\n:%d\r\n*3\r\n%s:%s\r\n%s", i*each, (i+1)*each-1, bulk(host), port, bulk(fmt.Sprint("node", i)))
		}
		return out
	case "sentinel":
		if words[1] != "get-master-addr-by-name" {
			return "*0\r\n"
		}
		host, port, _ := net.SplitHostPort(f.all[0].addr)
		return "*2\r\n" + bulk(host) + bulk(port)
	case "subscribe":
		out := ""
		for i, channel := range words[1:] {
			out += "*3\r\n" + bulk("subscribe") + bulk(channel) + fmt.Sprintf(":%d\r\n", i+1)
		}
		return out
	}
	return "-ERR unknown command\r\n"
}

// A far is a client's way to servers of a topology: what a store is to be opened with.
type far struct {
	name string
	open func(t *testing.T, pool int) (o redisstore.Options, scripts []*farServer)
}

func farNodes(t *testing.T) []*farServer {
	all := []*farServer{newFarServer(t), newFarServer(t)}
	all[0].all, all[1].all = all, all
	return all
}

func farSentinel(t *testing.T) (sentinel, master *farServer) {
	sentinel, master = newFarServer(t), newFarServer(t)
	sentinel.all = []*farServer{master}
	return sentinel, master
}

// logs is a caller's own hook, which reads each command.
type logs struct{ io.Writer }

func (logs) DialHook(next redis.DialHook) redis.DialHook { return next }
func (l logs) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		fmt.Fprint(l, cmd.FullName(), cmd.Args(), cmd)
		return next(ctx, cmd)
	}
}
func (logs) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// again is a caller's own hook, which tries once more what fails.
type again struct{ logs }

func (again) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := next(ctx, cmd); err == nil {
			return nil
		}
		return next(ctx, cmd)
	}
}

// of returns what a store with a caller's client is opened with.
func of(t *testing.T, c redis.UniversalClient) redisstore.Options {
	t.Cleanup(func() { c.Close() })
	return redisstore.Options{Client: c}
}

// An embedding is a client of which nothing is known but its methods.
type embedding struct{ *redis.ClusterClient }

var fars = []far{
	{"a URL", func(t *testing.T, pool int) (redisstore.Options, []*farServer) {
		f := newFarServer(t)
		return redisstore.Options{URL: fmt.Sprint("redis://", f.addr, "?pool_size=", pool)}, []*farServer{f}
	}},
	{"a URL of a cluster", func(t *testing.T, pool int) (redisstore.Options, []*farServer) {
		all := farNodes(t)
		return redisstore.Options{URL: fmt.Sprint("redis://", all[0].addr, ",", all[1].addr, "?pool_size=", pool)}, all
	}},
	{"a URL of Sentinels", func(t *testing.T, pool int) (redisstore.Options, []*farServer) {
		sentinel, master := farSentinel(t)
		return redisstore.Options{URL: fmt.Sprint("redis://", sentinel.addr, "?master_set=m&pool_size=", pool)}, []*farServer{master}
	}},
	{"a client", func(t *testing.T, pool int) (redisstore.Options, []*farServer) {
		f := newFarServer(t)
		return of(t, redis.NewClient(&redis.Options{Addr: f.addr, PoolSize: pool, ContextTimeoutEnabled: true})), []*farServer{f}
	}},
	{"a client that does not look at contexts, waits for a minute, tries again, and is watched", func(t *testing.T, pool int) (redisstore.Options, []*farServer) {
		f := newFarServer(t)
		c := redis.NewClient(&redis.Options{Addr: f.addr, PoolSize: pool, ReadTimeout: time.Minute, MaxRetries: 3})
		c.AddHook(logs{io.Discard})
		c.AddHook(again{})
		return of(t, c), []*farServer{f}
	}},
	{"a client of a cluster", func(t *testing.T, pool int) (redisstore.Options, []*farServer) {
		all := farNodes(t)
		return of(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{all[0].addr}, PoolSize: pool, DialTimeout: time.Second, ReadTimeout: time.Second, DialerRetries: 1, ContextTimeoutEnabled: true})), all
	}},
	{"what embeds a client of a cluster that does not look at contexts", func(t *testing.T, pool int) (redisstore.Options, []*farServer) {
		all := farNodes(t)
		return of(t, embedding{redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{all[1].addr}, PoolSize: pool, DialTimeout: time.Second, ReadTimeout: time.Second, DialerRetries: 1})}), all
	}},
	{"a client of Sentinels", func(t *testing.T, pool int) (redisstore.Options, []*farServer) {
		sentinel, master := farSentinel(t)
		return of(t, redis.NewFailoverClient(&redis.FailoverOptions{SentinelAddrs: []string{sentinel.addr}, MasterName: "m", PoolSize: pool, ContextTimeoutEnabled: true})), []*farServer{master}
	}},
}

const farTimeout = 60 * time.Millisecond

// TestSent has calls end without an answer, by every way to servers: a call is told as not
// executed if, and only if, none of it has come to a server, now or later.
func TestSent(t *testing.T) {
	for i, way := range fars {
		if testing.Short() && i > 1 && !strings.Contains(way.name, "tries again") {
			continue // slow
		}
		for name, fault := range map[string]struct {
			does int32
			pool int
		}{
			"refused": {farRefuses, 10}, "silent": {farSilent, 10}, "slow to begin": {farSlow, 10}, "silent after the begin": {farSwallows, 10},
			"no connection to be had": {farSwallows, 1}, "cut after a call": {farCuts, 10}, "cut within a call": {farCutsWithin, 10},
		} {
			for _, warm := range []bool{false, true} {
				t.Run(fmt.Sprint(way.name, "/", name, "/connected ", warm), func(t *testing.T) {
					t.Parallel()
					o, servers := way.open(t, fault.pool)
					sent(t, o, servers, fault.does, warm)
				})
			}
		}
	}
}

// sent makes calls while servers do what they do, a few at once, and judges what was told.
func sent(t *testing.T, o redisstore.Options, servers []*farServer, does int32, warm bool) {
	each := func(does int32) {
		for _, f := range servers {
			f.set(does)
		}
		time.Sleep(farTimeout) // clients see that connections have ended
	}
	if !warm {
		each(does)
	}
	store := openPlain(t, redisstore.Options{URL: o.URL, Client: o.Client, Timeout: farTimeout, NewKeys: -1})
	limit := bind(t, store, "1000000/100000h")
	if warm {
		for _, key := range []string{"a", "b", "c", "d"} {
			eventually(t, "the store does not decide", func() bool { _, err := limit.Decide(ctx, meter.OpTake, key, 1); return err == nil })
		}
		each(does)
	}
	var told [12]error
	var wg sync.WaitGroup
	for i := range told {
		wg.Go(func() { _, told[i] = limit.Decide(ctx, meter.OpTake, fmt.Sprint("call-", i), 1) })
		if i%4 == 3 {
			wg.Wait()
		}
	}
	time.Sleep(4 * farTimeout)
	if does != farSlow { // it may have let calls pass by now
		each(farWell)
		time.Sleep(farTimeout)
	}
	arrived := map[string]int{}
	for _, f := range servers {
		f.mu.Lock()
		for name, n := range f.arrived {
			arrived[name] += n
		}
		f.mu.Unlock()
	}
	count := map[string]int{}
	for i, err := range told {
		n, not := arrived[fmt.Sprint("call-", i)], errors.Is(err, redisstore.ErrNotExecuted)
		switch {
		case n > 1:
			t.Errorf("call %d came %d times", i, n)
		case n == 1 && not:
			t.Errorf("call %d came, and was told %v", i, err)
		case n == 0 && !not && does != farCutsWithin:
			t.Errorf("call %d never came, and was told %v", i, err)
		case not:
			count["not executed"]++
		case err != nil:
			count["ambiguous"]++
		default:
			count["answered"]++
		}
	}
	t.Log(count)
	eventually(t, "the store does not decide again", func() bool { _, err := limit.Decide(ctx, meter.OpTake, "e", 1); return err == nil })
}

// torn is a connection that takes only a part of what is written when it is armed.
type torn struct {
	net.Conn
	takes *atomic.Int64 // bytes, −1 for all
}

func (c torn) Write(p []byte) (int, error) {
	most := c.takes.Load()
	if most < 0 {
		return c.Conn.Write(p)
	}
	n, err := c.Conn.Write(p[:min(int(most), len(p))])
	if err == nil && n < len(p) {
		c.Conn.Close()
		err = errors.New("torn")
	}
	return n, err
}

// TestTorn has a connection take nothing, or a part, or all of a call: only all of it may
// have been executed.
func TestTorn(t *testing.T) {
	f := newFarServer(t)
	takes := &atomic.Int64{}
	c := redis.NewClient(&redis.Options{Addr: f.addr, ContextTimeoutEnabled: true, Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return redisstore.Checked(torn{conn, takes}, 1<<20), nil
	}})
	defer c.Close()
	for _, most := range []int64{0, 1, 20, 100, 1 << 20} {
		store := openPlain(t, redisstore.Options{Client: c, Timeout: farTimeout})
		limit := bind(t, store, "1000000/100000h")
		takes.Store(-1)
		eventually(t, "the store does not decide", func() bool { _, err := limit.Decide(ctx, meter.OpTake, "a", 1); return err == nil })
		takes.Store(most)
		f.does.Store(farSwallows)
		_, err := limit.Decide(ctx, meter.OpTake, fmt.Sprint("call-", most), 1)
		f.does.Store(farWell)
		f.mu.Lock()
		n := f.arrived[fmt.Sprint("call-", most)]
		f.mu.Unlock()
		if whole := most == 1<<20; errors.Is(err, redisstore.ErrNotExecuted) == whole || n == 1 != whole {
			t.Errorf("%d bytes: %v, and %d came", most, err, n)
		}
	}
}
