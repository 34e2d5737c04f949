module github.com/stint-dev/stint/proof

go 1.25.0

require (
	github.com/dunglas/httpsfv v1.1.2
	github.com/stint-dev/stint v0.1.0
	github.com/stint-dev/stint/redisstore v0.1.0
	pgregory.net/rapid v1.2.0
)

require (
	github.com/redis/rueidis v1.0.79 // indirect
	golang.org/x/sys v0.47.0 // indirect
)
