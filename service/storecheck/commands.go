package storecheck

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A command is one that a user needs, under the name that permissions have, and
// how it is tried: KEY stands for a key of the check's own. Those without words
// are needed to connect: the check would not come to try them.
type command struct {
	name string
	try  []string
}

// commands are what the script and its caller use, wherever limits are kept. The
// key is a string for all of them, which pexpire or del removes: to commands of
// hashes that is an error, but permissions come first.
var commands = []command{
	{"evalsha", []string{"EVALSHA", strings.Repeat("0", 40), "1", "KEY"}},
	{"eval", []string{"EVAL", "return 1", "1", "KEY"}},
	{"time", []string{"TIME"}},
	{"set", []string{"SET", "KEY", "value", "PX", "60000"}},
	{"get", []string{"GET", "KEY"}},
	{"getrange", []string{"GETRANGE", "KEY", "0", "1"}},
	{"setrange", []string{"SETRANGE", "KEY", "0", "other"}},
	{"hset", []string{"HSET", "KEY", "field", "value"}},
	{"hget", []string{"HGET", "KEY", "field"}},
	{"hgetall", []string{"HGETALL", "KEY"}},
	{"hdel", []string{"HDEL", "KEY", "field"}},
	{"zadd", []string{"ZADD", "KEY", "1", "member"}},
	{"zcard", []string{"ZCARD", "KEY"}},
	{"zrange", []string{"ZRANGE", "KEY", "0", "0"}},
	{"zrem", []string{"ZREM", "KEY", "member"}},
	{"zremrangebyscore", []string{"ZREMRANGEBYSCORE", "KEY", "0", "1"}},
	{"pttl", []string{"PTTL", "KEY"}},
	{"pexpire", []string{"PEXPIRE", "KEY", "0"}}, // which removes it
	{"del", []string{"DEL", "KEY"}},
	{"ping", []string{"PING"}},
}

// What a user needs besides, by where limits are kept.
var (
	inDatabase = []command{{"select", nil}}
	inCluster  = []command{
		{"cluster|slots", []string{"CLUSTER", "SLOTS"}},
		{"cluster|shards", []string{"CLUSTER", "SHARDS"}},
		{"asking", []string{"ASKING"}},
	}
)

// permissions writes commands as a user is given them.
func permissions(all []command) string {
	var names []string
	for _, c := range all {
		names = append(names, "+"+c.name)
	}
	return strings.Join(names, " ")
}

const (
	letHave = "let the user have "
	ownKeys = "all keys that begin with the prefix: ~stint:*"
)

// needs says what a user must be given.
func needs() string {
	return permissions(commands) + "; with a /database " + permissions(inDatabase) + "; in a cluster " +
		permissions(inCluster) + "; and " + ownKeys
}

// What servers say about a command that a user may not run, or that they do not
// have.
var (
	refused = regexp.MustCompile(`permissions? to run the '([^']+)' command`)
	unknown = regexp.MustCompile(`unknown command`)
)

// judgeCommands notes the commands that servers refuse. Users are each server's
// own: they are not replicated. What else may be wrong, using the server tells;
// a node of a cluster refuses before it says who has the key.
func (r *Report) judgeCommands(ctx context.Context, client redis.UniversalClient, prefix string) {
	nodes := nodesOf(ctx, client)
	for i := range r.Nodes {
		n := &r.Nodes[i]
		all := commands
		if _, cluster := client.(*redis.ClusterClient); cluster || n.Mode == "cluster" {
			all = append(slices.Clone(inCluster), commands...)
		}
		if node := nodes[n.Address]; node != nil {
			r.tryCommands(ctx, node, r.at(n), prefix+":commands", all)
		}
	}
}

// tryCommands notes those that one server refuses.
func (r *Report) tryCommands(ctx context.Context, node *redis.Client, at, key string, all []command) {
	var forbidden, missing []command
	for _, c := range all {
		words := make([]any, len(c.try))
		for i, word := range c.try {
			if words[i] = word; word == "KEY" {
				words[i] = key
			}
		}
		err := node.Do(ctx, words...).Err()
		var said redis.Error
		ok := errors.As(err, &said) && !errors.Is(err, redis.Nil)
		if err != nil && !ok && !errors.Is(err, redis.Nil) {
			break // the node does not answer
		}
		switch {
		case !ok:
		case refused.MatchString(said.Error()):
			forbidden = append(forbidden, c)
		case unknown.MatchString(said.Error()):
			missing = append(missing, c)
		}
	}
	if len(forbidden) > 0 {
		r.Problems = append(r.Problems, Finding{at + "the user may not run all that is needed", letHave + permissions(forbidden)})
	}
	if len(missing) > 0 {
		r.Problems = append(r.Problems, Finding{at + "the server lacks commands that are needed", "it has no " + strings.ReplaceAll(permissions(missing), "+", "")})
	}
}

// hintForRefusal says what a user needs, of whom a server said that it may not.
func hintForRefusal(text string) string {
	switch said := refused.FindStringSubmatch(text); {
	case said != nil:
		return letHave + "+" + said[1]
	case strings.Contains(text, "key"): // "… to access one of the keys used as arguments"
		return letHave + ownKeys
	}
	return letHave + needs()
}
