package rulesredis

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-dev/stint/rulesource"

	"github.com/stint-dev/stint/service/rules/rulescopy"
)

const (
	// poll is the longest time between two reads of the head; each interval is shortened by up to a
	// fifth at random.
	poll = 5 * time.Second
	// pageBlocks is how many blocks are read at once.
	pageBlocks = 64
)

// A position is the version that was read, and where it ends in the list.
type position struct {
	version rulesource.Version
	list    string
	blocks  int64
	chain   string
}

var errReplaced = errors.New("it was replaced while it was read")

// Load implements [rulesource.Source].
func (s *Server) Load(ctx context.Context, held rulesource.Version, to rulesource.Receiver) (*rulesource.Snapshot, error) {
	h, text, err := s.newest(ctx)
	if err != nil {
		return nil, err
	}
	snapshot := &rulesource.Snapshot{Version: h.Version, Name: h.Name, Hash: h.Hash}
	if text == "" {
		return snapshot, rulesource.ErrEmpty
	}
	if snapshot.Ahead, snapshot.Doubt, err = s.Clock(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	from := s.read
	s.mu.Unlock()
	same := held.Identity == h.Version.Identity && held.Epoch == h.Version.Epoch // Begin refuses versions of other histories
	if !same || held.Revision != h.Version.Revision {
		if snapshot.Document, err = s.document(ctx, h.Hash); err != nil {
			return nil, err
		}
	}
	whole := from.version != held || from.list != h.List || from.blocks > h.Blocks
	if whole {
		from = position{}
	}
	if err := to.Begin(snapshot, whole); err != nil {
		return nil, err
	}
	from.version, from.list = h.Version, h.List
	err = s.hand(ctx, &h, &from, to)
	if err == nil && h.Chain != "" && from.chain != h.Chain {
		err = s.failed(errReplaced)
	}
	if errors.Is(err, errReplaced) {
		from = position{} // the next Load reads everything
	} else if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.read = from
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return snapshot, nil
}

// replaced reports whether the version that was read now has another list, for example because the
// database was restored and changed again.
func (s *Server) replaced(h *head) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.read.version == h.Version && s.read.list != h.List
}

// document reads a document by its hash.
func (s *Server) document(ctx context.Context, hash string) ([]byte, error) {
	var document []byte
	err := s.ask(ctx, func(ctx context.Context, client redis.UniversalClient) (err error) {
		document, err = client.Get(ctx, s.key("doc:"+hash)).Bytes()
		switch {
		case errors.Is(err, redis.Nil):
			return errReplaced
		case err == nil && rulesource.HashOf(document) != hash:
			return errors.New("the document is not the one that was published")
		}
		return err
	})
	return document, err
}

// hand passes the blocks of a head from a position on to a receiver, and advances the position.
func (s *Server) hand(ctx context.Context, h *head, from *position, to rulesource.Receiver) error {
	for from.blocks < h.Blocks {
		end := min(from.blocks+pageBlocks, h.Blocks)
		var blocks []string
		err := s.ask(ctx, func(ctx context.Context, client redis.UniversalClient) (err error) {
			blocks, err = client.LRange(ctx, s.key("list:"+h.List), from.blocks, end-1).Result()
			if err == nil && int64(len(blocks)) != end-from.blocks {
				err = errReplaced
			}
			return err
		})
		if err != nil {
			return err
		}
		for _, block := range blocks {
			if err := handBlock(block, to); err != nil {
				return err
			}
			from.chain = link(from.chain, block)
		}
		from.blocks = end
	}
	return nil
}

// handBlock passes the contents of a block to a receiver.
func handBlock(block string, to rulesource.Receiver) error {
	data, err := unpack(block)
	if err != nil {
		return err
	}
	r := rulescopy.NewReader(bytes.NewReader(data))
	for {
		f, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = f.DeliverTo(to)
		}
		if err != nil {
			return err
		}
	}
}

// Wait implements [rulesource.Source]. It reads the head at once, whenever the worker announces a
// change, and at least every 5 s.
func (s *Server) Wait(ctx context.Context, held rulesource.Version) error {
	for {
		rings, err := s.bell.Listen(s.subscribe)
		if err != nil {
			return err
		}
		h, _, err := s.newest(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return err
		case h.Version != held || s.replaced(&h):
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-rings:
		case <-time.After(poll - rand.N(poll/5)):
		}
	}
}
