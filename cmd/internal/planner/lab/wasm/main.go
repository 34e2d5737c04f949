//go:build !js

// Command wasm is for browsers alone: see main_js.go.
package main

func main() {
	panic("build it with GOOS=js GOARCH=wasm")
}
