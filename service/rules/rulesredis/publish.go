package rulesredis

import (
	"context"
	"crypto/rand"
	_ "embed" // embeds the script
	"encoding/json"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-dev/stint/rulesource"

	"github.com/stint-dev/stint/service/rules/rulescopy"
)

const (
	// blockBytes is about how much a block holds before it is packed.
	blockBytes = 256 << 10
	// mostAdded is how many bytes may be appended to a list before it is written anew, and how many
	// one change may append.
	mostAdded = 16 << 20
	// unpublished is how many seconds data exists before it must be published, and linger how many
	// seconds replaced data can still be read.
	unpublished, linger = 3600, 120
)

//go:embed publish.lua
var publishText string

var publishScript = redis.NewScript(publishText)

// ErrSucceeded says that another worker has published meanwhile.
var ErrSucceeded = errors.New("another worker has published meanwhile")

// errMuch says that there are too many changes to append.
var errMuch = errors.New("too many changes at once: everything is published anew")

// Newest returns the version that is published, the zero Version for none.
func (s *Server) Newest(ctx context.Context) (rulesource.Version, error) {
	h, _, err := s.newest(ctx)
	return h.Version, err
}

// A Publishing is a version that is being written to the server. It implements
// [rulesource.Receiver]; Publish then makes the version the newest.
type Publishing struct {
	s      *Server
	ctx    context.Context
	was    head
	text   string // the text of was
	now    head
	held   rulesource.Version
	whole  bool
	begun  bool
	frames []byte   // the present block
	blocks []string // blocks of changes to append
}

// NewPublishing begins a version that follows the one published now.
func (s *Server) NewPublishing(ctx context.Context) (*Publishing, error) {
	h, text, err := s.newest(ctx)
	if err != nil {
		return nil, err
	}
	p := &Publishing{s: s, ctx: ctx, was: h, text: text, held: h.Version}
	if h.Bytes > 2*h.Whole+mostAdded {
		p.ForceFull() // too much has been appended
	}
	return p, nil
}

// Newest returns the version that this one is to follow.
func (p *Publishing) Newest() rulesource.Version { return p.was.Version }

// Held returns the version since which the caller must pass changes.
func (p *Publishing) Held() rulesource.Version { return p.held }

// ForceFull makes it publish everything instead of changes.
func (p *Publishing) ForceFull() { p.held = p.held.ForFullLoad() }

// Begin implements [rulesource.Receiver].
func (p *Publishing) Begin(s *rulesource.Snapshot, whole bool) error {
	p.now = head{Version: s.Version, Name: s.Name, Hash: s.Hash}
	p.whole, p.begun = whole, true
	if whole {
		p.now.List = rand.Text()
	} else {
		p.now.List, p.now.Blocks, p.now.Bytes, p.now.Whole, p.now.Chain = p.was.List, p.was.Blocks, p.was.Bytes, p.was.Whole, p.was.Chain
	}
	if s.Document == nil {
		return nil
	}
	return p.s.ask(p.ctx, func(ctx context.Context, client redis.UniversalClient) error {
		// A document that exists stays as it is, since it may be the one in force.
		return client.SetNX(ctx, p.s.key("doc:"+s.Hash), s.Document, unpublished*time.Second).Err()
	})
}

// Override implements [rulesource.Receiver].
func (p *Publishing) Override(o *rulesource.Override) error {
	return p.put(&rulescopy.Frame{Override: o})
}

// Plan implements [rulesource.Receiver].
func (p *Publishing) Plan(o *rulesource.Plan) error { return p.put(&rulescopy.Frame{Plan: o}) }

func (p *Publishing) put(f *rulescopy.Frame) (err error) {
	if p.frames, err = f.Append(p.frames); err == nil && len(p.frames) >= blockBytes {
		err = p.flush()
	}
	return err
}

// flush ends a block. The blocks of a whole version are sent at once.
func (p *Publishing) flush() error {
	if len(p.frames) == 0 {
		return nil
	}
	block := pack(p.frames)
	p.frames = p.frames[:0]
	if p.now.Chain != "" || p.now.Blocks == 0 {
		p.now.Chain = link(p.now.Chain, block)
	}
	p.now.Blocks++
	p.now.Bytes += int64(len(block))
	if !p.whole {
		if p.blocks = append(p.blocks, block); p.now.Bytes-p.was.Bytes > mostAdded {
			return errMuch
		}
		return nil
	}
	p.now.Whole = p.now.Bytes
	list := p.s.key("list:" + p.now.List)
	return p.s.ask(p.ctx, func(ctx context.Context, client redis.UniversalClient) error {
		_, err := client.Pipelined(ctx, func(both redis.Pipeliner) error {
			both.RPush(ctx, list, block)
			both.Expire(ctx, list, unpublished*time.Second)
			return nil
		})
		return err
	})
}

// Publish makes the version the newest. If another version than the one before was published
// meanwhile, it returns [ErrSucceeded].
func (p *Publishing) Publish() error {
	if !p.begun {
		return errors.New("nothing was handed over")
	}
	if err := p.flush(); err != nil {
		return err
	}
	text, err := json.Marshal(p.now)
	if err != nil {
		return err
	}
	old := p.was
	if p.text == "" {
		old.List, old.Hash = p.now.List, p.now.Hash
	}
	key := p.s.key
	keys := []string{key("head"), key("list:" + p.now.List), key("doc:" + p.now.Hash), key("list:" + old.List), key("doc:" + old.Hash)}
	args := []any{p.text, text, p.now.Blocks - int64(len(p.blocks)), linger, p.s.channel()}
	for _, block := range p.blocks {
		args = append(args, block)
	}
	return p.s.ask(p.ctx, func(ctx context.Context, client redis.UniversalClient) error {
		answer, err := publishScript.Run(ctx, client, keys, args...).Text()
		switch {
		case err != nil:
			return err
		case answer == "succeeded":
			return ErrSucceeded
		case answer != "published":
			return errors.New(answer)
		}
		return nil
	})
}

// TooMuch reports whether an error says that there are too many changes to append, so that
// everything must be published again.
func TooMuch(err error) bool { return errors.Is(err, errMuch) }

// Drop does nothing, since unpublished keys expire.
func (p *Publishing) Drop() {}
