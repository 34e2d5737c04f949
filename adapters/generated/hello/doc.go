// Package hello is a server that ogen has generated from openapi.yaml.
package hello

//go:generate go run github.com/ogen-go/ogen/cmd/ogen@v1.16.0 --target . --package hello --config ogen.yml openapi.yaml
