package redisstore

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

const (
	followEvery   = time.Second // how often Sentinels are asked for the master, give or take a quarter
	mostSentinels = 16          // that are known
)

// FollowMaster returns options for a client of the master that Sentinels watch, which
// finds it whenever it makes a connection. Options without Sentinel.MasterSet stay as
// they are.
//
// rueidis has a client for Sentinels of its own. As of v1.0.79 that multiplies its
// goroutines and connections for as long as Sentinels answer and their master does not.
func FollowMaster(o rueidis.ClientOption) rueidis.ClientOption {
	o, _ = follow(o, false)
	return o
}

// follow is FollowMaster. If keep is true, the connection to a Sentinel stays open, until
// the sentinels are closed.
func follow(o rueidis.ClientOption, keep bool) (rueidis.ClientOption, *sentinels) {
	if o.Sentinel.MasterSet == "" {
		return o, nil
	}
	dial := o.DialCtxFn
	if dial == nil {
		dial = new(dialer).dial
	}
	s := &sentinels{name: o.Sentinel.MasterSet, option: o.Sentinel, dial: dial, keep: keep, known: slices.Clone(o.InitAddress)}
	o.Sentinel, o.ForceSingleClient = rueidis.SentinelOption{}, true
	o.DialCtxFn = func(ctx context.Context, _ string, by *net.Dialer, config *tls.Config) (net.Conn, error) {
		address, err := s.master(ctx)
		if err != nil {
			return nil, dialError{err}
		}
		conn, err := dial(ctx, address, by, config)
		if err == nil {
			s.connected(address)
		}
		return conn, err
	}
	return o, s
}

// sentinels know where a master is. One at a time is asked, on one connection: how many
// ask, and how often what is asked for cannot be reached, makes no difference to that.
type sentinels struct {
	name   string
	option rueidis.SentinelOption
	dial   func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error)
	keep   bool

	mu    sync.Mutex // held while one is asked
	open  *sentinel  // that answered last, if its connection is kept
	known []string   // addresses; those that answered last are first

	at struct {
		sync.Mutex
		address string // of the master that was connected to last
	}
}

// A sentinel is a connection to one.
type sentinel struct {
	net.Conn
	replies *bufio.Reader
	name    string // of the master
	address string
	said    string   // where the master is, when it was connected to
	others  []string // Sentinels of the same master
}

// connected notes where the master was connected to.
func (s *sentinels) connected(address string) {
	s.at.Lock()
	defer s.at.Unlock()
	s.at.address = address
}

// moved reports whether the master is known to be elsewhere than it was connected to.
func (s *sentinels) moved(ctx context.Context) bool {
	address, err := s.master(ctx)
	s.at.Lock()
	defer s.at.Unlock()
	return err == nil && s.at.address != "" && s.at.address != address
}

// doubt has another Sentinel asked the next time: this one has named a replica.
func (s *sentinels) doubt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hangUp()
	if len(s.known) > 1 {
		s.known = append(s.known[1:], s.known[0])
	}
}

// close ends the connection that is kept.
func (s *sentinels) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keep = false
	s.hangUp()
}

// hangUp closes the connection that is open. The lock is held.
func (s *sentinels) hangUp() {
	if s.open != nil {
		_ = s.open.Close()
		s.open = nil
	}
}

// master returns where the master is.
func (s *sentinels) master(ctx context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open != nil {
		if address, err := s.open.master(s.patience()); err == nil {
			return address, nil
		}
		s.hangUp()
	}
	one, err := s.first(ctx)
	if err != nil {
		return "", err
	}
	s.known = slices.DeleteFunc(s.known, func(known string) bool { return known == one.address })
	s.known = append([]string{one.address}, s.known...)
	for _, other := range one.others {
		if !slices.Contains(s.known, other) && len(s.known) < mostSentinels {
			s.known = append(s.known, other)
		}
	}
	if s.open = one; !s.keep {
		s.hangUp()
	}
	return one.said, nil
}

// patience is how long a Sentinel may take to be connected to, and to answer.
func (s *sentinels) patience() time.Duration { return cmp.Or(s.option.Dialer.Timeout, patience) }

// first asks those that are known, each a while after the one before it, until one
// answers.
func (s *sentinels) first(ctx context.Context) (*sentinel, error) {
	within, cancel := context.WithTimeout(ctx, s.patience()+headStart*time.Duration(len(s.known)))
	defer cancel()
	known := slices.Clone(s.known)
	one, failed := firstOf(len(known), headStart, func(i int) (*sentinel, error) { return s.ask(within, known[i]) })
	if one != nil {
		return one, nil
	}
	var why error
	for _, err := range failed {
		if why == nil || word(why) == "" { // what one has said tells more than silence
			why = err
		}
	}
	return nil, fmt.Errorf("no Sentinel says where the master %s is: %w", s.name, why)
}

// ask connects to a Sentinel, and asks it.
func (s *sentinels) ask(ctx context.Context, address string) (*sentinel, error) {
	by := s.option.Dialer
	by.Timeout = s.patience()
	conn, err := s.dial(ctx, address, &by, s.option.TLSConfig)
	if err != nil {
		return nil, err
	}
	one := &sentinel{Conn: conn, replies: bufio.NewReader(conn), name: s.name, address: address}
	if s.option.Password != "" {
		_, err = one.call(s.patience(), auth(s.option.Username, s.option.Password)...)
	}
	if err == nil {
		one.said, err = one.master(s.patience())
	}
	if err == nil {
		err = one.listOthers(s.patience())
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("sentinel %s: %w", address, err)
	}
	return one, nil
}

// master asks where the master is.
func (c *sentinel) master(within time.Duration) (string, error) {
	reply, err := c.call(within, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", c.name)
	if err != nil {
		return "", err
	}
	list, ok := reply.([]any)
	if !ok || len(list) != 2 {
		return "", fmt.Errorf("it knows no master %s", c.name)
	}
	host, _ := list[0].(string)
	port, _ := list[1].(string)
	return net.JoinHostPort(host, port), nil
}

// listOthers asks which other Sentinels there are. One that does not say is good enough.
func (c *sentinel) listOthers(within time.Duration) error {
	reply, err := c.call(within, "SENTINEL", "SENTINELS", c.name)
	if err != nil && word(err) == "" {
		return err
	}
	list, _ := reply.([]any)
	for _, one := range list {
		fields, _ := one.([]any)
		about := map[string]string{}
		for i := 0; i+1 < len(fields); i += 2 {
			name, _ := fields[i].(string)
			about[name], _ = fields[i+1].(string)
		}
		if about["ip"] != "" && about["port"] != "" {
			c.others = append(c.others, net.JoinHostPort(about["ip"], about["port"]))
		}
	}
	return nil
}

// call sends a command and reads its reply.
func (c *sentinel) call(within time.Duration, words ...string) (any, error) {
	if err := c.SetDeadline(time.Now().Add(within)); err != nil {
		return nil, err
	}
	if _, err := io.WriteString(c, command(words...)); err != nil {
		return nil, err
	}
	return readReply(c.replies, 3)
}

// auth returns what logs a user in, "" for the default one.
func auth(user, password string) []string {
	if user == "" {
		return []string{"AUTH", password}
	}
	return []string{"AUTH", user, password}
}

// command returns a command as servers read it.
func command(words ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, word := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(word), word)
	}
	return b.String()
}

// The most that a reply of a Sentinel holds.
const (
	mostReplied = 1024     // elements of a list
	longestWord = 64 << 10 // bytes
)

var errReply = errors.New("a reply that is not understood")

// readReply reads a reply of RESP2, in lists of so many levels at most.
func readReply(r *bufio.Reader, levels int) (any, error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return nil, errReply
	}
	kind, text := line[0], string(line[1:len(line)-2])
	switch kind {
	case '+', ':':
		return text, nil
	case '-':
		return nil, ReplyError(text)
	}
	n, err := strconv.Atoi(text)
	switch {
	case err != nil:
		return nil, errReply
	case n < 0 && (kind == '$' || kind == '*'):
		return nil, nil
	case kind == '$' && n <= longestWord:
		b := make([]byte, n+2)
		if _, err := io.ReadFull(r, b); err != nil {
			return nil, err
		}
		return string(b[:n]), nil
	case kind == '*' && n <= mostReplied && levels > 0:
		list := make([]any, n)
		for i := range list {
			if list[i], err = readReply(r, levels-1); err != nil {
				return nil, err
			}
		}
		return list, nil
	}
	return nil, errReply
}

// follow has the client made anew when the master is another one: it may be that the
// former one still answers, on its side of a network that has parted.
func (c *connector) follow(ctx context.Context) {
	for pause(ctx, followEvery) {
		if d := c.ready.Load(); d != nil && c.sentinels.moved(ctx) {
			c.retire(d)
		}
	}
}
