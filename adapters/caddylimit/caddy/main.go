// Command caddy is Caddy with its standard modules and http.handlers.stint.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/stint-dev/stint/adapters/caddylimit"
)

func main() { caddycmd.Main() }
