module github.com/stint-dev/stint/adapters/routers

go 1.26.0

require (
	github.com/danielgtaylor/huma/v2 v2.37.2
	github.com/go-chi/chi/v5 v5.5.0
	github.com/gorilla/mux v1.8.1
	github.com/stint-dev/stint v0.1.0
)
