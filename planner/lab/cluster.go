package lab

import (
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/redisstore"

	"github.com/stint-dev/stint/planner/nodes"
)

// open starts the processes that hold a limit together.
func (s *Shared) open(l stint.Limit) (cluster, error) {
	mode, err := redisstore.ParseMode(s.Mode)
	if err != nil {
		return nil, err
	}
	return nodes.NewCluster(l, nodes.Options{Count: s.Nodes, Mode: mode, AwayFrom: s.AwayFrom, AwayTo: s.AwayTo, Skew: time.Duration(s.Skew)})
}
