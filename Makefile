# What this repository can do for you. `make help` lists it.

GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
VALE     := github.com/errata-ai/vale/v3/cmd/vale@v3.15.2
MODULE   := github.com/stint-dev/stint
BELOW     = $(filter-out $(CURDIR),$(shell go list -m -f '{{.Dir}}')) # the modules beside the root
APART    := adapters/caddylimit adapters/generated benchmarks/caddy deploy/compose deploy/helm # modules that go.work leaves out, so that nothing else is built with their dependencies
REQUIRED := . ./grpclimit ./redisstore ./redisstore/goredis ./rulesdb # that other modules here require
ADAPTERS := ./adapters/connectlimit ./adapters/echolimit ./adapters/fiberlimit ./adapters/ginlimit # that proof requires
# They begin first, or the others wait for them at the end.
LONGEST  := ./redisstore ./cmd/stint ./redisstore/goredis
# Much in them compares on one goroutine, where there is no race to find: with the
# detector that is done in part, and whole without it.
WHOLE    := ./memstore ./cmd/internal/planner/plan
# Many tests wait for servers: one package more than there are cores is tested at once.
AT_ONCE   = -p $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))
# What one goroutine compares, or a browser shows, by name, and the packages that are
# tested for it without the detector, BRIEFLY in the short forms that others have with
# it. Those of WHOLE are so anyway.
PLAIN    := TestMemoryFloods TestPlanPasted TestProposalPasted TestSimulateModes TestTranscripts$$/^(arrivals|size|test|plan) \
	TestPage TestPageAccessible TestPageLog TestPageLogStops TestPageWithoutPlan TestSharedCopy TestWhyAgrees \
	TestDifferentialRedis TestDifferentialRedisCluster TestDifferentialRedisForms TestDifferentialRedisSteps TestYears \
	TestSingleRecoversReservations TestReservationsRestarted TestEvidenceByMoments TestLargeRules TestOnDemandBounded \
	TestValkey TestFormsCalendarThereAndBack TestListsDifferential TestListsHistory TestLogCost TestSettleCost \
	TestClockStepServer TestNaive TestQuantum TestReal TestShort TestSnapshotCells TestTakeAtOnce \
	TestStore$$/^(all_ways_to_ask_agree|changing_a_limit|forgetting_is_lossless|layers,_all_or_none|settle_is_take|there_and_back|what_only_asks_changes_nothing)
PLAINLY  := ./cmd/stint ./cmd/internal/planner/lab ./cmd/internal/service/rules ./redisstore ./redisstore/goredis \
	./fallback ./storetest ./benchmarks ./benchmarks/redis ./cmd/internal/planner/sizing
BRIEFLY  := ./proof
NOTHING  :=
# A pattern of names that -run and -skip take.
NAMED     = '$(subst $(NOTHING) ,|,$(patsubst %,^%$$,$(1)))'
# What builds, writes, or watches processes of its own has no race to find, nor has what
# computes on one goroutine: it is compiled and tested without the detector, beside WHOLE.
QUIET    := release site proof/chaos proof/cmd/% proof/model proof/oracle cmd/internal/planner/lab/wasm
ALL       = $(shell go list work)
UNRACED   = $(filter $(addprefix $(MODULE)/,$(QUIET)),$(ALL))
RACED     = $(filter-out $(UNRACED),$(ALL))
# What Caddy, Kubernetes and compose bring with them is compiled once and runs for seconds.
QUICKLY  := '-gcflags=all=-N -l'
# In a loop over directories $$d: go.work is for the modules that it lists.
ALONE     = case " $(APART) " in *" $$d "*) export GOWORK=off ;; esac
# What users run or import, and not what tests and builds it.
SHIPPED  := . cmd grpclimit redisstore redisstore/goredis rulesdb otellimit adapters/caddylimit adapters/connectlimit adapters/echolimit adapters/fiberlimit adapters/ginlimit
VULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0
TARGETS  := linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64
FUZZTIME ?= 1m
CHAOSTIME ?= 10m
# The tracing pages of grpc, which nothing here shows, find methods by name: with
# them the linker keeps every method of every type, and the binary is half as large again.
TAGS     := -tags grpcnotrace
# What talks to databases of rules, reads YAML, rules or Lua, writes metrics or reads flags is
# called seldom: its functions are not copied to where they are called, which saves 0.5 MB.
SELDOM   := -gcflags=github.com/jackc/...=-l -gcflags=github.com/go-sql-driver/...=-l -gcflags=go.yaml.in/...=-l \
	-gcflags=github.com/prometheus/...=-l -gcflags=$(MODULE)/cmd/stint=-l \
	-gcflags=$(MODULE)/rulesdb/...=-l -gcflags=$(MODULE)/cmd/internal/service/rulesapi/...=-l -gcflags=$(MODULE)/cmd/internal/service/ruleshttp/...=-l \
	-gcflags=github.com/yuin/...=-l -gcflags=golang.org/x/text/...=-l -gcflags=github.com/klauspost/...=-l \
	-gcflags=$(MODULE)/policy/rulesfile=-l -gcflags=$(MODULE)/cmd/internal/commandline=-l -gcflags=$(MODULE)/cmd/internal/planner/lab=-l -gcflags=$(MODULE)/cmd/internal/planner/sizing=-l \
	$(foreach p,envoyrules nginxrules storecheck ruletest rehearse rulesworker rulesredis rulescopy operate statefile otlp rules snapshot page warn,-gcflags=$(MODULE)/cmd/internal/service/$(p)=-l) \
	$(foreach p,linediff planner/nodes planner/trial,-gcflags=$(MODULE)/cmd/internal/$(p)=-l) \
	$(foreach p,encoding/prototext encoding/protojson reflect/protodesc internal/encoding/...,-gcflags=google.golang.org/protobuf/$(p)=-l)

.DEFAULT_GOAL := help
.PHONY: help build release size site man cross audit demo test test-valkey needs formatted check short soak chaos fuzz mutants house errors bench bench-redis bench-plan bench-service bench-rules bench-operate docs dashboard lint tidy clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build the binary into bin/stint
	go build $(TAGS) -o bin/stint ./cmd/stint

release: ## build what a release has into dist/: archives, packages, images, sums
	go run ./release --out dist

size: ## what takes the room in the stripped binary
	go build $(TAGS) $(SELDOM) -o bin/stint-named ./cmd/stint && go build $(TAGS) $(SELDOM) -ldflags='-s -w' -o bin/stint ./cmd/stint
	@ls -l bin/stint | awk '{ printf "%.1f MB stripped; by package, without the tables for stack traces:\n", $$5 / 1e6 }'
	@go run ./release --size bin/stint-named

site: ## make a site of the documents and the lab in bin/site: pages that load nothing from elsewhere
	go run ./site --out bin/site

man: build ## write manual pages into bin/man
	bin/stint man bin/man

cross: ## compile for the other systems, and vet the library for them and for 32 bits; takes minutes the first time
	@for t in $(TARGETS); do echo $$t; export CGO_ENABLED=0 GOOS=$${t%/*} GOARCH=$${t#*/}; \
	  (cd cmd && go build $(TAGS) -o /dev/null ./stint) && go vet ./... || exit 1; done
	@for d in $(REQUIRED); do echo linux/386 $$d; (cd $$d && CGO_ENABLED=0 GOARCH=386 go vet ./...) || exit 1; done

audit: check ## look for known holes where their database can be reached, for unsafe code (gosec, with written exceptions), and at licences
	go run ./release --out bin/audit --only linux_amd64
	GOBIN=$(CURDIR)/bin go install $(VULNCHECK)
	@status=0; \
	for d in $(SHIPPED); do echo "gosec: $$d"; (cd $$d && $(ALONE); go run $(GOLANGCI) run -c $(CURDIR)/.golangci-audit.yml ./...) || status=1; done; \
	for d in . $(BELOW) $(APART); do \
	  found=$$(cd $$d && $(ALONE); $(CURDIR)/bin/govulncheck ./... 2>&1); case $$? in 0) ;; \
	  3) echo "$$found"; status=1 ;; \
	  *) why=$$found; left="$$left $${d#$(CURDIR)/}" ;; esac; done; \
	[ -z "$$left" ] || printf '\nLeft out: govulncheck could not look at\n %s\n%s\n' "$$left" "$$why"; \
	exit $$status

demo: ## run the proxy in front of a small server of its own, and say what to try
	go run ./cmd/stint serve --demo

# All that tests build, the command among it, is compiled once: with these flags, which
# are those of a release, and for vet as for the tests; nomsgpack leaves out a coder of
# gin's, by far its longest to compile, and -w what a debugger reads. Vet looks at the
# tests, too, so that they do not again.
BUILT := -trimpath -tags=grpcnotrace,nomsgpack -ldflags=-w $(SELDOM)
test: export GOFLAGS := $(GOFLAGS) $(BUILT) -vet=off
# Code that generators wrote takes long to compile with the detector; not to copy its
# functions to where they are called halves that. What one goroutine reads as YAML it
# shares with no other: without the detector in the reader, 30 MB take a third. So is it
# with an interpreter of Lua.
test: RACE := -race $(foreach p,github.com/redis/rueidis/internal/cmds github.com/redis/go-redis/v9 github.com/envoyproxy/... modernc.org/...,-gcflags=$(p)=-l) '-gcflags=go.yaml.in/...=-l -race=false' '-gcflags=github.com/yuin/...=-l -race=false'
# With the race detector a program waits a second before it ends: tests run hundreds.
test: export GORACE := atexit_sleep_ms=10 $(GORACE)
# Memory is there for it: rubbish is collected seldom.
test short: export GOGC ?= 400

test: needs formatted ## install what is missing, then gofmt, go vet, and test every module, those of go.work with the race detector; say what was left out
	@go run ./proof/cmd/tests \
	  vet $(UNRACED) -- test -p 2 -timeout 40m $(WHOLE) $(UNRACED) -- test -run $(call NAMED,$(PLAIN)) $(PLAINLY) -- test -short -run $(call NAMED,$(PLAIN)) $(BRIEFLY) -- test -short ./cmd/internal/planner/luaserver -- apart $(QUICKLY) $(APART) ++ \
	  vet $(RACE) $(RACED) -- test $(RACE) -skip $(call NAMED,$(PLAIN)) $(AT_ONCE) -timeout 40m $(LONGEST) $(RACED)

test-valkey: ## the tests of redisstore on valkey-server instead of redis-server
	STINT_REDIS_SERVER=valkey-server go test -count=1 ./redisstore/... ./redisstore/goredis/...

needs: ## install the servers and the browser that tests run against (Debian packages)
	@.ci/needs

formatted:
	@files=$$(gofmt -l .); if [ -n "$$files" ]; then echo "not formatted (gofmt -w):"; echo "$$files"; exit 1; fi

check: formatted ## gofmt, and go vet of every module
	go vet $(UNRACED)
	go vet $(RACED)
	@for d in $(APART); do (cd $$d && GOWORK=off go vet ./...) || exit 1; done

# What takes long, by name: `make short` leaves it out.
LONG := \
	TestCharge TestClockStepServer TestClockSteps TestCloseUnderLoad TestCluster TestClusterPartition TestCountNodes \
	TestCountNodesCluster TestCountNodesKey TestDeadHostFirst TestDenialCacheRequestExact TestFaultFlood TestFaults \
	TestFaultStall TestFloodByRoom TestFullNode TestHosts TestInterleavedSlots TestKilledBetween TestLeaseProcesses TestLogCost \
	TestLongLog TestLongLogChanged TestModeClock TestModeFaults TestModePartition TestNodesFlood TestOverflow TestOverflowCluster \
	TestOvertaken TestPartition TestReplies TestSentinel TestSettleCost TestStallWithoutSpareCore TestUnknownEndpoint TestUnserved \
	TestValkey TestStore$$/^(layers,_all_or_none|there_and_back|forgetting_is_lossless) \
	TestActsKilled TestClientsSilent TestCopyKilled TestDemoGuide TestFileRoles TestOperateHTTPS TestPageBounded TestPageClient \
	TestMemoryFloods TestPageKeyboard TestPageLooks TestPageOverview TestPagePostgres TestPageRedis TestPageTLS TestPlanPasted TestProbesFindRoom \
	TestRestoredDatabase TestServeCountsNobody TestSimulateModes TestStores \
	TestCopyTorn TestExpiryOnThreeNodes TestLargeRules TestOnDemandBounded TestReloadUnderLoad TestRestoredAndChanged \
	TestRestoredUnseen TestStopped TestTakeover TestThreeNodes \
	TestBrowserAccessible TestBrowserHostile TestDaysDiffer TestEvidenceByMoments TestPageAccessible TestPageLog TestPageLogStops \
	TestPageWithoutPlan TestPropose TestProposeIdentities TestReal TestRulesByFields TestSharedAway TestSharedCopy TestWhyAgrees \
	TestBrowser TestClients TestClientsToken TestOnDemand TestPage TestUnknown TestBodyRate TestCopyDiskFull TestGivenBackOften \
	TestLeaseEnvelope TestListsCluster TestListsLost TestListsUnknownModes TestNodes \
	TestCalendarWalk TestChaos TestDeploys TestEnvelopeAdapters TestEnvelopeEntries TestEnvelopeListeners TestManyFormsEnvelopeRedis \
	TestPlantedBugs TestPrints TestShort TestSteps TestDifferentialRedisCluster TestEnvelopeSingleReal \
	TestBigInt TestClockStepLeases TestIPv6 TestChangeOfDriver TestCutReply TestRecovers TestSingleRecoversReservations \
	TestClientsGarbage TestTokenFile TestPageRules TestKilledWhileWriting TestLargeDocument TestPrune TestWriterKilled

# The tests of redisstore ask a server much of what those of LONGER ask an interpreter.
LONGER   := ./cmd/internal/planner/luaserver
# In the order in which they begin: what takes longest decides when all is done.
SHORTLY   = $(LONGEST) ./cmd/internal/service/rules ./cmd/internal/service/proxy $(filter-out $(LONGER:.%=$(MODULE)%),$(ALL))
# Without the detector tests wait more than they compute.
MORE      = -p $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 2)))

short: export GOFLAGS := $(GOFLAGS) $(BUILT) -vet=off
short: ## test without the race detector, what takes long and modules apart: a first look; say what was left out
	@go run ./proof/cmd/tests test -short -skip $(call NAMED,$(LONG)) $(MORE) -timeout 40m $(SHORTLY)
	@echo "  what takes long: $(words $(LONG)) tests that LONG in the Makefile names, and $(LONGER)"
	@echo "  modules that go.work leaves out: $(APART)"

fuzz: ## run every fuzz target for FUZZTIME (1m) each
	@for d in $$(go list -f '{{.Dir}}' work); do \
	  for f in $$(grep -ohE '^func Fuzz[A-Za-z0-9_]*' $$d/*_test.go 2>/dev/null | cut -c6-); do \
	    echo "== $$d $$f"; (cd $$d && go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x .) || exit 1; \
	  done; \
	done

soak: ## the long forms of the tests: thousands of years of virtual time, a Redis that stalls for minutes; adapters that stand apart with the race detector
	cd proof && STINT_SOAK=1 go test -count=1 -timeout 30m . && STINT_SOAK=1 go test -count=1 -run TestDeploys ./chaos
	cd redisstore && STINT_SOAK=1 go test -count=1 -timeout 60m .
	@for d in $(filter adapters/%,$(APART)); do (cd $$d && GOWORK=off go test -race -count=1 ./...) || exit 1; done

chaos: ## three stint serve on a Redis cluster, a fault every few seconds for CHAOSTIME (10m), and what passed beside what is promised
	cd proof && STINT_CHAOS=$(CHAOSTIME) go test -count=1 -v -timeout 0 -run TestChaos ./chaos

mutants: ## plant each bug of proof/mutants in turn and print which test killed it
	cd proof && go run ./cmd/mutants

house: ## lines of code by wing, and the files that one call runs through
	cd proof && go run ./cmd/house lines && go run ./cmd/house trips

errors: ## measure how far the sliding counter and the parts are from the exact log
	cd proof && go run ./cmd/errors

bench: ## the figures of README.md, beside other libraries; leave the machine alone meanwhile
	go run ./benchmarks

bench-redis: ## the figures of docs/REDIS-FIGURES.md, beside other libraries; starts its own redis-server
	go run ./benchmarks/redis

bench-plan: ## the figures of docs/PLAN.md: lines a second beside mawk on the same file, and memory
	cd cmd && go run ./internal/planner/plan/bench

bench-rules: ## rules in a database: how soon a change is enforced, ten million overrides; starts its own servers
	cd cmd && go run ./internal/service/rulesbench

bench-service: ## Envoy's service and CL.THROTTLE beside the floor of each protocol; starts its own redis-server
	cd cmd && go run ./internal/service/servicebench

bench-operate: ## what the recorder, top and simulations cost a request, how long inspect and a rehearsal of a million take; leave the machine alone meanwhile
	cd cmd && go test ./internal/service/topkeys -run '^$$' -bench Tracker
	cd cmd && go run ./internal/service/operatebench

docs: ## write the plots and the pictures of the documents anew
	cd cmd && go test ./stint -run TestDocs -update
	cd cmd && go test ./internal/planner/lab -run TestPageShots -update
	cd proof && go run ./cmd/house draw ../docs
	go test -run TestDocs .

dashboard: ## write the Grafana dashboard, the alert rules and the runbook anew
	cd cmd && go run ./internal/service/dashboard/write ../deploy ../docs

lint: check ## gofmt, go vet, golangci-lint and vale, of pinned versions (fetched on first use: minutes)
	go run $(VALE) --config docs/.vale.ini README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md docs/*.md
	@for d in . $(BELOW) $(APART); do (cd $$d && $(ALONE); go run $(GOLANGCI) run ./...) || exit 1; done

tidy: ## tidy every go.mod (go mod tidy ignores go.work, so give it a replace for as long as it runs)
	go mod tidy
	@for d in $(BELOW); do (cd $$d && \
	  for m in $(REQUIRED) $(ADAPTERS); do go mod edit -replace $(MODULE)$${m#.}=$(CURDIR)$${m#.} || exit 1; done; \
	  go mod tidy; status=$$?; \
	  for m in $(REQUIRED) $(ADAPTERS); do go mod edit -dropreplace $(MODULE)$${m#.}; done; exit $$status) || exit 1; done

clean: ## remove what builds and tests leave behind
	rm -rf bin
	find . -path '*/testdata/rapid' -prune -exec rm -rf {} +
