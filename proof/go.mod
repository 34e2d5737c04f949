module github.com/stint-dev/stint/proof

go 1.25

require (
	github.com/dunglas/httpsfv v1.1.2
	github.com/stint-dev/stint v0.1.0
	github.com/stint-dev/stint/redisstore v0.1.0
	go.uber.org/goleak v1.3.0
	pgregory.net/rapid v1.2.0
)
