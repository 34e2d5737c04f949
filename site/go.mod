module github.com/stint-dev/stint/site

go 1.26.0

require (
	github.com/stint-dev/stint v0.1.0
	github.com/yuin/goldmark v1.8.7
)
