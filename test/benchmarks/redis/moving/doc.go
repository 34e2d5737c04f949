// Package moving holds the programs of docs/MOVING.md that need Redis: how a
// limit is written with go-redis/redis_rate, and how with stint.
package moving
