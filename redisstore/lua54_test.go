package redisstore_test

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// A recorder is a driver that keeps what was asked and answered.
type recorder struct {
	redisstore.Driver
	lua  strings.Builder
	want []string
}

func (r *recorder) EvalSHA(ctx context.Context, sha string, keys, args []string) (any, error) {
	reply, err := r.Driver.EvalSHA(ctx, sha, keys, args)
	if err == nil {
		quote := func(list []string) string {
			out := make([]string, len(list))
			for i, s := range list {
				out[i] = strconv.Quote(s)
			}
			return "{" + strings.Join(out, ",") + "}"
		}
		fmt.Fprintf(&r.lua, "try(%s, %s, %q)\n", quote(keys), quote(args[:len(args)-1]), args[len(args)-1])
		r.want = append(r.want, flat(reply))
	}
	return reply, err
}

func flat(reply any) string {
	if list, ok := reply.([]any); ok {
		out := make([]string, len(list))
		for i, v := range list {
			out[i] = flat(v)
		}
		return strings.Join(out, " ")
	}
	return fmt.Sprint(reply)
}

// stub stands for a server whose scripts are of Lua 5.4, as those of Dragonfly and
// Garnet are: it knows the commands that takes need, wants whole numbers where a
// server does, and tells the time that a call has in the test.
const stub = `
unpack = table.unpack
struct = { pack = string.pack, unpack = string.unpack }
local file = io.open(arg[1]); local script = assert(load(file:read('a'))); file:close()
local data, now = {}, '0'
local commands = {
  TIME = function() return { now:sub(1, -7), now:sub(-6) } end,
  GET = function(key) return data[key] or false end,
  HGET = function() return false end, -- nothing is reserved
  GETRANGE = function(key, from, to) return (data[key] or ''):sub(from + 1, to + 1) end,
  DEL = function(key) data[key] = nil return 1 end,
  SET = function(key, value, px, ms)
    if px and not (type(ms) == 'string' and ms:match('^%d+$') or math.type(ms) == 'integer') then error('PX ' .. tostring(ms)) end
    data[key] = value
    return 'OK'
  end,
}
redis = { call = function(name, ...) return commands[name](...) end, error_reply = error }
redis.pcall = redis.call
local function show(v)
  if type(v) == 'number' then return string.format('%.0f', v) end
  if type(v) ~= 'table' then return tostring(v) end
  local out = {}
  for i = 1, #v do out[i] = show(v[i]) end
  return table.concat(out, ' ')
end
function try(keys, args, at)
  now, KEYS, ARGV = at, keys, args
  print(show(script()))
end
`

// TestLua54 runs what a server has run under Lua 5.4 too, which has whole numbers
// apart from fractions: the answers are the same.
func TestLua54(t *testing.T) {
	program := need.Program(t, "lua5.4")
	now := int64(1_750_000_000_123_456_000)
	c := client(t, redistest.Start(t).Addr)
	do(t, c, "SCRIPT", "LOAD", redisstore.Source)
	r := &recorder{Driver: redisstore.NewDriver(c)}
	store := open(t, "", redisstore.Options{Driver: r, Now: func() int64 { return now }})
	for i, text := range texts {
		limit := bind(t, store, text)
		layers := []stint.Layer{{Bound: limit, Key: fmt.Sprint("a", i)}}
		for step := range 12 {
			take(t, limit, layers[0].Key, 1+int64(step%3))
			now += int64(step) * int64(time.Millisecond) * 77
			if _, err := store.Decide(ctx, meter.OpTakeUpTo, layers, 2); err != nil {
				t.Fatal(err)
			}
			if _, err := limit.Decide(ctx, meter.OpPeek, layers[0].Key, 3); err != nil {
				t.Fatal(err)
			}
			if _, err := store.Refund(ctx, layers, 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	dir := t.TempDir()
	source, main := filepath.Join(dir, "source.lua"), filepath.Join(dir, "main.lua")
	disk.Write(t, source, redisstore.Source)
	disk.Write(t, main, stub+r.lua.String())
	out, err := exec.Command(program, main, source).CombinedOutput()
	got := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	for i := range min(len(got), len(r.want)) {
		if got[i] != r.want[i] {
			t.Fatalf("call %d under Lua 5.4: %q, want %q\n%s", i, got[i], r.want[i], strings.Split(r.lua.String(), "\n")[i])
		}
	}
	if err != nil || len(got) != len(r.want) {
		t.Fatalf("%d of %d calls: %v", len(got), len(r.want), err)
	}
}

// TestOperations has each letter for what a call asks for in one file of the script: the
// first would answer for all.
func TestOperations(t *testing.T) {
	files, err := filepath.Glob("lua/*.lua")
	if err != nil || len(files) == 0 {
		t.Fatalf("no script: %v", err)
	}
	of := map[string]string{}
	for _, file := range files {
		text := disk.Read(t, file)
		for _, found := range regexp.MustCompile(`(?m)^if ARGV\[1\] == '(.)' then`).FindAllStringSubmatch(string(text), -1) {
			if other := of[found[1]]; other != "" {
				t.Errorf("%s and %s both answer %s", other, file, found[1])
			}
			of[found[1]] = file
		}
	}
	if of["F"] == "" || of["I"] == "" {
		t.Errorf("found %v", of)
	}
}
