// Command wasm is the simulator of the lab for a browser, without a server: what
// POST /v1/simulate and GET /v1/lab answer, by the same code. The page of the site
// runs it in a worker.
//
//	GOOS=js GOARCH=wasm go build -o lab.wasm ./internal/planner/lab/wasm
package main

import (
	"context"
	"encoding/json"
	"syscall/js"
	_ "time/tzdata" // a browser has no zone database that Go reads

	"github.com/stint-dev/stint/cmd/internal/planner/lab"
)

// main gives the page two functions, choices() and simulate(body), which return
// JSON as text, and stays for their calls.
func main() {
	js.Global().Set("stint", map[string]any{
		"choices":  js.FuncOf(func(js.Value, []js.Value) any { return text(lab.Choose(), nil) }),
		"simulate": js.FuncOf(func(_ js.Value, args []js.Value) any { return simulate(args) }),
	})
	js.Global().Call("stintReady")
	select {}
}

func simulate(args []js.Value) any {
	body := []byte(args[0].String())
	answer, err := lab.SimulateJSON(context.Background(), body)
	return text(answer, err)
}

// text returns what is answered: an error as the server says it.
func text(answer any, err error) string {
	if err != nil {
		answer = struct {
			Error string `json:"error"`
		}{err.Error()}
	}
	said, err := json.Marshal(answer)
	if err != nil {
		panic(err) // answers are values of our own
	}
	return string(said)
}
