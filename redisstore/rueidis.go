package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/rueidis"
)

// rueidisDriver implements [Driver] on a client that is ready. rueidis sends
// nothing again that is not marked as read-only or retryable, and EVALSHA and
// EVAL are neither.
type rueidisDriver struct{ client rueidis.Client }

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
	v, err := d.client.Do(ctx, cmd).ToAny()
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
		all = append(all, SlotRange{uint16(first), uint16(last), fmt.Sprintf("%s:%d", host, port)})
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
		return fmt.Errorf("%w: %w", ErrNotExecuted, err)
	}
	return err
}
