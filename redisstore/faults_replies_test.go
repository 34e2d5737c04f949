package redisstore_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// A reply is an error that a server answers with, and what is made of it.
type reply struct {
	name   string
	says   []string // any of these is in the error
	class  error
	breaks bool // the breaker opens: the server serves no caller
	cuts   bool // begin cuts connections, which a call may come upon
	begin  func(s *scene)
	end    func(s *scene)

	args     []string // what the server is started with
	password string
	limits   []string // in the request; "wide" unless said
}

// A scene is a store, and the server that answers it with errors.
type scene struct {
	testing.TB
	*redistest.Server                    // the one, or the first of the cluster
	cluster           *redistest.Cluster // or nil
	prefix            string
	store             *redisstore.Store
	limiter           *stint.Limiter
	held              func() // releases what begin holds

	passed, ambiguous int64
}

// within is the deadline of calls; slowReply is when one took longer than that and
// the machine explain.
const (
	within    = 10 * time.Second
	slowReply = 3 * within
)

// TestReplies goes through the errors that servers answer with, each made by a real
// one. Every call ends in time with an error of the right class, charges
// nothing, and opens the breaker where the server serves no caller; when the cause
// has gone, the store decides again.
func TestReplies(t *testing.T) {
	if testing.Short() && redistest.Program() == "redis-server" { // TestValkey runs it in short
		t.Skip("slow")
	}
	t.Parallel() // it waits more than it works
	for _, r := range replies {
		t.Run(r.name, func(t *testing.T) {
			s := &scene{TB: t, Server: redistest.Start(t, r.args...)}
			r.play(s, redisstore.Options{URL: "redis://:" + r.password + "@" + s.Addr})
		})
	}
	c := redistest.StartCluster(t, 3, 0)
	for _, r := range clusterReplies {
		t.Run(r.name, func(t *testing.T) {
			r.play(&scene{TB: t, Server: c.Nodes[0], cluster: c}, redisstore.Options{URL: c.URL()})
		})
	}
}

func (r reply) play(s *scene, o redisstore.Options) {
	o.Timeout = within
	o.Prefix = fmt.Sprint("reply", prefixes.Add(1))
	s.prefix = o.Prefix
	s.store = openPlain(s, o)
	var limits []stint.Limit
	for _, name := range append([]string{"wide"}, r.limits...) {
		limits = append(limits, parse(s, "1000000/100000h").WithName(name))
	}
	var err error
	if s.limiter, err = stint.NewLimiter(s.store, "replies", limits...); err != nil {
		s.Fatal(err)
	}
	eventually(s, "the store does not decide at first", func() bool { return s.take() == nil })
	r.begin(s)
	begun := time.Now()
	for err := s.take(); !r.said(err); err = s.take() {
		if time.Since(begun) > patience {
			s.Fatalf("the server should say %q, and the last call was told %v", r.says, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	r.meanwhile(s)
	r.end(s)
	eventually(s, "the store does not decide again", func() bool { return s.take() == nil })
	var d stint.Decision
	eventually(s, "the store does not answer what is used", func() bool { // a connection may still be one that was cut
		d, err = s.limiter.Peek(ctx, "a", 1)
		return err == nil
	})
	if used := d.Limit - d.Remaining; used < s.passed || used > s.passed+s.ambiguous {
		s.Errorf("%d units are used; %d passed, and %d calls were ambiguous", used, s.passed, s.ambiguous)
	}
	// A cluster's other master may have been asked, too, when the slot had none: the
	// breaker in front of it closes by itself, and not with that of the slot's.
	eventually(s, "a breaker is open after all is well", func() bool { return s.store.Stats().Open == 0 })
}

// meanwhile calls while the server answers so.
func (r reply) meanwhile(s *scene) {
	said, tries := 1, 20
	if r.cuts {
		tries = 200
	}
	for range tries {
		err := s.take()
		switch {
		case r.cuts && (errors.Is(err, redisstore.ErrAmbiguous) || errors.Is(err, redisstore.ErrUnavailable)):
			time.Sleep(10 * time.Millisecond) // three in a row, and one is let in now and then
		case !errors.Is(err, r.class):
			s.Errorf("told %v, want %v", err, r.class)
		case errors.Is(err, redisstore.ErrUnavailable) && !r.breaks:
			s.Errorf("the breaker is open though the server is well: %v", err)
		case r.said(err):
			said++
		}
		if open := s.store.Stats().Open > 0; open && r.breaks || !open && !r.breaks && said > 5 {
			return
		}
	}
	s.Errorf("%d of %d calls were told %q, and %d breakers are open", said, tries, r.says, s.store.Stats().Open)
}

func (r reply) said(err error) bool {
	return err != nil && slices.ContainsFunc(r.says, func(word string) bool { return strings.Contains(err.Error(), word) })
}

// state returns the key of what is kept under a limit.
func (s *scene) state(limit string) string {
	return s.prefix + ":{3lu}:replies/" + limit + "%3Agcra%3A100000h:a"
}

// take asks for a unit, and sees that the answer comes in time and is one of
// those that there are.
func (s *scene) take() error {
	begun := time.Now()
	d, err := s.limiter.Take(ctx, "a", 1)
	if took := time.Since(begun); took > slowReply {
		s.Errorf("a call took %v", took)
	}
	s.passed += d.Taken
	switch {
	case err == nil:
		if !d.Allowed {
			s.Errorf("denied: %+v", d)
		}
	case errors.Is(err, redisstore.ErrAmbiguous):
		s.ambiguous++
	case !errors.Is(err, redisstore.ErrNotExecuted) && !errors.Is(err, redisstore.ErrConfiguration):
		s.Errorf("an error of no class: %v", err)
	}
	return err
}

// pretending is a driver that says it is no cluster, so that the store sends keys of
// several slots in one call.
type pretending struct{ redisstore.Driver }

func (pretending) Cluster() bool { return false }

// TestCrossSlot has a driver that does not know that it is of a cluster ask for keys in
// several slots at once.
func TestCrossSlot(t *testing.T) {
	t.Parallel()
	driver := redisstore.NewDriver(client(t, redistest.StartCluster(t, 3, 0).Nodes[0].Addr))
	s := &scene{TB: t, store: openPlain(t, redisstore.Options{Driver: pretending{driver}, Timeout: within})}
	var err error
	if s.limiter, err = stint.NewLimiter(s.store, "1000000/100000h", parse(t, "1000000/100000h")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the store does not decide at first", func() bool { return s.take() == nil })
	b := made.Bound(t, s.store, "1000000/100000h", parse(t, "1000000/100000h"))
	for range 6 {
		d, err := s.store.Decide(ctx, meter.OpTake, []stint.Layer{{Bound: b, Key: "a"}, {Bound: b, Key: "b"}}, 1)
		if !errors.Is(err, redisstore.ErrConfiguration) || !strings.Contains(err.Error(), "CROSSSLOT") || s.store.Stats().Open != 0 {
			t.Errorf("%+v, %v, with %d breakers open", d, err, s.store.Stats().Open)
		}
	}
	if d, err := s.limiter.Peek(ctx, "a", 1); err != nil || d.Limit-d.Remaining != s.passed {
		t.Errorf("%d units are used, %d passed: %v", d.Limit-d.Remaining, s.passed, err)
	}
}
