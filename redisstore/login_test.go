package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// locked starts a server with an ACL user whose password is "right", and returns what
// changes it and hangs up on all clients.
func locked(t *testing.T) (server *redistest.Server, change func(password string)) {
	t.Helper()
	server = redistest.Start(t, "--user", "app", "on", ">right", "~*", "&*", "+@all")
	return server, func(password string) {
		t.Helper()
		server.CLI(t, "acl", "setuser", "app", "resetpass", ">"+password)
		server.CLI(t, "client", "kill", "user", "app")
	}
}

// TestLoginRefused has the password of a server change under a store: most requests
// are answered without a call, in the server's words and with where it is, and none
// of them dials. When the password is right again, so does the store decide.
func TestLoginRefused(t *testing.T) {
	t.Parallel()
	server, change := locked(t)
	store := open(t, "redis://app:right@"+server.Addr, redisstore.Options{})
	limit := bind(t, store, "1000000/1h")
	take(t, limit, "a", 1)
	change("another")
	server.CLI(t, "config", "resetstat")
	const asked = 5000
	for fast := 0; fast < asked; {
		_, err := limit.Decide(ctx, meter.OpTake, "a", 1)
		switch {
		case err == nil:
			t.Fatal("decided with a password that is wrong")
		case errors.Is(err, redisstore.ErrAmbiguous), !errors.Is(err, redisstore.ErrConfiguration) && errors.Is(err, redisstore.ErrUnavailable):
			continue // of connections that were cut: three may be before the first login
		case !errors.Is(err, redisstore.ErrConfiguration) || !strings.Contains(err.Error(), "WRONGPASS") || !strings.Contains(err.Error(), server.Addr):
			t.Fatalf("reported %v: not what is wrong, and where", err)
		}
		fast++
	}
	if n := server.Stat(t, "stats", "total_connections_received:"); n < 1 || n > asked/2 { // tries of the breaker and what asks here are among them
		t.Errorf("%d connections for %d requests", n, asked)
	}
	if st := store.Stats(); st.Open != 1 || st.Results.Configuration < asked {
		t.Errorf("%d breakers are open, and %+v", st.Open, st.Results)
	}
	change("right")
	eventually(t, "the store does not decide again", func() bool {
		_, err := limit.Decide(ctx, meter.OpTake, "a", 1)
		return err == nil
	})
}

// TestPasswordFileGone takes the file of a password away: open connections go on, and
// new ones fail before anything has been sent, so nothing is ambiguous.
func TestPasswordFileGone(t *testing.T) {
	t.Parallel()
	server, change := locked(t)
	file := filepath.Join(t.TempDir(), "token")
	write := func() {
		disk.Write(t, file, "right\n")
	}
	write()
	store := open(t, "redis://app@"+server.Addr+"?password_file="+file, redisstore.Options{})
	limit := bind(t, store, "1000000/1h")
	for range 200 { // all connections that the client keeps are made
		take(t, limit, "a", 1)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	take(t, limit, "a", 1)
	change("right")
	eventually(t, "the breaker does not open, or does not say why", func() bool {
		_, err := limit.Decide(ctx, meter.OpTake, "a", 1)
		if err == nil {
			t.Fatal("decided without a password")
		}
		if !strings.Contains(err.Error(), file) {
			return false // of connections that were cut
		}
		if errors.Is(err, redisstore.ErrAmbiguous) || !errors.Is(err, redisstore.ErrNotExecuted) || !strings.Contains(err.Error(), server.Addr) {
			t.Errorf("nothing was sent, and reported %v", err)
		}
		return errors.Is(err, redisstore.ErrUnavailable)
	})
	write()
	eventually(t, "the store does not decide again", func() bool {
		_, err := limit.Decide(ctx, meter.OpTake, "a", 1)
		return err == nil
	})
}

// TestRenewalFails has credentials end while they cannot be had: connections that are
// open stay so.
func TestRenewalFails(t *testing.T) {
	t.Parallel()
	server, _ := locked(t)
	var gone atomic.Bool
	var asked atomic.Int64
	store := open(t, server.URL(), redisstore.Options{Credentials: func(context.Context) (redisstore.Credentials, error) {
		if gone.Load() {
			asked.Add(1)
			return redisstore.Credentials{}, errors.New("no token today")
		}
		return redisstore.Credentials{Username: "app", Password: "right", Until: time.Now().Add(20 * time.Millisecond)}, nil
	}})
	limit := bind(t, store, "1000000/1h")
	for range 200 { // all connections that the client keeps are made
		take(t, limit, "a", 1)
	}
	gone.Store(true)
	eventually(t, "an open connection does not ask again", func() bool {
		take(t, limit, "a", 1)
		return asked.Load() > 2
	})
	take(t, limit, "a", 1)
}

// TestRenewalRefused has credentials that the server refuses come while many calls are on
// their way: connections that are open stay as they are, those that are made meanwhile
// log in as before, and each call gets its own answer.
func TestRenewalRefused(t *testing.T) {
	t.Parallel()
	server, _ := locked(t)
	proxy := redistest.NewProxy(t, server.Addr)
	var wrong atomic.Bool
	var refused atomic.Int64
	store := open(t, proxy.URL(), redisstore.Options{Credentials: func(context.Context) (redisstore.Credentials, error) {
		c := redisstore.Credentials{Username: "app", Password: "right", Until: time.Now().Add(20 * time.Millisecond)}
		if wrong.Load() {
			refused.Add(1)
			c.Password = "wrong"
		}
		return c, nil
	}})
	limit := bind(t, store, "1000000/1000h burst 1000000")
	for range 200 { // all connections that the client keeps are made
		take(t, limit, "0", 1)
	}
	proxy.Set(redistest.Fault{Delay: 30 * time.Millisecond}) // of replies: many calls are behind the login
	wrong.Store(true)
	var callers sync.WaitGroup
	for i := range 64 {
		callers.Go(func() {
			for units := int64(1); units <= 20 || refused.Load() < 4; units++ {
				d, err := limit.Decide(ctx, meter.OpTake, fmt.Sprint("key", i), 1)
				if err != nil || d.Limit-d.Remaining != units {
					t.Errorf("%d units of a key are used, want %d: %v", d.Limit-d.Remaining, units, err)
					return
				}
			}
		})
	}
	callers.Wait()
	wrong.Store(false)
	proxy.Set(redistest.Fault{})
	before := server.CLI(t, "acl", "log")
	if !strings.Contains(before, "app") {
		t.Errorf("the server has refused nobody: %s", before)
	}
}

// TestHosts connects to a cluster, and to one server, by a URL with several hosts.
func TestHosts(t *testing.T) {
	need.Time(t)
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	url := "redis://127.0.0.1:1," + c.Nodes[1].Addr + "," + c.Nodes[2].Addr // of which the first is not there
	store := open(t, url, redisstore.Options{})
	limit := bind(t, store, "5/1h")
	for _, key := range spread() {
		if d := take(t, limit, key, 1); !d.Allowed {
			t.Errorf("%+v", d)
		}
	}
	for text, want := range map[string][]string{
		"redis://h1,h2":                            {"h1:6379", "h2:6379"},
		"redis://u:p%40,@h1:1,h2:2,[::1]:3/4":      {"h1:1", "h2:2", "[::1]:3"},
		"rediss://h1,h2,::1?client_name=x":         {"h1:6379", "h2:6379", "[::1]:6379"},
		"redis://s1:26379,s2:26379/0?master_set=m": {"s1:26379", "s2:26379"},
		"unix:///run/a,b.sock":                     {"/run/a,b.sock"},
	} {
		o, err := redisstore.ParseURL(text)
		if err != nil || !slices.Equal(o.Addrs, want) {
			t.Errorf("%s: %+v, %v", text, o, err)
		}
	}
}

// TestCredentials logs in with what a callback says, and with what stands in a
// file, also after both have changed.
func TestCredentials(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--user", "app", "on", ">first", "~*", "&*", "+@all")
	file := filepath.Join(t.TempDir(), "token")
	write := func(password string) {
		disk.Write(t, file, password+"\nnothing\n")
	}
	write("first")
	var password atomic.Value
	password.Store("first")
	asked := atomic.Int64{}
	called := open(t, server.URL(), redisstore.Options{Credentials: func(context.Context) (redisstore.Credentials, error) {
		asked.Add(1)
		return redisstore.Credentials{Username: "app", Password: password.Load().(string), Until: time.Now().Add(50 * time.Millisecond)}, nil
	}})
	read := open(t, "redis://app@"+server.Addr+"?password_file="+file, redisstore.Options{})
	for _, store := range []*redisstore.Store{called, read} {
		if d := take(t, bind(t, store, "5/1h"), "a", 1); !d.Allowed {
			t.Errorf("%+v", d)
		}
	}
	if who := do(t, client(t, server.Addr), "ACL", "WHOAMI"); who.Err() != nil {
		t.Fatal(who.Err())
	}
	before := asked.Load()
	eventually(t, "a connection that is open is not asked to log in anew", func() bool { return asked.Load() > before+2 })
	password.Store("second")
	write("second")
	server.CLI(t, "acl", "setuser", "app", "resetpass", ">second")
	server.CLI(t, "client", "kill", "type", "normal", "skipme", "yes")
	for _, store := range []*redisstore.Store{called, read} {
		limit := bind(t, store, "5/1h")
		eventually(t, "the new password is not used", func() bool {
			d, err := limit.Allow(ctx, "b", 1)
			return err == nil && d
		})
	}
	for _, url := range []string{"redis://app@h?password_file=/nowhere", "redis://app:x@h?password_file=" + file} {
		if _, err := redisstore.ParseURL(url); err == nil || strings.Contains(err.Error(), "second") {
			t.Errorf("%s: %v", url, err)
		}
	}
}
