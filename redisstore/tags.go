package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// DefaultTags is Options.Tags where that says nothing.
const DefaultTags = 256

// Two processes with different Options.Tags would keep each key twice, under
// different names, and each let it have its limit. So a key beside the states says
// how many tags there are: the first process writes it, and one that finds another
// number there refuses to decide.

// TagsKey returns the key that says how many tags there are under a prefix.
func TagsKey(prefix string) string { return prefix + "::tags" }

// tagsScript looks at that key, and writes it where it is not there or half of its
// time is over. It lives for longer than what a limit per year counts.
const tagsScript = `local there = redis.call('GET', KEYS[1])
if there and there ~= ARGV[1] then return there end
if not there or redis.call('PTTL', KEYS[1]) < 17280000000 then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', '34560000000')
end
return ARGV[1]`

const (
	tagsSoon  = time.Second // until a server is asked again that did not answer
	tagsOften = time.Minute // until one is that did, since it may forget
)

// checkTags asks the server how many tags there are. The error is an
// [ErrConfiguration] if they are not this store's.
func (s *Store) checkTags(ctx context.Context) error {
	key, own := TagsKey(s.names.prefix), strconv.Itoa(slots/s.names.wide)
	reply, err := s.driver.Eval(ctx, tagsScript, []string{key}, []string{own})
	if err != nil {
		return classify(err)
	}
	if there, ok := reply.(string); ok && there != own {
		wrong := fmt.Errorf("%w: %s hash tags (Options.Tags), and other processes under the prefix %q have %.20q: each would keep the keys of the other once more; the same number, or another prefix; if no other process is left, delete the key %s",
			ErrConfiguration, own, s.names.prefix, there, key)
		s.misfit.Store(&wrong)
		return wrong
	}
	return nil
}

// firstTags looks at the tags of a store that has just connected to its URL, and
// closes it where others have another number. On other clients the first call that
// is answered has it looked at.
func (s *Store) firstTags() error {
	if own, ok := s.driver.(*connector); !ok || s.now != nil || own.ready.Load() == nil {
		return nil
	}
	within, cancel := context.WithTimeout(s.life, patience)
	defer cancel()
	err := s.checkTags(within)
	if s.misfit.Load() == nil {
		return nil
	}
	_ = s.Close()
	return err
}

// watchTags has the server asked again beside the calls, until it has another
// number. It begins with what came of the first time, which is when the first call
// has been answered.
func (s *Store) watchTags(first error) {
	pause := tagsOften
	if first != nil {
		pause = tagsSoon
	}
	s.background(func(ctx context.Context) {
		for s.misfit.Load() == nil {
			timer := time.NewTimer(pause)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return
			}
			within, cancel := context.WithTimeout(ctx, max(patience, s.timeout))
			err := s.checkTags(within)
			cancel()
			pause = min(2*pause, tagsOften)
			if err == nil || errors.Is(err, ErrConfiguration) { // that it may not ask, decisions tell
				pause = tagsOften
			}
		}
	})
}
