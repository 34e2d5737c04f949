package rulesredis

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesource"
)

// mostError bounds the error that a node reports, in bytes.
const mostError = 4000

// A row is what a node reports of itself.
type row struct {
	Version rulesource.Version `json:"version"`
	Hash    string             `json:"hash"`
	Since   time.Time          `json:"since"`
	Error   string             `json:"error"`
	Beat    string             `json:"beat"` // a different text in each report
}

// Report writes a node's row. The worker copies it to the database.
func (s *Server) Report(ctx context.Context, n rulesdb.Node) error {
	text, err := json.Marshal(row{n.Version, n.Hash, n.Since, n.Error[:min(len(n.Error), mostError)], rand.Text()})
	if err != nil {
		return err
	}
	return s.ask(ctx, func(ctx context.Context, client redis.UniversalClient) error {
		return client.HSet(ctx, s.key("nodes"), n.Name, string(text)).Err()
	})
}

// Nodes returns the rows of nodes, and for each a beat: a text that changes whenever the node
// writes.
func (s *Server) Nodes(ctx context.Context) (nodes []rulesdb.Node, beats []string, err error) {
	var all map[string]string
	err = s.ask(ctx, func(ctx context.Context, client redis.UniversalClient) (err error) {
		all, err = client.HGetAll(ctx, s.key("nodes")).Result()
		return err
	})
	for name, text := range all {
		var r row
		if json.Unmarshal([]byte(text), &r) == nil { // other programs may have written other text
			nodes = append(nodes, rulesdb.Node{Name: name, Version: r.Version, Hash: r.Hash, Since: r.Since, Error: r.Error})
			beats = append(beats, r.Beat)
		}
	}
	return nodes, beats, err
}

// Forget removes the row of a node that is gone.
func (s *Server) Forget(ctx context.Context, name string) error {
	return s.ask(ctx, func(ctx context.Context, client redis.UniversalClient) error {
		return client.HDel(ctx, s.key("nodes"), name).Err()
	})
}
