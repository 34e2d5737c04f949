// Package graph is a server that gqlgen has generated from schema.graphqls.
package graph

//go:generate go run github.com/99designs/gqlgen@v0.17.85 generate --config gqlgen.yml
