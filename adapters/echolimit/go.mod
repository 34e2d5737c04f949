module github.com/stint-dev/stint/adapters/echolimit

go 1.26.0

require (
	github.com/labstack/echo/v5 v5.3.1
	github.com/stint-dev/stint v0.1.0
)

require golang.org/x/time v0.15.0 // indirect
