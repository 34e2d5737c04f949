module github.com/stint-dev/stint/cmd

go 1.26

require (
	github.com/alecthomas/kong v1.17.0
	github.com/stint-dev/stint v0.1.0
	go.uber.org/goleak v1.3.0
)
