module github.com/stint-dev/stint/redisstore

go 1.25.0

require (
	github.com/redis/rueidis v1.0.79
	github.com/stint-dev/stint v0.1.0
	go.uber.org/goleak v1.3.0
)

require golang.org/x/sys v0.47.0 // indirect
