package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/rueidis"
)

// rueidisDriver implements [Driver]. rueidis sends nothing again that is not
// marked as read-only or retryable, and EVALSHA is neither.
type rueidisDriver struct{ client rueidis.Client }

// dial returns a driver with a client of its own.
func dial(url string) (*rueidisDriver, error) {
	o, err := rueidis.ParseURL(url)
	if err != nil {
		return nil, errors.New("redisstore: Options.URL is not understood: write redis://[user:password@]host:port[/db], rediss:// or unix://")
	}
	o.DisableCache = true
	client, err := rueidis.NewClient(o)
	if err != nil {
		return nil, fmt.Errorf("redisstore: %w", classify(replied(err)))
	}
	return &rueidisDriver{client}, nil
}

// EvalSHA implements [Driver].
func (d *rueidisDriver) EvalSHA(ctx context.Context, sha string, keys, args []string) (any, error) {
	cmd := d.client.B().Arbitrary("EVALSHA", sha, strconv.Itoa(len(keys))).Keys(keys...).Args(args...).Build()
	v, err := d.client.Do(ctx, cmd).ToAny()
	if rueidis.IsRedisNil(err) {
		return nil, nil
	}
	return v, replied(err)
}

// Load implements [Driver].
func (d *rueidisDriver) Load(ctx context.Context, script string) error {
	for _, node := range d.client.Nodes() {
		if err := node.Do(ctx, node.B().ScriptLoad().Script(script).Build()).Error(); err != nil {
			return replied(err)
		}
	}
	return nil
}

// Close implements [Driver].
func (d *rueidisDriver) Close() { d.client.Close() }

// replied returns what the server said as a [ReplyError].
func replied(err error) error {
	if said, ok := rueidis.IsRedisErr(err); ok {
		return ReplyError(said.Error())
	}
	return err
}
