package rulesredis

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-dev/stint/internal/bell"
	"github.com/stint-dev/stint/redisstore"
	"github.com/stint-dev/stint/rulesource"
)

const (
	// callTimeout is how long one command may take.
	callTimeout = 10 * time.Second
	// dialTimeout is how long a connection may take.
	dialTimeout = 5 * time.Second
	// defaultPrefix is the default prefix of keys.
	defaultPrefix = "stint"
)

// A Server is a Redis with published rules. It is a [rulesource.Source]. Its methods may be called
// from many goroutines at once.
type Server struct {
	where  string
	prefix string
	option *redis.UniversalOptions

	mu     sync.Mutex
	client redis.UniversalClient // nil until the server has answered once
	closed bool
	read   position // by the last Load

	bell bell.Bell
}

var (
	_ rulesource.Source = (*Server)(nil)
	_ rulesource.Clock  = (*Server)(nil)
)

// Open returns the server of a URL as [redisstore.ParseURL] reads it; the parameter prefix is the
// prefix of keys, stint by default. Open does not connect. The file, unless it is "", holds the
// password, which is read at each connect.
func Open(text, passwordFile string) (*Server, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("this is no URL: write redis://host:6379")
	}
	parameters := u.Query()
	s := &Server{where: (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String(), prefix: parameters.Get("prefix")}
	parameters.Del("prefix")
	u.RawQuery = parameters.Encode()
	o, err := redisstore.ParseURL(u.String())
	if err != nil {
		return nil, err
	}
	s.prefix = cmp.Or(s.prefix, defaultPrefix)
	if strings.ContainsAny(s.prefix, "{}") {
		return nil, errors.New("prefix: no braces, which mark the slot of a cluster")
	}
	o.DialTimeout, o.ReadTimeout = dialTimeout, callTimeout
	if passwordFile != "" {
		o.StreamingCredentialsProvider = nil
		o.CredentialsProviderContext = func(context.Context) (user, password string, err error) {
			text, err := os.ReadFile(passwordFile)
			if err != nil {
				return "", "", fmt.Errorf("the password's file: %w", err)
			}
			return o.Username, strings.TrimRight(string(text), "\r\n"), nil
		}
	}
	s.option = o
	return s, nil
}

// String returns where the server is, without its user, password and parameters.
func (s *Server) String() string { return s.where }

// Close implements [rulesource.Source].
func (s *Server) Close() error {
	s.bell.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.client != nil {
		err := s.client.Close()
		s.client = nil
		return err
	}
	return nil
}

// connected returns the client, which is created once the server answers.
func (s *Server) connected(ctx context.Context) (redis.UniversalClient, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, bell.ErrClosed
	}
	if s.client == nil {
		client, err := redisstore.Connect(ctx, s.option)
		if err != nil {
			return nil, s.failed(err)
		}
		s.client = client
	}
	return s.client, nil
}

// ask runs do with a time limit, and adds the name of the server to its error.
func (s *Server) ask(ctx context.Context, do func(ctx context.Context, client redis.UniversalClient) error) error {
	ctx, stop := context.WithTimeout(ctx, callTimeout)
	defer stop()
	client, err := s.connected(ctx)
	if err != nil {
		return err
	}
	return s.failed(do(ctx, client))
}

// failed adds the name of the server to an error.
func (s *Server) failed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", s.where, err)
}

// key returns the name of a key.
func (s *Server) key(name string) string { return s.prefix + ":{rules}:" + name }

func (s *Server) channel() string { return s.key("changed") }

// A head is what is published.
type head struct {
	Version rulesource.Version `json:"version"`
	Name    string             `json:"name"`
	Hash    string             `json:"hash"`
	List    string             `json:"list"`
	Blocks  int64              `json:"blocks"` // number of blocks in the list
	Bytes   int64              `json:"bytes"`  // bytes of these blocks
	Whole   int64              `json:"whole"`  // bytes of the blocks with the whole version, before appended changes
	Chain   string             `json:"chain"`  // chain of all blocks; "" if the publisher made none
}

// newest reads the head and its text, which is "" if there is none.
func (s *Server) newest(ctx context.Context) (h head, text string, err error) {
	err = s.ask(ctx, func(ctx context.Context, client redis.UniversalClient) (err error) {
		text, err = client.Get(ctx, s.key("head")).Result()
		if errors.Is(err, redis.Nil) {
			return nil
		}
		if err == nil {
			err = json.Unmarshal([]byte(text), &h)
		}
		return err
	})
	return h, text, err
}
