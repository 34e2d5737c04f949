package server_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"

	"github.com/stint-dev/stint/service/rules"
	"github.com/stint-dev/stint/service/server"
)

var errDown = errors.New("the store is down")

// down is a store that takes limits, and then fails.
type down struct{ stint.Store }

type downBound struct{ stint.Bound }

func (s down) Bind(name string, limits ...stint.Limit) (stint.Bound, error) {
	b, err := s.Store.Bind(name, limits...)
	return downBound{b}, err
}

func (downBound) Decide(context.Context, meter.Op, string, int64) (stint.Decision, error) {
	return stint.Decision{}, errDown
}

func (down) Decide(context.Context, meter.Op, []stint.Layer, int64) (stint.Decision, error) {
	return stint.Decision{}, errDown
}

func (down) Reserve(context.Context, []stint.Layer, int64, time.Duration) (stint.Decision, stint.ReservationID, error) {
	return stint.Decision{}, "", errDown
}

func (down) Refund(context.Context, []stint.Layer, int64) (stint.Decision, error) {
	return stint.Decision{}, errDown
}

func (down) Reset(context.Context, []stint.Layer) error { return errDown }

// withoutStore is the setup of failure.txt.
func withoutStore(t *testing.T, o *server.Options) {
	file, err := rules.Decode("rules.yaml", []byte(`
rules:
  - {name: closed, match: {path: /closed}, key: [], limits: ["5 per hour"], on_store_failure: closed}
  - {name: open, match: {path: /open}, key: [], limits: ["5 per hour"], on_store_failure: open}
  - {name: local, match: {path: /local}, key: [], limits: ["1 per hour"], on_store_failure: local}
`))
	if err != nil {
		t.Fatal(err)
	}
	if o.Source, err = rules.Open(down{memstore.New(memstore.Options{})}, "", file, rules.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Source.Policy().Close) // what passed is owed to a store that never comes back
	o.Operators = writeTokens(t, operatorToken)
}
