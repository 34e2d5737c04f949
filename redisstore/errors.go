package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/stint-dev/stint"
)

// What an error of an operation is, for errors.Is. Each error of Redis is one
// of them.
var (
	// ErrNotExecuted is for what surely did not run, and charged nothing.
	ErrNotExecuted = errors.New("redisstore: not executed")
	// ErrAmbiguous is for what may have run: no answer came. It is not sent
	// again, for that could charge twice.
	ErrAmbiguous = stint.ErrAmbiguous
	// ErrConfiguration is for what will not run until somebody changes the
	// configuration: a password, a permission, a key of another program, keys
	// of one request in different slots. Nothing was charged.
	ErrConfiguration = errors.New("redisstore: configuration")
)

// said is what an error reply means, by the word that it begins with. An error
// reply means that the script did not write: what can go wrong with a request
// does so before it writes, and servers look for memory, role and permission at
// a script's first write.
var said = map[string]error{
	"NOSCRIPT": ErrNotExecuted, "LOADING": ErrNotExecuted, "BUSY": ErrNotExecuted,
	"MOVED": ErrNotExecuted, "ASK": ErrNotExecuted, "TRYAGAIN": ErrNotExecuted,
	"CLUSTERDOWN": ErrNotExecuted, "READONLY": ErrNotExecuted, "MASTERDOWN": ErrNotExecuted,
	"NOREPLICAS": ErrNotExecuted, "OOM": ErrNotExecuted, "MISCONF": ErrNotExecuted,
	"NOAUTH": ErrConfiguration, "WRONGPASS": ErrConfiguration, "NOPERM": ErrConfiguration,
	"WRONGTYPE": ErrConfiguration, "CROSSSLOT": ErrConfiguration, "STINT": ErrConfiguration,
	"ACL": ErrConfiguration, "ERR": ErrConfiguration, // ACL failure in script: of Valkey
}

// classify wraps an error of a driver in what it means.
func classify(err error) error {
	var reply ReplyError
	var dial *net.OpError
	switch {
	case err == nil || errors.Is(err, stint.ErrClosed) || errors.Is(err, ErrNotExecuted) || errors.Is(err, ErrConfiguration):
		return err
	case errors.As(err, &reply):
		if class := said[word(err)]; class != nil {
			return fmt.Errorf("%w: %w", class, err)
		}
	case errors.As(err, &dial) && dial.Op == "dial":
		return fmt.Errorf("%w: %w", ErrNotExecuted, err)
	}
	return fmt.Errorf("%w: %w", ErrAmbiguous, err)
}

// word returns the word that an error reply begins with, or "". It is in
// capitals; of ERR, which says nothing, rueidis leaves only what follows.
func word(err error) string {
	var reply ReplyError
	if !errors.As(err, &reply) {
		return ""
	}
	word, _, _ := strings.Cut(string(reply), " ")
	if word != strings.ToUpper(word) {
		return "ERR"
	}
	return word
}

// says returns what a call's error says of the server. One that answers is
// well, whatever it answers, but for one that serves nobody. A caller that gave
// up by itself says nothing.
func says(ctx context.Context, err error) health {
	switch word(err) {
	case "":
	case "LOADING", "BUSY", "READONLY", "MASTERDOWN", "CLUSTERDOWN":
		return healthBad
	default:
		return healthGood
	}
	switch {
	case err == nil:
		return healthGood
	case ctx.Err() != nil || errors.Is(err, stint.ErrClosed) || errors.Is(err, ErrConfiguration):
		return healthUnknown
	}
	return healthBad
}
