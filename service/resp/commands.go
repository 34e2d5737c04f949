package resp

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/stint-dev/stint/service/observe"
)

// A command is a command that clients may send: its number of arguments with the name (at least,
// when negative), and whether it needs a token where tokens are required.
type command struct {
	args int
	open bool
	do   func(*conn, [][]byte)
}

var commands map[string]command

func init() { // set here because COMMAND, an entry, lists the table
	commands = map[string]command{
		"ping": {-1, false, (*conn).ping}, "echo": {2, false, (*conn).echo},
		"hello": {-1, true, (*conn).hello}, "auth": {-2, true, (*conn).auth},
		"quit": {-1, true, (*conn).leave}, "reset": {1, true, (*conn).reset},
		"select": {2, false, (*conn).choose}, "client": {-2, false, (*conn).client},
		"command": {-1, false, (*conn).list}, "info": {-1, false, (*conn).info},
		"config":        {-2, false, (*conn).config},
		"cl.throttle":   {-5, false, (*conn).clThrottle},
		"stint.check":   {-3, false, (*conn).check},
		"stint.peek":    {-3, false, (*conn).peek},
		"stint.reserve": {-3, false, (*conn).reserve},
		"stint.settle":  {-3, false, (*conn).settle},
	}
}

// do answers one command.
func (c *conn) do(args [][]byte) {
	var low [16]byte
	name := args[0]
	if len(name) > len(low) {
		c.unknown(name)
		return
	}
	for i, b := range name {
		if b >= 'A' && b <= 'Z' {
			b += 'a' - 'A'
		}
		low[i] = b
	}
	cmd, ok := commands[string(low[:len(name)])]
	switch {
	case string(low[:len(name)]) == "post", string(low[:len(name)]) == "host:":
		// A page in a browser can make the browser send HTTP to any address, with commands in the
		// body. So nothing more is read.
		c.out.fail("ERR", "this is no HTTP server")
		c.quit = true
	case !ok:
		c.unknown(name)
	case !cmd.open && !c.admitted:
		c.out.fail("NOAUTH", "Authentication required.")
	case cmd.args >= 0 && len(args) != cmd.args, len(args) < -cmd.args:
		c.out.fail("ERR", fmt.Sprintf("wrong number of arguments for '%s' command", low[:len(name)]))
	default:
		cmd.do(c, args)
	}
}

func (c *conn) ping(args [][]byte) {
	switch len(args) {
	case 1:
		c.out.status("PONG")
	case 2:
		c.out.text(string(args[1]))
	default:
		c.out.fail("ERR", "wrong number of arguments for 'ping' command")
	}
}

func (c *conn) echo(args [][]byte) { c.out.text(string(args[1])) }

func (c *conn) leave([][]byte) {
	c.out.status("OK")
	c.quit = true
}

// reset restores the initial state of the connection.
func (c *conn) reset([][]byte) {
	c.out.three, c.name = false, ""
	if c.server.o.Admit != nil {
		c.expel()
	}
	c.out.status("RESET")
}

func (c *conn) choose(args [][]byte) {
	if string(args[1]) != "0" {
		c.out.fail("ERR", "DB index is out of range: there is 0 alone")
		return
	}
	c.out.status("OK")
}

// auth takes AUTH token, or AUTH user token; the user does not matter.
func (c *conn) auth(args [][]byte) {
	switch {
	case len(args) > 3:
		c.out.fail("ERR", "wrong number of arguments for 'auth' command")
	case c.server.o.Admit == nil:
		c.out.fail("ERR", "AUTH called without any token configured: everybody may ask")
	case c.authenticate(args[len(args)-1]):
		c.out.status("OK")
	}
}

// authenticate accepts a token, or answers that it is wrong.
func (c *conn) authenticate(token []byte) bool {
	o := &c.server.o
	if o.Admit != nil && !o.Admit(string(token)) {
		c.expel()
		o.Observer.WrongToken(observe.RESP, c.net.RemoteAddr().String())
		c.out.fail("WRONGPASS", "invalid token")
		return false
	}
	c.admitted = true
	return true
}

// hello is HELLO [2|3 [AUTH user token] [SETNAME name]].
func (c *conn) hello(args [][]byte) {
	three, name := c.out.three, c.name
	if len(args) > 1 {
		switch string(args[1]) {
		case "2":
			three = false
		case "3":
			three = true
		default:
			c.out.fail("NOPROTO", "unsupported protocol version: 2 or 3")
			return
		}
	}
	for rest := args[min(2, len(args)):]; len(rest) > 0; {
		switch word := strings.ToLower(string(rest[0])); {
		case word == "auth" && len(rest) >= 3:
			if !c.authenticate(rest[2]) {
				return
			}
			rest = rest[3:]
		case word == "setname" && len(rest) >= 2:
			name, rest = string(rest[1]), rest[2:]
		default:
			c.out.fail("ERR", "syntax error in HELLO: [2|3 [AUTH user token] [SETNAME name]]")
			return
		}
	}
	if !c.admitted {
		c.out.fail("NOAUTH", "HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <token> option can be used")
		return
	}
	c.out.three, c.name = three, name
	c.out.fields(7)
	c.out.text("server")
	c.out.text("stint")
	c.out.text("version")
	c.out.text(c.server.o.Version)
	c.out.text("proto")
	if three {
		c.out.integer(3)
	} else {
		c.out.integer(2)
	}
	c.out.text("id")
	c.out.integer(c.id)
	c.out.text("mode")
	c.out.text("standalone")
	c.out.text("role")
	c.out.text("master")
	c.out.text("modules")
	c.out.array(0)
}

// client answers the CLIENT commands that libraries send when they connect.
func (c *conn) client(args [][]byte) {
	switch word := strings.ToLower(string(args[1])); {
	case word == "id" && len(args) == 2:
		c.out.integer(c.id)
	case word == "getname" && len(args) == 2 && c.name == "":
		c.out.null()
	case word == "getname" && len(args) == 2:
		c.out.text(c.name)
	case word == "setname" && len(args) == 3:
		c.name = string(args[2])
		c.out.status("OK")
	case word == "setinfo" && len(args) == 4, word == "no-evict" && len(args) == 3, word == "no-touch" && len(args) == 3:
		c.out.status("OK")
	default:
		c.out.fail("ERR", "CLIENT has ID, GETNAME, SETNAME, SETINFO, NO-EVICT and NO-TOUCH here")
	}
}

// list is COMMAND [COUNT|DOCS|LIST …]. No command has keys as a cluster understands them.
func (c *conn) list(args [][]byte) {
	sub := ""
	if len(args) > 1 {
		sub = strings.ToLower(string(args[1]))
	}
	switch sub {
	case "count":
		c.out.integer(int64(len(commands)))
	case "docs":
		c.out.fields(0)
	case "", "info":
		c.out.array(len(commands))
		for name, cmd := range commands {
			c.out.array(6)
			c.out.text(name)
			c.out.integer(int64(cmd.args))
			c.out.array(1)
			c.out.status("fast")
			c.out.integer(0)
			c.out.integer(0)
			c.out.integer(0)
		}
	case "list":
		c.out.array(len(commands))
		for name := range commands {
			c.out.text(name)
		}
	default:
		c.out.fail("ERR", "COMMAND has COUNT, DOCS, INFO and LIST here")
	}
}

func (c *conn) info([][]byte) {
	c.out.text("# Server\r\nserver_name:stint\r\nstint_version:" + c.server.o.Version +
		"\r\n# Clients\r\nconnected_clients:" + strconv.Itoa(c.server.Conns()) +
		"\r\nmaxclients:" + strconv.Itoa(c.server.o.MaxConns) + "\r\n")
}

// config answers CONFIG GET with an empty list: redis-benchmark asks before it runs.
func (c *conn) config(args [][]byte) {
	if !strings.EqualFold(string(args[1]), "get") {
		c.out.fail("ERR", "CONFIG has GET here, which knows of nothing")
		return
	}
	c.out.fields(0)
}
