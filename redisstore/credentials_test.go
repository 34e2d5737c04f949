package redisstore_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/redisstore"
)

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
