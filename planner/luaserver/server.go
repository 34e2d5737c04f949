// Package luaserver decides by redisstore's script without a Redis: a Lua
// interpreter in the process, and the few commands that the script calls. It is
// for simulations on a virtual clock, through the code that asks a Redis.
//
// It has one clock, that of redisstore.Options.Now: it knows no time of its
// own and keeps every key. Its tests hold it to the store in memory and to a
// real server.
package luaserver

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"

	lua "github.com/yuin/gopher-lua"

	"github.com/stint-dev/stint/redisstore"
)

// A Server implements [redisstore.Driver]. It may be used from many goroutines
// at once, and runs one script at a time, in some ten to a hundred microseconds.
type Server struct {
	mu      sync.Mutex // guards what follows
	lua     *lua.LState
	scripts map[string]*lua.LFunction // by the SHA-1 of their text
	asked   map[string]bool           // for which by that name, before it was there
	keys    map[string]value
	calls   int64
}

var _ redisstore.Driver = (*Server)(nil)

// New returns a server without keys.
func New() *Server {
	s := &Server{
		lua:     lua.NewState(lua.Options{SkipOpenLibs: true}),
		scripts: make(map[string]*lua.LFunction),
		asked:   make(map[string]bool),
		keys:    make(map[string]value),
	}
	for _, open := range []lua.LGFunction{lua.OpenBase, lua.OpenTable, lua.OpenString, lua.OpenMath} {
		s.lua.Push(s.lua.NewFunction(open))
		s.lua.Call(0, 0)
	}
	s.library("redis", map[string]lua.LGFunction{"call": s.call, "pcall": s.pcall, "error_reply": errorReply})
	s.library("struct", map[string]lua.LGFunction{"pack": structPack, "unpack": structUnpack})
	s.library("cmsgpack", map[string]lua.LGFunction{"pack": listPack, "unpack": listUnpack})
	mendNumbers(s.lua)
	return s
}

func (s *Server) library(name string, functions map[string]lua.LGFunction) {
	s.lua.SetGlobal(name, s.lua.SetFuncs(s.lua.NewTable(), functions))
}

// EvalSHA implements [redisstore.Driver].
func (s *Server) EvalSHA(_ context.Context, sha string, keys, args []string) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	script := s.scripts[sha]
	if script == nil {
		s.asked[sha] = true
		return nil, redisstore.ReplyError("NOSCRIPT No matching script.")
	}
	s.calls++
	return s.run(script, keys, args)
}

// Eval implements [redisstore.Driver].
func (s *Server) Eval(_ context.Context, text string, keys, args []string) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	script, err := s.lua.LoadString(text)
	if err != nil {
		return nil, redisstore.ReplyError("ERR " + err.Error())
	}
	sum := sha1.Sum([]byte(text))
	sha := hex.EncodeToString(sum[:])
	s.scripts[sha] = script
	if s.asked[sha] { // other scripts run beside the requests
		s.calls++
	}
	return s.run(script, keys, args)
}

// Cluster implements [redisstore.Driver].
func (s *Server) Cluster() bool { return false }

// Close implements [redisstore.Driver].
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lua.Close()
}

// Calls returns how many scripts have been run for requests: with a Redis, each would
// have been a round trip.
func (s *Server) Calls() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

func (s *Server) run(script *lua.LFunction, keys, args []string) (any, error) {
	s.lua.SetGlobal("KEYS", s.list(keys))
	s.lua.SetGlobal("ARGV", s.list(args))
	s.lua.Push(script)
	if err := s.lua.PCall(0, 1, nil); err != nil {
		if raised, ok := errors.AsType[*lua.ApiError](err); ok {
			if t, ok := raised.Object.(*lua.LTable); ok { // by redis.call
				return reply(t)
			}
		}
		return nil, redisstore.ReplyError("ERR " + strings.ReplaceAll(err.Error(), "\n", " "))
	}
	v := s.lua.Get(-1)
	s.lua.Pop(1)
	return reply(v)
}

func (s *Server) list(words []string) *lua.LTable {
	t := s.lua.CreateTable(len(words), 0)
	for _, w := range words {
		t.Append(lua.LString(w))
	}
	return t
}

// reply returns what a client gets for a script's value: of numbers the whole
// part, of tables what comes before the first nil.
func reply(v lua.LValue) (any, error) {
	switch v := v.(type) {
	case lua.LNumber:
		return int64(v), nil
	case lua.LString:
		return string(v), nil
	case lua.LBool:
		if v {
			return int64(1), nil
		}
		return nil, nil
	case *lua.LNilType:
		return nil, nil
	case *lua.LTable:
		if err, ok := v.RawGetString("err").(lua.LString); ok {
			return nil, redisstore.ReplyError(err)
		}
		all := []any{}
		for i := 1; v.RawGetInt(i) != lua.LNil; i++ {
			one, err := reply(v.RawGetInt(i))
			if err != nil {
				return nil, err
			}
			all = append(all, one)
		}
		return all, nil
	}
	return nil, fmt.Errorf("luaserver: a script returned a %v", v.Type())
}

// Each calls do with every key and what it holds: of a hash, its fields and their
// values one behind the other.
func (s *Server) Each(do func(key, text string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, v := range s.keys {
		text := v.text
		for field, value := range v.hash {
			text += field + value
		}
		do(key, text)
	}
}
