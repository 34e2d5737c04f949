package redisstore

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"
)

// LogTo makes go-redis log to a logger, or nowhere if that is nil. go-redis logs, for example,
// connections that it could not make; the errors of calls say the same. Until a program calls
// LogTo or [redis.SetLogger], go-redis writes to stderr. Both apply to all uses of go-redis
// in the process, so no store calls them.
func LogTo(logger *slog.Logger) { redis.SetLogger(lines{logger}) }

type lines struct{ to *slog.Logger }

// Printf implements the logger of go-redis.
func (l lines) Printf(ctx context.Context, format string, v ...any) {
	if l.to != nil {
		l.to.InfoContext(ctx, fmt.Sprintf(format, v...))
	}
}
