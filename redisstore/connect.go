package redisstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/ports"
	"github.com/stint-dev/stint/internal/wording"
)

// A Driver is what a store needs of a Redis client. It must not send a call
// again that may have run.
//
// Errors that the server answered with are [ReplyError]; what a driver returns
// else is taken as ambiguous, but for a failed dial. All methods may be called
// from many goroutines at once.
type Driver interface {
	// EvalSHA runs a loaded script on the node that serves the keys, and
	// returns int64, string, []any of these, or nil.
	EvalSHA(ctx context.Context, sha string, keys, args []string) (any, error)
	// Eval runs a script by its text, where it is not loaded: the server keeps
	// it from then on.
	Eval(ctx context.Context, script string, keys, args []string) (any, error)
	// Cluster reports whether the server is a cluster, in which keys of
	// different slots are on different nodes. It may be called at any time, and
	// may say false until a connection has been made.
	Cluster() bool
	// Close releases the client.
	Close()
}

// A ReplyError is an error that the server answered with: "WRONGTYPE …".
type ReplyError string

// Error returns the server's words.
func (e ReplyError) Error() string { return string(e) }

// rueidisDriver implements [Driver] on a client that is ready. rueidis sends
// nothing again that is not marked as read-only or retryable, and EVALSHA and
// EVAL are neither.
type rueidisDriver struct {
	client rueidis.Client
	login  *login // nil unless credentials are asked for
}

// EvalSHA implements [Driver].
func (d rueidisDriver) EvalSHA(ctx context.Context, sha string, keys, args []string) (any, error) {
	return d.run(ctx, "EVALSHA", sha, keys, args)
}

// Eval implements [Driver].
func (d rueidisDriver) Eval(ctx context.Context, script string, keys, args []string) (any, error) {
	return d.run(ctx, "EVAL", script, keys, args)
}

func (d rueidisDriver) run(ctx context.Context, verb, script string, keys, args []string) (any, error) {
	if len(keys) > 1 && d.Cluster() && !oneSlot(keys) { // rueidis would panic
		return nil, ReplyError("CROSSSLOT Keys in request don't hash to the same slot")
	}
	cmd := d.client.B().Arbitrary(verb, script, strconv.Itoa(len(keys))).Keys(keys...).Args(args...).Build()
	result := d.client.Do(ctx, cmd)
	if err := result.NonRedisError(); err != nil && d.login.mayHaveEnded(err) {
		return nil, err
	}
	v, err := result.ToAny()
	if rueidis.IsRedisNil(err) {
		return nil, nil
	}
	return v, replied(err)
}

// Cluster implements [Driver].
func (d rueidisDriver) Cluster() bool { return d.client.Mode() == rueidis.ClientModeCluster }

// Slots implements [Topology].
func (d rueidisDriver) Slots(ctx context.Context) ([]SlotRange, error) {
	list, err := d.client.Do(ctx, d.client.B().ClusterSlots().Build()).ToArray()
	if err != nil {
		return nil, replied(err)
	}
	var all []SlotRange
	for _, one := range list {
		fields, err := one.ToArray()
		if err != nil || len(fields) < 3 {
			return nil, fmt.Errorf("redisstore: CLUSTER SLOTS is not understood: %w", err)
		}
		first, err1 := fields[0].AsInt64()
		last, err2 := fields[1].AsInt64()
		master, err3 := fields[2].ToArray()
		if err := errors.Join(err1, err2, err3); err != nil || len(master) < 2 {
			return nil, fmt.Errorf("redisstore: CLUSTER SLOTS is not understood: %w", err)
		}
		host, _ := master[0].ToString()
		port, _ := master[1].AsInt64()
		name := net.JoinHostPort(host, strconv.FormatInt(port, 10))
		if (host == "" || host == "?") && len(master) > 2 { // nodes that do not say where they are may have one port
			if id, err := master[2].ToString(); err == nil {
				name = id
			}
		}
		all = append(all, SlotRange{uint16(first), uint16(last), name})
	}
	return all, nil
}

// Close implements [Driver].
func (d rueidisDriver) Close() { d.client.Close() }

func oneSlot(keys []string) bool {
	for _, key := range keys[1:] {
		if slotOf(key) != slotOf(keys[0]) {
			return false
		}
	}
	return true
}

// replied returns what the server said as a [ReplyError].
func replied(err error) error {
	if said, ok := rueidis.IsRedisErr(err); ok {
		return ReplyError(said.Error())
	}
	if errors.Is(err, rueidis.ErrNoSlot) {
		return errNoNode
	}
	return err
}

// connector implements [Driver] with a client of its own, which it makes when
// it is first needed, and anew when the server has become a replica: a client
// of one server would talk to that for ever.
type connector struct {
	option rueidis.ClientOption
	login  *login                    // nil unless credentials are asked for
	ready  atomic.Pointer[connected] // nil until there is one

	sentinels *sentinels // nil unless they say where the server is
	unfollow  context.CancelFunc

	mu      sync.Mutex // guards what follows
	trying  *attempt   // under way, or the last one if it failed
	closed  bool
	running sync.WaitGroup
}

// An attempt is one to connect.
type attempt struct {
	done   chan struct{}
	ended  time.Time
	driver *connected
	err    error
}

// connected is a client of a connector, and how many calls use it. A rueidis client
// that is closed while a call makes a connection keeps that for ever.
type connected struct {
	rueidisDriver
	calls atomic.Int64
	left  atomic.Bool // no more calls
}

// enter reports whether a call may use the client. It has to leave then.
func (d *connected) enter() bool {
	d.calls.Add(1)
	if d.left.Load() {
		d.leave()
		return false
	}
	return true
}

func (d *connected) leave() { d.calls.Add(-1) }

// closeWhenIdle closes the client when the calls on their way have ended, which
// takes them little more than a dial's timeout.
func (d *connected) closeWhenIdle(most time.Duration) {
	d.left.Store(true)
	for end := by(most); d.calls.Load() > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	d.client.Close()
}

// between is how long a failed attempt speaks for the calls that come after it.
const between = 20 * time.Millisecond

// first tries to connect. The error is for what waiting does not mend.
func (c *connector) first() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := c.driver(ctx)
	switch word(err) {
	case "NOAUTH", "WRONGPASS", "NOPERM":
		c.Close()
		return fmt.Errorf("redisstore: connecting: %w", classify(err))
	}
	return nil
}

// driver returns one that is connected, and waits for it as long as ctx allows.
func (c *connector) driver(ctx context.Context) (*connected, error) {
	if d := c.ready.Load(); d != nil {
		return d, nil
	}
	try := c.attempt()
	if try == nil {
		return nil, stint.ErrClosed
	}
	select {
	case <-try.done:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: connecting: %w", ErrNotExecuted, ctx.Err())
	}
	return try.driver, try.err
}

// attempt returns the one that is under way, or begins one.
func (c *connector) attempt() *attempt {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	if try := c.trying; try != nil {
		select {
		case <-try.done:
			if try.err != nil && time.Since(try.ended) < between || try.err == nil && c.ready.Load() == try.driver {
				return try
			}
		default:
			return try
		}
	}
	try := &attempt{done: make(chan struct{})}
	c.trying = try
	c.running.Go(func() { c.connect(try) })
	return try
}

func (c *connector) connect(try *attempt) {
	client, err := rueidis.NewClient(c.option)
	c.mu.Lock()
	defer c.mu.Unlock()
	defer close(try.done)
	try.ended = time.Now()
	switch {
	case err != nil:
		if word(replied(err)) != "" {
			try.err = replied(err) // it spoke: of a password, say
		} else {
			try.err = fmt.Errorf("%w: connecting: %w", ErrNotExecuted, err)
		}
	case c.closed:
		client.Close()
		try.err = stint.ErrClosed
	default:
		try.driver = &connected{rueidisDriver: rueidisDriver{client, c.login}}
		c.ready.Store(try.driver)
	}
}

// EvalSHA implements [Driver].
func (c *connector) EvalSHA(ctx context.Context, sha string, keys, args []string) (any, error) {
	return c.run(ctx, func(d *connected) (any, error) { return d.EvalSHA(ctx, sha, keys, args) })
}

// Eval implements [Driver].
func (c *connector) Eval(ctx context.Context, script string, keys, args []string) (any, error) {
	return c.run(ctx, func(d *connected) (any, error) { return d.Eval(ctx, script, keys, args) })
}

func (c *connector) run(ctx context.Context, call func(*connected) (any, error)) (any, error) {
	d, err := c.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer d.leave()
	v, err := call(d)
	if word(err) == "READONLY" && d.client.Mode() == rueidis.ClientModeStandalone && c.retire(d) && c.sentinels != nil {
		c.sentinels.doubt()
	}
	return v, err
}

// retire has the next call make another client, and reports whether none has done so yet.
func (c *connector) retire(d *connected) bool {
	if !c.ready.CompareAndSwap(d, nil) {
		return false
	}
	go d.closeWhenIdle(c.longest())
	return true
}

// enter returns a driver that is connected, for one call.
func (c *connector) enter(ctx context.Context) (*connected, error) {
	d, err := c.driver(ctx)
	if err != nil {
		return nil, err
	}
	if !d.enter() {
		return nil, fmt.Errorf("%w: connecting anew", ErrNotExecuted)
	}
	return d, nil
}

// longest is how long a call may take.
func (c *connector) longest() time.Duration {
	return 2 * (c.option.Dialer.Timeout + c.option.ConnWriteTimeout)
}

// Cluster implements [Driver].
func (c *connector) Cluster() bool {
	d := c.ready.Load()
	return d != nil && d.Cluster()
}

// Slots implements [Topology].
func (c *connector) Slots(ctx context.Context) ([]SlotRange, error) {
	d, err := c.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer d.leave()
	return d.Slots(ctx)
}

// Close implements [Driver].
func (c *connector) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	if c.sentinels != nil {
		c.unfollow()
		defer c.sentinels.close()
	}
	c.running.Wait() // an attempt ends within the dial's timeout
	if d := c.ready.Swap(nil); d != nil {
		d.closeWhenIdle(c.longest())
	}
}

// ParseURL returns what a URL says, as [Options].URL does: for a program that
// makes a client by itself. Beside the parameters that rueidis.ParseURL knows,
// such as addr, master_set and skip_verify, it reads these and refuses others:
//
//   - cacert names a file of CA certificates for the servers, in PEM, in place of
//     the system's.
//   - cert and key name files of the certificate to show to servers, and of its
//     key. These files are read for each new connection, too.
//   - server_name is the name that the certificates of servers must have. Without
//     it that is the URL's host, and with addr or master_set the address that is
//     dialled.
//   - password_file names a file whose first line is the password: it is read for
//     each new connection, and for open ones once a minute.
//   - sentinel_username and sentinel_password are for Sentinels, which do not get
//     those of the servers.
//
// Several hosts, separated by commas, stand for the first one and an addr for each of
// the others. With rediss:// Sentinels are called over TLS too. Files are read at
// once as well. Errors show nothing of the URL except names of files.
func ParseURL(text string) (rueidis.ClientOption, error) {
	o, read, err := parseURL(text)
	if read != nil {
		logInBy(&o, read)
	}
	return o, err
}

// parameters are those that a URL may have: rueidis.ParseURL's, then our own.
var parameters = []string{
	"addr", "client_cache", "client_name", "db", "dial_timeout", "master_set", "max_retries", "protocol", "skip_verify", "write_timeout",
	"cacert", "cert", "key", "password_file", "sentinel_password", "sentinel_username", "server_name",
}

// known refuses a parameter that nothing reads. One that does not look like a name is
// not shown: it may be the end of a password with a question mark.
func known(q url.Values) error {
	for _, name := range slices.Sorted(maps.Keys(q)) {
		if slices.Contains(parameters, name) {
			continue
		}
		what := "a parameter is unknown"
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_") == "" {
			what = fmt.Sprintf("%.32q is no parameter", name)
			if near := wording.Nearest(name, slices.Values(parameters), 4); near != "" {
				return fmt.Errorf("%s: did you mean %s?", what, near)
			}
		}
		return fmt.Errorf("%s: there are %s", what, strings.Join(slices.Sorted(slices.Values(parameters)), ", "))
	}
	return nil
}

// parseURL is ParseURL. With a file of a password it returns what reads it.
func parseURL(text string) (o rueidis.ClientOption, read func(context.Context) (Credentials, error), err error) {
	text = separate(text)
	if o, err = rueidis.ParseURL(text); err != nil {
		return o, nil, errors.New("redisstore: the URL is not understood: write redis://[user:password@]host:port[/db], rediss:// or unix://")
	}
	parsed, err := url.Parse(text)
	if err != nil {
		return o, nil, errors.New("redisstore: the URL is not understood") // rueidis has parsed it too
	}
	q, dial := parsed.Query(), &dialer{host: parsed.Hostname()}
	if err := known(q); err != nil {
		return o, nil, fmt.Errorf("redisstore: the URL: %w", err)
	}
	if err := dial.files.trust(o.TLSConfig, q); err != nil {
		return o, nil, fmt.Errorf("redisstore: the URL: %w", err)
	}
	if o.DialCtxFn == nil { // else of a Unix socket
		o.DialCtxFn = dial.dial
		for _, address := range o.InitAddress {
			if err := ports.CheckAddress(address); err != nil {
				return o, nil, fmt.Errorf("redisstore: the URL: %w", err)
			}
		}
	}
	if q.Has("password_file") {
		if o.Password != "" {
			return o, nil, errors.New("redisstore: the URL: a password and password_file: one of them")
		}
		read = readPassword(o.Username, q.Get("password_file"))
		if _, err := read(context.Background()); err != nil {
			return o, nil, fmt.Errorf("redisstore: the URL: password_file: %w", err)
		}
	}
	switch {
	case o.TLSConfig == nil:
	case q.Has("server_name"):
		o.TLSConfig.ServerName = q.Get("server_name")
	case q.Has("addr"), q.Has("master_set"):
		o.TLSConfig.ServerName = "" // each is another host
	}
	if o.Sentinel.MasterSet != "" {
		o.Sentinel.TLSConfig = o.TLSConfig.Clone()
		o.Sentinel.Username, o.Sentinel.Password = q.Get("sentinel_username"), q.Get("sentinel_password")
		o.Sentinel.Dialer = o.Dialer
	}
	return o, read, nil
}

// separate returns a URL of several hosts with those behind the first as
// parameters.
func separate(text string) string {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return text
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	authority, rest := rest[:end], rest[end:]
	user, hosts := "", authority
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		user, hosts = authority[:at+1], authority[at+1:]
	}
	all := strings.Split(hosts, ",")
	if len(all) == 1 {
		return text
	}
	query := make(url.Values)
	for _, host := range all[1:] {
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), "6379")
		}
		query.Add("addr", host)
	}
	mark := "?"
	if strings.Contains(rest, "?") {
		mark = "&"
	}
	return scheme + "://" + user + all[0] + rest + mark + query.Encode()
}

// newConnector returns one for what a URL says, which does not connect yet.
func newConnector(option rueidis.ClientOption, login *login) *connector {
	c := &connector{login: login}
	if c.option, c.sentinels = follow(option, true); c.sentinels != nil {
		var ctx context.Context
		ctx, c.unfollow = context.WithCancel(context.Background())
		c.running.Go(func() { c.follow(ctx) })
	}
	return c
}

// optionOf reads a URL. What stalls is given up within seconds, where rueidis
// would wait for ten. What connections log in with is what get says, unless it is nil.
func optionOf(text string, timeout time.Duration, get func(context.Context) (Credentials, error)) (rueidis.ClientOption, *login, error) {
	o, read, err := parseURL(text)
	if err != nil {
		return o, nil, err
	}
	o.DisableCache = true
	if o.Dialer.Timeout == 0 {
		o.Dialer.Timeout = max(patience, timeout)
	}
	if o.ConnWriteTimeout == 0 {
		o.ConnWriteTimeout = max(patience, 2*timeout)
	}
	if o.Sentinel.MasterSet != "" {
		o.Sentinel.Dialer = o.Dialer
	}
	if get == nil {
		get = read
	}
	if get == nil {
		return o, nil, nil
	}
	return o, logInBy(&o, get), nil
}
