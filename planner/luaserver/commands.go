package luaserver

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// A value is what a key holds: text or, if there is one, a hash, which is never
// empty.
type value struct {
	text string
	hash map[string]string
}

// A command is one of Redis', as a script sees it. Those that make a key expire
// are not among them: on a virtual clock none does.
type command struct {
	least, most int // arguments
	do          func(s *Server, args []string) (lua.LValue, error)
}

const many = 1 << 20

var commands = map[string]command{
	"GET":      {1, 1, (*Server).get},
	"SET":      {2, 2, (*Server).set},
	"STRLEN":   {1, 1, (*Server).strlen},
	"APPEND":   {2, 2, (*Server).append},
	"GETRANGE": {3, 3, (*Server).getRange},
	"SETRANGE": {3, 3, (*Server).setRange},
	"HGET":     {2, 2, (*Server).hget},
	"HMGET":    {2, many, (*Server).hmget},
	"HSET":     {3, many, (*Server).hset},
	"HDEL":     {2, many, (*Server).hdel},
	"HGETALL":  {1, 1, (*Server).hgetall},
	"HINCRBY":  {3, 3, (*Server).hincrby},
	"DEL":      {1, many, (*Server).del},
	"EXISTS":   {1, many, (*Server).exists},
	"COPY":     {2, 3, (*Server).copy},
}

var (
	errType    = errors.New("WRONGTYPE Operation against a key holding the wrong kind of value")
	errInteger = errors.New("ERR value is not an integer or out of range")
)

// call is redis.call: what fails ends the script.
func (s *Server) call(l *lua.LState) int {
	v, err := s.command(l)
	if err != nil {
		l.Error(failure(l, err.Error()), 0)
	}
	l.Push(v)
	return 1
}

// pcall is redis.pcall: what fails is a value.
func (s *Server) pcall(l *lua.LState) int {
	v, err := s.command(l)
	if err != nil {
		v = failure(l, err.Error())
	}
	l.Push(v)
	return 1
}

func errorReply(l *lua.LState) int {
	l.Push(failure(l, strings.TrimPrefix(l.CheckString(1), "-")))
	return 1
}

// failure returns an error as scripts have it.
func failure(l *lua.LState, text string) *lua.LTable {
	t := l.NewTable()
	t.RawSetString("err", lua.LString(text))
	return t
}

func (s *Server) command(l *lua.LState) (lua.LValue, error) {
	args := make([]string, l.GetTop())
	for i := range args {
		switch v := l.Get(i + 1).(type) {
		case lua.LString:
			args[i] = string(v)
		case lua.LNumber:
			args[i] = strconv.FormatFloat(float64(v), 'g', 17, 64)
		default:
			return nil, errors.New("ERR Lua redis lib command arguments must be strings or integers")
		}
	}
	if len(args) == 0 {
		return nil, errors.New("ERR Please specify at least one argument for this redis.call() call")
	}
	c, known := commands[strings.ToUpper(args[0])]
	switch n := len(args) - 1; {
	case !known:
		return nil, fmt.Errorf("ERR luaserver: %q is no command of this server: planner/luaserver/commands.go has them", args[0])
	case n < c.least || n > c.most:
		return nil, fmt.Errorf("ERR luaserver: wrong number of arguments for '%s' command", strings.ToLower(args[0]))
	}
	return c.do(s, args[1:])
}

// textOf returns the text at a key: "" where there is none.
func (s *Server) textOf(key string) (text string, there bool, err error) {
	v, there := s.keys[key]
	if v.hash != nil {
		err = errType
	}
	return v.text, there, err
}

// hashOf returns the hash at a key: nil where there is none.
func (s *Server) hashOf(key string) (map[string]string, error) {
	v, there := s.keys[key]
	if there && v.hash == nil {
		return nil, errType
	}
	return v.hash, nil
}

func (s *Server) get(args []string) (lua.LValue, error) {
	text, there, err := s.textOf(args[0])
	if !there {
		return lua.LFalse, err
	}
	return lua.LString(text), err
}

func (s *Server) set(args []string) (lua.LValue, error) {
	s.keys[args[0]] = value{text: args[1]}
	ok := s.lua.NewTable()
	ok.RawSetString("ok", lua.LString("OK"))
	return ok, nil
}

func (s *Server) strlen(args []string) (lua.LValue, error) {
	text, _, err := s.textOf(args[0])
	return lua.LNumber(len(text)), err
}

func (s *Server) append(args []string) (lua.LValue, error) {
	text, _, err := s.textOf(args[0])
	if err != nil {
		return nil, err
	}
	s.keys[args[0]] = value{text: text + args[1]}
	return lua.LNumber(len(text) + len(args[1])), nil
}

// getRange counts from the end what is below zero.
func (s *Server) getRange(args []string) (lua.LValue, error) {
	first, err1 := strconv.Atoi(args[1])
	last, err2 := strconv.Atoi(args[2])
	if err1 != nil || err2 != nil {
		return nil, errInteger
	}
	text, _, err := s.textOf(args[0])
	n := len(text)
	if first < 0 && last < 0 && first > last {
		return lua.LString(""), err
	}
	if first < 0 {
		first = max(first+n, 0)
	}
	if last < 0 {
		last = max(last+n, 0)
	}
	last = min(last, n-1)
	if first > last {
		return lua.LString(""), err
	}
	return lua.LString(text[first : last+1]), err
}

// setRange fills a gap with zero bytes.
func (s *Server) setRange(args []string) (lua.LValue, error) {
	at, err := strconv.Atoi(args[1])
	if err != nil {
		return nil, errInteger
	}
	if at < 0 || at > 512<<20-len(args[2]) {
		return nil, errors.New("ERR offset is out of range")
	}
	text, _, err := s.textOf(args[0])
	if err != nil || args[2] == "" {
		return lua.LNumber(len(text)), err
	}
	b := make([]byte, max(len(text), at+len(args[2])))
	copy(b, text)
	copy(b[at:], args[2])
	s.keys[args[0]] = value{text: string(b)}
	return lua.LNumber(len(b)), nil
}

func (s *Server) hget(args []string) (lua.LValue, error) {
	hash, err := s.hashOf(args[0])
	if text, there := hash[args[1]]; there {
		return lua.LString(text), err
	}
	return lua.LFalse, err
}

func (s *Server) hmget(args []string) (lua.LValue, error) {
	hash, err := s.hashOf(args[0])
	t := s.lua.CreateTable(len(args)-1, 0)
	for i, field := range args[1:] {
		if text, there := hash[field]; there {
			t.RawSetInt(i+1, lua.LString(text))
		} else {
			t.RawSetInt(i+1, lua.LFalse)
		}
	}
	return t, err
}

func (s *Server) hset(args []string) (lua.LValue, error) {
	hash, err := s.hashOf(args[0])
	switch {
	case len(args)%2 == 0:
		return nil, errors.New("ERR wrong number of arguments for 'hset' command")
	case err != nil:
		return nil, err
	case hash == nil:
		hash = make(map[string]string)
		s.keys[args[0]] = value{hash: hash}
	}
	before := len(hash)
	for pair := range slices.Chunk(args[1:], 2) {
		hash[pair[0]] = pair[1]
	}
	return lua.LNumber(len(hash) - before), nil
}

func (s *Server) hdel(args []string) (lua.LValue, error) {
	hash, err := s.hashOf(args[0])
	before := len(hash)
	for _, field := range args[1:] {
		delete(hash, field)
	}
	if hash != nil && len(hash) == 0 {
		delete(s.keys, args[0])
	}
	return lua.LNumber(before - len(hash)), err
}

// hgetall answers in the order of the fields: with a Redis there is none.
func (s *Server) hgetall(args []string) (lua.LValue, error) {
	hash, err := s.hashOf(args[0])
	t := s.lua.CreateTable(2*len(hash), 0)
	for _, field := range slices.Sorted(maps.Keys(hash)) {
		t.Append(lua.LString(field))
		t.Append(lua.LString(hash[field]))
	}
	return t, err
}

func (s *Server) hincrby(args []string) (lua.LValue, error) {
	by, err := strconv.ParseInt(args[2], 10, 64)
	if err != nil {
		return nil, errInteger
	}
	hash, err := s.hashOf(args[0])
	if err != nil {
		return nil, err
	}
	was := int64(0)
	if text, there := hash[args[1]]; there {
		if was, err = strconv.ParseInt(text, 10, 64); err != nil {
			return nil, errors.New("ERR hash value is not an integer")
		}
	}
	sum := was + by
	if (sum < was) != (by < 0) {
		return nil, errors.New("ERR increment or decrement would overflow")
	}
	_, err = s.hset([]string{args[0], args[1], strconv.FormatInt(sum, 10)})
	return lua.LNumber(sum), err
}

func (s *Server) del(args []string) (lua.LValue, error) {
	before := len(s.keys)
	for _, key := range args {
		delete(s.keys, key)
	}
	return lua.LNumber(before - len(s.keys)), nil
}

func (s *Server) exists(args []string) (lua.LValue, error) {
	n := 0
	for _, key := range args {
		if _, there := s.keys[key]; there {
			n++
		}
	}
	return lua.LNumber(n), nil
}

func (s *Server) copy(args []string) (lua.LValue, error) {
	if len(args) == 3 && !strings.EqualFold(args[2], "REPLACE") {
		return nil, errors.New("ERR syntax error")
	}
	v, there := s.keys[args[0]]
	if _, taken := s.keys[args[1]]; !there || taken && len(args) == 2 {
		return lua.LNumber(0), nil
	}
	s.keys[args[1]] = value{v.text, maps.Clone(v.hash)}
	return lua.LNumber(1), nil
}
