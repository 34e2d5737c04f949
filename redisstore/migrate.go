package redisstore

import (
	"context"
	"fmt"
	"hash/fnv"
	"hash/maphash"
	"strconv"
	"sync/atomic"
)

// Before states said their form and version, and keys had few tags, a key was
// named by what is in its braces. With Options.Migrate what such a key holds is
// taken over when this process first meets the client's key and that has no
// state of its own: two calls more, once for each key and process. The old key
// stays as it is, and ends by itself.

// A migration knows which keys have been met: some may be met again, which does
// no harm.
type migration struct {
	seed maphash.Seed
	met  [1 << 20]atomic.Uint64 // hashes, each where its last bits say
}

func newMigration() *migration { return &migration{seed: maphash.MakeSeed()} }

// place returns where a state would be noted, and as what.
func (m *migration) place(state string) (*atomic.Uint64, uint64) {
	h := maphash.String(m.seed, state) | 1
	return &m.met[h>>1%uint64(len(m.met))], h
}

// migrate takes over the old states of parts that are met for the first time.
func (s *Store) migrate(ctx context.Context, parts []part) error {
	if s.old == nil {
		return nil
	}
	for i := range parts {
		key := state(parts[i].begin, parts[i].end, parts[i].limit)
		met, hash := s.old.place(key)
		if met.Load() == hash {
			continue
		}
		if err := s.takeOver(ctx, &parts[i], key); err != nil {
			return err
		}
		met.Store(hash)
	}
	return nil
}

// takeOver reads an old state, and writes it where there is no other.
func (s *Store) takeOver(ctx context.Context, p *part, key string) error {
	reply, err := s.eval(ctx, []string{s.names.before(p.key, p.limit)}, []string{"W"})
	if err != nil {
		return err
	}
	kept, _ := reply.([]any)
	if len(kept) != 2 {
		return nil
	}
	text, _ := kept[0].(string)
	life, _ := kept[1].(int64)
	args := []string{"V", text, number(life), shape(p.form.fast)}
	_, err = s.eval(ctx, []string{key}, s.clock(p.appendForm(args, s.near())))
	return err
}

// before returns the name of a key's state in the old layout.
func (n *names) before(key string, l *limit) string {
	tag := key
	if n.tag != nil {
		tag = n.tag(key)
	}
	end := ""
	if tag != key {
		end = ":" + n.plain(key)
	}
	return n.prefix + ":{" + n.plain(tag) + "}:" + l.segment + end
}

// shape returns what the old layout had in the place of a form: three digits of a
// hash of step and full, in front of which a queue has a minus.
func shape(q *fastBucket) string {
	if q == nil {
		return ""
	}
	h := fnv.New32a()
	fmt.Fprint(h, q.step, q.full)
	digits := strconv.Itoa(100 + int(h.Sum32()%800))
	if q.queue {
		return "-" + digits
	}
	return digits
}
