package stint_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// What may import what: docs/DESIGN.md draws it, this test checks it. Each file of the
// root module is listed here with what it may import and why, each directory with the
// directories below it that it may import.

const module = "github.com/stint-dev/stint"

// A fileRule is what one file may use beyond the standard library's pure parts
// (pureImports), and why. What it may is a list of import paths ("./" for those
// of this module, one path to a word), of functions
// that read a clock, start a timer or touch the machine (see powers), and "go"
// for starting goroutines. A file that no longer needs what it may fails too.
type fileRule struct {
	may string
	why string
}

const pureMath = "arithmetic over words and an argument for time: the same answer from the same arguments, always"

var fileRules = map[string]fileRule{
	// The limits: pure.
	"doc.go":      {"", "says what the package is"},
	"limit.go":    {"./internal/wording ./meter", "a limit is a value, and so is what it is known by; making one asks nobody"},
	"parse.go":    {"./internal/wording ./meter", "text to value and back"},
	"duration.go": {"", "exact durations: text to value"},
	"decision.go": {"./meter", "answers are values"},

	// The arithmetic: pure.
	"meter/doc.go":                {"", "says what the package is"},
	"meter/spec.go":               {"", "the parameters of a limit are a value, its algorithm one of them"},
	"meter/op.go":                 {"", "names of operations"},
	"meter/answer.go":             {"", "answers are values"},
	"meter/gcra.go":               {"./internal/satmath ./internal/uint128", pureMath + "; the queue's arithmetic is here too"},
	"meter/interval.go":           {"./internal/satmath ./internal/uint128", pureMath},
	"meter/window.go":             {"./internal/satmath", pureMath},
	"meter/counter.go":            {"./internal/satmath ./internal/uint128", pureMath},
	"meter/subwindow.go":          {"./internal/satmath ./internal/uint128", pureMath},
	"meter/log.go":                {"./internal/satmath", pureMath},
	"meter/meter.go":              {"./internal/satmath ./internal/uint128", pureMath},
	"meter/change.go":             {"./internal/uint128 ./internal/satmath", pureMath + "; changes are rare, so math/big will do"},
	"meter/reservations.go":       {"./internal/uint128", "what giving back makes of a state"},
	"meter/reopen.go":             {"./internal/uint128", "open charges as words, and back"},
	"meter/calendar.go":           {"sync/atomic time.LoadLocation ./internal/wording", "zones come from the zone database; the last window is kept for all callers, and is the same whoever computes it"},
	"internal/uint128/uint128.go": {"", pureMath},

	// Asking a store: a context passes through, nothing waits.
	"store.go":   {"context ./meter", "the contract: contexts go to stores that reach over a network"},
	"limiter.go": {"context sync/atomic ./meter", "hands requests to the store, in the caller's goroutine"},

	"all.go":         {"context time.NewTimer time.Until context.WithTimeout ./meter", "requests over several keys, and their waits, in the caller's goroutine; giving back is bounded in time"},
	"reservation.go": {"context", "hands settlements to the store"},

	// Waiting: the only files of the package with locks and timers.
	"terms.go": {"./internal/satmath ./internal/uint128 ./meter", "what waiting needs to know of the limits: arithmetic"},
	"wait.go":  {"context time.Now time.Until time.NewTimer context.WithDeadline ./internal/satmath ./internal/uint128 ./meter", "waits until a deadline or a turn, in the caller's goroutine; giving a place back is bounded in time"},
	"line.go":  {"sync sync/atomic time.Now ./internal/waitqueue ./internal/uint128", "the line of waiters and its lock; asks whether a start is due"},
	"queue.go": {"container/list context sync go time.Now time.Since time.Until context.WithDeadline", "runs submitted work: the one file of the package that starts goroutines"},

	"internal/waitqueue/line.go":  {"", "waiters and places as values: the time is an argument"},
	"internal/waitqueue/lines.go": {"context sync time.Now time.NewTimer time.Until", "waits for a turn, in the caller's goroutine, and the lock of all lines"},

	// The embedded store.
	"memstore/answer.go":      {". ./meter", "what a meter says as a decision"},
	"memstore/atonce.go":      {"runtime .", "runtime.KeepAlive, as in decide.go"},
	"memstore/batch.go":       {"context runtime . ./meter", "a context that memory does not need; runtime.KeepAlive, as in decide.go"},
	"memstore/clock.go":       {"sync sync/atomic time.NewTicker time.Now time.Since", "the store is the clock: the one file that reads it; a goroutine reads a coarse one, that of the store, where it is asked for"},
	"memstore/decide.go":      {"context runtime sync/atomic . ./internal/layercheck ./internal/satmath ./meter", "the contract's methods take a context, which memory does not need; runtime.KeepAlive, so that limits are held while they decide"},
	"memstore/denied.go":      {"", "top-k in bounded memory"},
	"memstore/family.go":      {"encoding/binary", ""},
	"memstore/forms.go":       {"runtime sync/atomic weak . ./meter", "forms are held by what was bound, until that is garbage"},
	"memstore/hash.go":        {"crypto/rand encoding/binary", "the seed is drawn once for each store"},
	"memstore/meet.go":        {"./internal/satmath ./meter", ""},
	"memstore/memstore.go":    {"sync sync/atomic .", "the store and its locks"},
	"memstore/open.go":        {"./meter", "reservations on one state, under its shard's lock"},
	"memstore/overflow.go":    {"", "cells that newcomers share"},
	"memstore/part.go":        {". ./internal/layercheck ./meter", "one limit of a request on its way through a decision: its locks and its state"},
	"memstore/release.go":     {"", "what nobody holds and no key counts under goes"},
	"memstore/reopen.go":      {". ./meter", "open reservations in a snapshot"},
	"memstore/reserve.go":     {"container/heap context crypto/rand sync . ./internal/satmath ./meter", "IDs cannot be guessed; what is open has a lock of its own"},
	"memstore/retained.go":    {"", "what forms had in use that a key has no more"},
	"memstore/shard.go":       {"sync", "a shard's lock"},
	"memstore/single.go":      {"context sync sync/atomic . ./meter", "a state in an atomic word, or under a mutex"},
	"memstore/singlestore.go": {"container/heap context crypto/rand . ./meter", "reservations of one state; its IDs cannot be guessed"},
	"memstore/slab.go":        {"", "blocks of words"},
	"memstore/snapshot.go":    {"bufio encoding/binary hash hash/crc32 io os path/filepath . ./meter", "the one file of the store that touches files"},
	"memstore/stats.go":       {"unsafe ./meter", "unsafe.Sizeof, to say how many bytes a limit takes"},
	"memstore/table.go":       {"unsafe ./meter", "unsafe.Sizeof, to say how many bytes a table takes"},
	"memstore/watch.go":       {"sync sync/atomic .", "who wants to know of room that is made, and their lock"},

	// Decisions as lines.
	"simulate/simulate.go": {"bufio bytes context io sync/atomic . ./meter", "reads and writes lines; its clock is virtual and may be read by a store's goroutines"},
	"simulate/op.go":       {"encoding/json ./internal/strictjson", "a line to an operation"},
	"simulate/answer.go":   {"encoding/json .", "an answer to a line"},
	"simulate/when.go":     {"", "times of lines: exact, never the clock's"},
	"simulate/vectors.go":  {"encoding/json io .", "vectors compare answers as JSON"},

	// Where rules come from.
	"rulesource/rulesource.go": {"context", "the contract of what keeps rules: contexts go to databases"},

	// Whether a request meets conditions: pure, with addresses and paths.
	"internal/match/doc.go":       {"", "says what the package is"},
	"internal/match/request.go":   {"bytes net/netip", "attributes in one form: paths and hosts are cleaned, and some are addresses"},
	"internal/match/condition.go": {"net/netip", "what one attribute must be: values, and patterns of text, paths and addresses"},
	"internal/match/covers.go":    {"", "which conditions take all that others do"},
	"internal/match/index.go":     {"net/netip runtime", "which conditions may hold, by address ranges too; runtime.Gosched, so that requests pass meanwhile"},

	"internal/strictjson/strictjson.go": {"", "text to values, and where it fails"},
	"internal/guard/guard.go":           {"context context.WithDeadline sync/atomic time.Now time.Since . ./internal/ratefields ./meter", "a request may wait for its turn, until a deadline; its limits may be changed"},
	"internal/ratefields/ratefields.go": {". ./meter", "fields of limits: text"},
	"internal/wording/wording.go":       {"", "what error messages are made of"},
	"internal/satmath/satmath.go":       {"", pureMath},
	"internal/layercheck/layercheck.go": {".", "what every store refuses of a request"},

	"internal/machine/machine.go": {"bufio os runtime/debug", "what a benchmark ran on, for its report: read from the system"},

	// What a rules file holds.
	"policy/rulesfile/rulesfile.go":  {". ./internal/match", "a file that has been read is a value"},
	"policy/rulesfile/node.go":       {"", "a tree of a rules file, whatever it was written in"},
	"policy/rulesfile/json.go":       {"./internal/strictjson", "strict JSON, with lines and columns"},
	"policy/rulesfile/decode.go":     {"runtime . ./internal/wording", "a tree to rules, and no more limits for a request than a store takes at once; runtime.Gosched, so that requests pass meanwhile"},
	"policy/rulesfile/decoderule.go": {". ./internal/match ./internal/wording", "a tree to one rule, and its limits"},
	"policy/rulesfile/declare.go":    {"./internal/wording", "attributes that only some callers give are declared, or named in a warning"},
	"policy/rulesfile/schema.go":     {"embed", "the schema is a file that editors read too"},
	"policy/rulesfile/errors.go":     {"", "what is wrong, where, and what would be right"},
	"policy/rulesfile/warn.go":       {"runtime . ./internal/match", "what is likely not meant; runtime.Gosched, as in decode.go"},

	// Rules. They read no clock but to wait: what they bind to a store is decided
	// there.
	"policy/doc.go":          {"", "says what the package is"},
	"policy/attributes.go":   {"./internal/match", "what is known of a request"},
	"policy/rules.go":        {". ./fallback ./internal/match ./policy/rulesfile", "rules that have been read are a value"},
	"policy/compile.go":      {"runtime . ./internal/match ./policy/rulesfile", "a file to rules with indexes, and names that state belongs to; runtime.Gosched, so that requests pass meanwhile"},
	"policy/matchrules.go":   {". ./internal/match ./internal/satmath ./policy/rulesfile", "which rules match, in order"},
	"policy/key.go":          {"crypto/hmac crypto/rand crypto/sha256 encoding/base64 encoding/hex sync ./internal/match", "hashes keys, with a secret that is drawn once for a process unless given"},
	"policy/rehearse.go":     {".", "other rules on another store, with the customers' overrides of now"},
	"policy/result.go":       {".", "an answer"},
	"policy/compare.go":      {"runtime ./internal/match", "what a reload changes, for people; runtime.Gosched, as in compile.go"},
	"policy/formers.go":      {".", "which plan takes the place of which, for people"},
	"policy/explain.go":      {"./internal/match ./internal/wording", "what rules make of a request, without asking a store"},
	"policy/failover.go":     {"context . ./fallback", "what rules say to do while the store fails; what is owed to the store is handed on"},
	"policy/policy.go":       {"runtime . ./fallback ./internal/waitqueue ./memstore", "rules bound to a store, each in its mode, and to one in memory for when that fails; runtime.Gosched, as in compile.go"},
	"policy/customers.go":    {"sync sync/atomic . ./internal/match ./internal/overridetable", "limits and plans of millions of customers: writers have a lock, requests none"},
	"policy/decide.go":       {"context . ./meter ./fallback", "contexts go to stores that reach over a network"},
	"policy/wait.go":         {"context context.WithTimeout time.Now time.Since . ./internal/waitqueue ./meter", "waits in the order of the queue; giving a place back is bounded in time"},
	"policy/decide_all.go":   {"context . ./meter", "several questions as one decision; contexts go to stores that reach over a network"},
	"policy/callerlimits.go": {".", "limits that a request brings along, bound"},
	"policy/reserve.go":      {"context crypto/hmac encoding/base64 encoding/binary . ./meter", "IDs of reservations are sealed, so that none is made up"},
	"policy/standing.go":     {"context . ./internal/match ./meter", "how a client stands; contexts go to stores that reach over a network"},
	"policy/bykey.go":        {"context . ./meter", "what operators do to a key; contexts go to stores that reach over a network"},

	// While the shared store is gone.
	"fallback/fallback.go": {"context sync/atomic . ./memstore ./meter", "asks one store, then the other"},
	"fallback/failover.go": {"context sync/atomic . ./meter", "what becomes of limits in two stores"},
	"fallback/apart.go":    {".", "a limit of a bound by itself"},
	"fallback/bound.go":    {"context . ./internal/layercheck ./internal/satmath ./meter", "limits in both stores"},
	"fallback/reserve.go":  {"context .", "reservations of either store"},
	"fallback/debts.go":    {"context math/rand/v2 sync time.NewTimer . ./meter", "posts what is owed when the shared store is back: processes at different moments"},
	"fallback/postings.go": {"context crypto/rand time.Now time.Since .", "posts many debts with one call: names them, and gives up what may have been forgotten"},
	"fallback/share.go":    {". ./meter", "the part of a limit that one process holds"},
	"fallback/shares.go":   {"sync .", "parts of limits, bound anew when processes come and go: a lock for that, none for decisions"},

	// In front of HTTP.
	"httplimit/doc.go":       {"", "says what the package is"},
	"httplimit/byip.go":      {"net/http . ./memstore", "the guard of one line has a store of its own"},
	"httplimit/key.go":       {"hash/maphash net/http net/netip sync/atomic", "whom a request is counted for; the text of an address is kept for the next request"},
	"httplimit/ambiguous.go": {"net/http net/url sync/atomic ./policy", "what servers read in different ways; what rules look at is found once for each"},
	"httplimit/clientip.go":  {"net/http net/netip", "a request to its client's address"},
	"httplimit/forwarded.go": {"net/netip", "lists of addresses in headers"},
	"httplimit/httplimit.go": {"context net/http sync/atomic . ./internal/guard ./policy", "the guard of a limiter, whose limits may be changed"},
	"httplimit/rules.go":     {"context time.Now time.Since net/http net/url sync sync/atomic . ./policy", "the guard of a policy: it says how long deciding took"},
	"httplimit/refund.go":    {"bufio context context.WithTimeout io net net/http", "a writer that sees the status; settling after the response is bounded in time"},
	"httplimit/header.go":    {"time.Now net/http sync sync/atomic . ./internal/ratefields ./policy", "fields of answers, in any dialect; what is the same for all is made once; X-RateLimit-Reset is a time of day: the one dialect that needs a clock"},
	"httplimit/deny.go":      {"net/http . ./internal/ratefields ./policy", "the answer to a denial"},
	"httplimit/connect.go":   {"encoding/base64 encoding/binary net/http ./internal/ratefields", "calls of Connect and gRPC-Web, whose clients do not go by the status"},
	"httplimit/grpc.go":      {"encoding/base64 encoding/binary net/http", "a denial as gRPC has it, in its wire format"},
	"httplimit/field.go":     {"", "structured fields: text to value"},
	"httplimit/signal.go":    {"net/http ./internal/ratefields", "what an answer says of its server's limits; the time is an argument"},
	"httplimit/transport.go": {"context io math/rand/v2 net/http sync time.NewTimer time.Now time.Until . ./internal/guard", "requests that go out wait, for us and for the server; retries are spread at random"},
}

// pureImports do not reach outside of a function's arguments.
var pureImports = []string{
	"cmp", "errors", "fmt", "iter", "maps", "math", "math/big", "math/bits", "slices", "sort",
	"strconv", "strings", "time", "unicode", "unicode/utf16", "unicode/utf8",
}

// powers are functions of packages that are else harmless: clocks, timers and
// the zone database.
var powers = map[string][]string{
	"time":    {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker", "LoadLocation"},
	"context": {"WithTimeout", "WithTimeoutCause", "WithDeadline", "WithDeadlineCause", "AfterFunc"},
}

// levels is which packages of the repository each directory may import: arrows
// point down only. A directory that is not named is not on any level yet.
var levels = map[string]string{
	"meter": `
		internal/satmath
		internal/uint128
		internal/wording`,
	"internal/uint128": "",
	".": `
		internal/satmath
		internal/uint128
		internal/waitqueue
		internal/wording
		meter`,
	"memstore": `
		.
		internal/layercheck
		internal/satmath
		meter`,
	"simulate": `
		.
		internal/strictjson
		meter`,
	"storetest": `
		.
		meter
		simulate`,
	"fallback": `
		.
		internal/layercheck
		internal/satmath
		memstore
		meter`,
	"internal/overridetable": "",
	"internal/waitqueue":     "",
	"internal/match":         "",
	"internal/wording":       "",
	"internal/ratefields": `
		.
		meter`,
	"internal/guard": `
		.
		internal/ratefields
		meter`,
	"internal/strictjson": "",
	"internal/layercheck": ".",
	"internal/satmath":    "",
	"internal/machine":    "",
	"policy/rulesfile": `
		.
		internal/match
		internal/strictjson
		internal/wording`,
	"policy": `
		.
		fallback
		internal/match
		internal/overridetable
		internal/satmath
		internal/waitqueue
		internal/wording
		memstore
		meter
		policy/rulesfile`,
	"httplimit": `
		.
		internal/guard
		internal/ratefields
		memstore
		policy`,
	"internal/freeport":  "", // of tests
	"internal/redistest": "internal/freeport",
	"rulesource":         "",
	"rulesdb":            "rulesource",
	"rulesdb/dbtest":     "internal/freeport",
	"cmd/stint": `
		.
		cmd/internal/commandline
		cmd/internal/linediff
		cmd/internal/planner/accesslog
		cmd/internal/planner/lab
		cmd/internal/planner/luaserver
		cmd/internal/planner/nodes
		cmd/internal/planner/plan
		cmd/internal/planner/sizing
		cmd/internal/planner/trial
		cmd/internal/tempstore
		cmd/internal/service/statefile
		cmd/internal/service/rulesapi
		cmd/internal/service/envoyrules
		cmd/internal/service/nginxrules
		cmd/internal/service/observe
		cmd/internal/service/operate
		cmd/internal/service/otlp
		cmd/internal/service/page
		cmd/internal/service/proxy
		cmd/internal/service/record
		cmd/internal/service/rehearse
		cmd/internal/service/resp
		cmd/internal/service/rls
		cmd/internal/service/rules
		cmd/internal/service/ruleshttp
		cmd/internal/service/rulesredis
		cmd/internal/service/rulesworker
		cmd/internal/service/ruletest
		cmd/internal/service/server
		cmd/internal/service/snapshot
		cmd/internal/service/storecheck
		cmd/internal/service/topkeys
		cmd/internal/service/warn
		fallback
		httplimit
		memstore
		policy
		policy/rulesfile
		redisstore
		rulesdb
		rulesource
		simulate`,
	"site": ".",
	"grpclimit": `
		.
		internal/guard
		internal/ratefields
		policy`,
	"adapters/caddylimit": `
		.
		httplimit
		memstore
		policy
		policy/rulesfile
		redisstore`,
	"adapters/caddylimit/caddy": "adapters/caddylimit",
	"adapters/connectlimit":     "grpclimit",
	"adapters/echolimit":        "", // they take a guard of httplimit as a function
	"adapters/fiberlimit":       "",
	"adapters/ginlimit":         "",
	"adapters/routers":          ". memstore httplimit", // examples alone
	"otellimit": `
		.
		httplimit
		policy`,
	"redisstore": `
		.
		fallback
		internal/layercheck
		internal/wording
		memstore
		meter`,
	"redisstore/goredis": "redisstore",
	"redisstore/internal/faulttest": `
		.
		meter
		redisstore
		internal/redistest`, // of tests
	"cmd/internal/planner/plan": `
		.
		cmd/internal/planner/accesslog
		cmd/internal/service/rules
		httplimit
		internal/wording
		memstore
		meter
		policy
		policy/rulesfile
		simulate`,
	"cmd/internal/planner/plan/bench": `
		cmd/internal/planner/plan
		cmd/internal/planner/plan/sample`,
	"cmd/internal/service/recent": "",
	"cmd/internal/service/resp": `
		.
		cmd/internal/service/drain
		cmd/internal/service/observe
		cmd/internal/service/recent
		cmd/internal/service/rules
		internal/wording
		meter
		policy`,
	"cmd/internal/planner/lab/wasm": "cmd/internal/planner/lab",
	"cmd/internal/planner/lab": `
		.
		cmd/internal/planner/accesslog
		cmd/internal/planner/nodes
		cmd/internal/planner/plan
		cmd/internal/planner/trial
		internal/wording
		meter
		redisstore`, // the planner reads logs, nodes share a limit
	"cmd/internal/service/observe": `
		.
		cmd/internal/service/topkeys
		cmd/internal/service/warn
		memstore
		policy
		redisstore`,
	"cmd/internal/service/topkeys": "policy",
	"cmd/internal/service/warn": `
		.
		policy`,
	"cmd/internal/service/statefile": `
		.
		cmd/internal/service/rulesapi
		cmd/internal/service/rules
		cmd/internal/atomicfile
		policy
		rulesdb
		rulesource`,
	"cmd/internal/service/operate": `
		.
		cmd/internal/service/rulesapi
		cmd/internal/service/observe
		cmd/internal/service/rules
		cmd/internal/service/server
		cmd/internal/service/topkeys
		internal/match
		meter
		policy
		policy/rulesfile
		rulesdb
		rulesource`,
	"cmd/internal/service/page": `
		cmd/internal/service/rulesapi
		cmd/internal/service/observe
		cmd/internal/service/operate
		cmd/internal/service/server
		rulesdb`,
	"cmd/internal/service/proxy": `
		.
		cmd/internal/service/drain
		cmd/internal/service/observe
		cmd/internal/service/rules
		cmd/internal/service/server
		httplimit
		meter
		policy`,
	"cmd/internal/service/nginxrules": ``,
	"cmd/internal/service/envoyrules": `
		policy
		policy/rulesfile`,
	"cmd/internal/service/rls": `
		.
		cmd/internal/service/drain
		cmd/internal/service/observe
		cmd/internal/service/recent
		cmd/internal/service/rules
		cmd/internal/service/server
		httplimit
		policy`,
	"cmd/internal/service/rules": `
		.
		cmd/internal/service/rulescopy
		internal/match
		internal/wording
		policy
		policy/rulesfile
		rulesource`,
	"cmd/internal/service/server": `
		.
		cmd/internal/service/drain
		cmd/internal/service/observe
		cmd/internal/service/rules
		httplimit
		internal/strictjson
		memstore
		policy`,
	"cmd/internal/planner/trial": `
		.
		memstore
		simulate`,
	"cmd/internal/service/rulesapi": `
		.
		cmd/internal/linediff
		cmd/internal/service/rules
		cmd/internal/service/server
		policy
		policy/rulesfile
		rulesdb
		rulesource`,
	"cmd/internal/commandline": "internal/wording",
	"cmd/internal/linediff":    "",
	"cmd/internal/leaktest":    "", // of tests
	"cmd/internal/atomicfile":  "",
	"cmd/internal/service/snapshot": `
		cmd/internal/atomicfile
		memstore`,
	"cmd/internal/service/rulescopy": "rulesource",
	"cmd/internal/service/rulesredis": `
		cmd/internal/service/rulescopy
		redisstore
		rulesdb
		rulesource`,
	"cmd/internal/service/rulesworker": `
		cmd/internal/service/rulescopy
		cmd/internal/service/rulesredis
		rulesdb
		rulesource`,
	"cmd/internal/service/rulesbench": `
		cmd/internal/service/rules
		cmd/internal/service/rulesredis
		cmd/internal/service/rulesworker
		memstore
		policy
		rulesdb
		rulesdb/dbtest
		rulesource`,
	"cmd/internal/service/ruleshttp": "rulesource",
	"cmd/internal/planner/nodes": `
		.
		cmd/internal/planner/luaserver
		fallback
		memstore
		meter
		redisstore`,
	"cmd/internal/planner/luaserver": "redisstore", // as a driver of it
	"cmd/internal/planner/sizing": `
		.
		cmd/internal/planner/luaserver
		meter
		policy
		redisstore`, // which it runs, and weighs
	"cmd/internal/service/servicebench": "",
	"cmd/internal/tempstore":            "redisstore",
	"cmd/internal/service/storecheck": `
		.
		cmd/internal/tempstore
		redisstore`,
	"cmd/internal/service/record": "policy",
	"cmd/internal/service/otlp": `
		cmd/internal/service/observe
		policy`,
	"cmd/internal/service/rehearse": `
		.
		cmd/internal/service/record
		cmd/internal/service/rules
		cmd/internal/service/server
		memstore
		policy
		rulesdb
		simulate`,
	"cmd/internal/service/ruletest": `
		.
		cmd/internal/service/rules
		internal/wording
		memstore
		policy
		policy/rulesfile
		simulate`,
	"cmd/internal/service/dashboard":       "",
	"cmd/internal/service/dashboard/write": "cmd/internal/service/dashboard",
	"proof/model":                          "", // written apart from the engine, or it proves nothing
	"proof/oracle":                         "proof/model",
	"proof/crowd": `
		proof/model
		proof/oracle`,
}

// listed are the directories whose files have a rule each. The others are checked
// by their level alone: they do what tests and servers do.
var listed = []string{".", "meter", "internal/uint128", "internal/waitqueue", "memstore", "simulate", "fallback", "rulesource", "policy", "policy/rulesfile", "httplimit", "internal/match", "internal/wording", "internal/strictjson", "internal/ratefields", "internal/guard", "internal/satmath", "internal/layercheck", "internal/machine"}

// besides are modules of tests, which may import everything but cmd.
var besides = []string{"proof", "benchmarks"}

type source struct {
	path string // from the root, with slashes
	file *ast.File
	set  *token.FileSet
}

func (s source) dir() string  { return path.Dir(s.path) }
func (s source) test() bool   { return strings.HasSuffix(s.path, "_test.go") }
func (s source) nested() bool { return slices.Contains(modulesBelow, strings.Split(s.path, "/")[0]) }

// modulesBelow are the directories of this repository that are modules of
// their own.
var modulesBelow = []string{"adapters", "cmd", "deploy", "grpclimit", "otellimit", "proof", "benchmarks", "redisstore", "release", "rulesdb", "site"}

// imports returns the import paths, with the names that they go by.
func (s source) imports(t *testing.T) map[string]string {
	all := make(map[string]string)
	for _, spec := range s.file.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		all[p] = path.Base(p)
		if spec.Name != nil {
			all[p] = spec.Name.Name
		}
	}
	return all
}

// needs returns what of the powers and imports a file uses.
func (s source) needs(t *testing.T) map[string]bool {
	needs := make(map[string]bool)
	watched := make(map[string]string) // the name in this file of each package with powers
	for p, name := range s.imports(t) {
		if !slices.Contains(pureImports, p) {
			needs[p] = true
		}
		if powers[p] != nil {
			watched[name] = p
		}
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			needs["go"] = true
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && slices.Contains(powers[watched[x.Name]], n.Sel.Name) {
				needs[watched[x.Name]+"."+n.Sel.Name] = true
			}
		}
		return true
	})
	return needs
}

// sources parses every Go file of the repository. Where the nested modules are
// not there, as in a module cache, they are not checked.
func sources(t *testing.T) (all []source) {
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || p != "." && strings.HasPrefix(d.Name(), ".")):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(p, ".go"):
			return nil
		}
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, p, nil, parser.ParseComments|parser.SkipObjectResolution)
		all = append(all, source{filepath.ToSlash(p), f, set})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestImportsFiles checks that each file of the root module imports what it may.
func TestImportsFiles(t *testing.T) {
	met := make(map[string]bool)
	for _, s := range sources(t) {
		if s.test() || !slices.Contains(listed, s.dir()) {
			continue
		}
		met[s.path] = true
		p, ok := fileRules[s.path]
		if !ok {
			t.Errorf("%s: list the file in imports_test.go: what it may use, and why", s.path)
			continue
		}
		may, needs := strings.Fields(p.may), s.needs(t)
		for i, m := range may {
			if m == "." || strings.HasPrefix(m, "./") {
				may[i] = module + m[1:]
			}
		}
		for need := range needs {
			if !slices.Contains(may, need) {
				t.Errorf("%s: uses %s, which it may not: this file %s", s.path, need, p.why)
			}
		}
		for _, m := range may {
			if !needs[m] {
				t.Errorf("%s: no longer needs %s: take it out of its rule in imports_test.go", s.path, m)
			}
		}
	}
	for file := range fileRules {
		if !met[file] {
			t.Errorf("%s: has a rule in imports_test.go but is not there", file)
		}
	}
}

// TestImportsLevels checks that directories import those of the levels below them
// alone, and the root module the standard library.
func TestImportsLevels(t *testing.T) {
	for _, s := range sources(t) {
		for p := range s.imports(t) {
			inside, ours := strings.CutPrefix(p, module)
			inside = path.Clean("./" + inside)
			switch {
			case !ours:
				if !s.nested() && strings.Contains(strings.Split(p, "/")[0], ".") {
					t.Errorf("%s: imports %s: the root module, tests included, has the standard library alone", s.path, p)
				}
			case strings.HasPrefix(inside, "cmd") && !strings.HasPrefix(s.path, "cmd/"):
				t.Errorf("%s: imports %s: nothing imports cmd", s.path, inside)
			case s.test() || inside == s.dir():
			default:
				s.checkLevel(t, inside)
			}
		}
	}
}

func (s source) checkLevel(t *testing.T, inside string) {
	below, ok := levels[s.dir()]
	switch {
	case ok && !slices.Contains(strings.Fields(below), inside):
		t.Errorf("%s: imports %s: from %s arrows point to %q", s.path, inside, s.dir(), below)
	case !ok && !slices.Contains(besides, strings.Split(s.path, "/")[0]):
		t.Errorf("%s: give %s its level in imports_test.go", s.path, s.dir())
	}
}

// mostExported bounds the names of package stint, which are to be one page: a
// name more should replace one.
const mostExported = 40

func TestImportsExported(t *testing.T) {
	var names []string
	for _, s := range sources(t) {
		if s.dir() != "." || s.test() {
			continue
		}
		for _, d := range s.file.Decls {
			names = append(names, exported(d)...)
		}
	}
	slices.Sort(names)
	if len(names) > mostExported {
		t.Errorf("package stint exports %d names, more than %d:\n%s", len(names), mostExported, strings.Join(names, "\n"))
	}
}

// exported returns the names that a declaration adds to its package.
func exported(d ast.Decl) (names []string) {
	add := func(id *ast.Ident) {
		if id.IsExported() {
			names = append(names, id.Name)
		}
	}
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			add(d.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				add(spec.Name)
			case *ast.ValueSpec:
				for _, id := range spec.Names {
					add(id)
				}
			}
		}
	}
	return names
}

// mostLines is how long a function may be: what is longer wants splitting.
const mostLines = 70

func TestImportsFunctions(t *testing.T) {
	for _, s := range sources(t) {
		if s.test() || ast.IsGenerated(s.file) {
			continue
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			first, last := s.set.Position(f.Pos()), s.set.Position(f.End())
			if n := last.Line - first.Line + 1; n > mostLines {
				t.Errorf("%s:%d: %s has %d lines: at most %d", s.path, first.Line, f.Name.Name, n, mostLines)
			}
		}
	}
}

// TestImportsModule holds the go.mod of the root to requiring nothing.
func TestImportsModule(t *testing.T) {
	text, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("module %s\n\ngo 1.25\n", module); string(text) != want {
		t.Errorf("go.mod is\n%s\nwant\n%s", text, want)
	}
}
