# What this repository can do for you. `make help` lists it.

GOLANGCI   := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
GORELEASER := github.com/goreleaser/goreleaser/v2@v2.15.1
GOTESTSUM  := gotest.tools/gotestsum@v1.13.0
VALE       := github.com/errata-ai/vale/v3/cmd/vale@v3.15.2
VULNCHECK  := golang.org/x/vuln/cmd/govulncheck@v1.9.0
MODULE     := github.com/stint-dev/stint
WORK        = $(shell go list -m -f '{{.Dir}}') # the modules of go.work
APART      := adapters/caddylimit deploy # the others, whose dependencies nothing else is to have
LIBRARY    := . ./adapters ./grpclimit ./redisstore ./rulesdb
PROGRAM    := ./planner ./service
TARGETS    := linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64
RELEASE    ?= --snapshot --skip=publish,docker,sbom
TESTS      = mkdir -p bin; go run $(GOTESTSUM) --format pkgname --hide-summary skipped --jsonfile bin/test.json -- -p 3 -timeout 40m
BENCH      = mkdir -p bin; go test -run '^$$' ./test/benchmarks -timeout 0 -bench
MEDIANS    = >bin/bench.txt || { cat bin/bench.txt; exit 1; }; go run golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da bin/bench.txt
FUZZTIME   ?= 1m
CHAOSTIME  ?= 10m
# With the race detector, a program waits a second before it ends: tests run hundreds.
export GORACE := atexit_sleep_ms=10 $(GORACE)

.DEFAULT_GOAL := help
.PHONY: help build release man cross audit demo test test-all race test-valkey needs formatted lint prose slow soak chaos fuzz mutants lines bench bench-redis docs tidy clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build the binary into bin/stint
	go build -o bin/stint ./cmd/stint

# Under "set -m", Ctrl-C goes to the demo alone, and make ends with status 0.
demo: CASE ?= proxy
demo: ## run the proxy in front of a small server, and say what to try; CASE=budgets: of a language model; CASE=redis: two processes
	@case "$(CASE)" in proxy|budgets|redis) ;; *) echo 'CASE=$(CASE): there are CASE=proxy, CASE=budgets and CASE=redis'; exit 2;; esac
	@echo "building stint, which takes a minute the first time; Ctrl-C ends the demo"
	@go build -o bin/stint ./cmd/stint
	@[ ! -t 0 ] || set -m; if [ $(CASE) = redis ]; then release/demo-redis.sh; else bin/stint serve --demo --demo-case $(CASE); fi

# A slow test leaves itself out of -short, or has a short form. Those that compare
# for minutes do so on one goroutine, where there is no race to find.
test: formatted ## gofmt, go vet, and the tests that are not slow, with what the machine has: minutes
	@.ci/needs || true
	go vet work
	@$(TESTS) -short work; failed=$$?; .ci/missing; exit $$failed

test-all: race slow lint ## every test, with the race detector too, and lint; it fails where something is missing

race: needs formatted ## go vet, and the tests that are not slow with the race detector
	go vet work
	go test -race -short -p 3 -timeout 40m work
	@for d in $(APART); do (cd $$d && GOWORK=off go test ./...) || exit 1; done

slow: needs ## every test, slow ones too, without the race detector
	@$(TESTS) work
	@.ci/missing none

needs: ## install the servers and the browser that tests run against (Debian packages)
	@.ci/needs

formatted:
	@files=$$(gofmt -l .); if [ -n "$$files" ]; then echo "not formatted (gofmt -w):"; echo "$$files"; exit 1; fi

lint: ## golangci-lint, of a pinned version, in every module
	GOBIN=$(CURDIR)/bin GOFLAGS= go install $(GOLANGCI)
	@for d in $(WORK); do (cd $$d && $(CURDIR)/bin/golangci-lint run ./...) || exit 1; done
	@for d in $(APART); do (cd $$d && GOWORK=off $(CURDIR)/bin/golangci-lint run ./...) || exit 1; done

prose: ## vale, of a pinned version, over the documents
	go run $(VALE) --config docs/.vale.ini README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md */README.md docs/*.md docs/adr/*.md

test-valkey: ## the tests of redisstore on valkey-server instead of redis-server
	STINT_REDIS_SERVER=valkey-server go test -count=1 ./redisstore/...

soak: ## the long forms of the tests, with the race detector where goroutines meet: hours
	cd test/proof && STINT_SOAK=1 go test -count=1 -timeout 60m . && STINT_SOAK=1 go test -count=1 -run 'TestDeploys|InFlight' ./chaos
	STINT_SOAK=1 go test -count=1 -timeout 60m ./redisstore && STINT_SOAK=1 go test -count=1 -timeout 60m -run TestOracle ./service/server
	go test -race -count=1 -timeout 120m work
	@for d in $(filter adapters/%,$(APART)); do (cd $$d && GOWORK=off go test -race -count=1 ./...) || exit 1; done

fuzz: ## run every fuzz target for FUZZTIME (1m) each
	@for d in $$(go list -f '{{.Dir}}' work); do \
	  for f in $$(grep -ohE '^func Fuzz[A-Za-z0-9_]*' $$d/*_test.go 2>/dev/null | cut -c6-); do \
	    echo "== $$d $$f"; (cd $$d && go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x .) || exit 1; \
	  done; \
	done

chaos: ## three processes on a Redis cluster, a fault every few seconds for CHAOSTIME (10m), and what passed beside what is promised
	cd test/proof && STINT_CHAOS=$(CHAOSTIME) go test -count=1 -v -timeout 0 -run TestChaos ./chaos

mutants: ## plant each bug of test/proof/mutants in turn and print which test killed it
	cd test/proof && go run ./cmd/mutants

lines: ## lines of Go by folder: code, tests and what only they use
	@git ls-files '*.go' | xargs wc -l | awk '$$2 != "total" { d = $$2; sub(/\/[^\/]*$$/, "", d); if (d !~ /^cmd/) sub(/\/.*/, "", d); if ($$2 !~ /\//) d = "."; if ($$2 ~ /_test.go$$|(^|\/)(test|testkit|storetest|dbtest)\//) t[d] += $$1; else c[d] += $$1; n[d] } \
	  END { for (d in n) { printf "%-36s %6d %6d\n", d, c[d], t[d]; C += c[d]; T += t[d] } printf "%-36s %6d %6d\n", "in all", C, T }' | sort

bench: ## the figures of docs/FIGURES.md, beside other libraries; leave the machine alone meanwhile
	@$(BENCH) 'Keys|Others|Single|Middleware' -cpu 1,2 -count 7 -benchtime 200ms $(MEDIANS)
	@$(BENCH) 'Bytes|Flood' -cpu 2 -count 3 -benchtime 1x $(MEDIANS)
	@$(BENCH) 'Check|Proxy|Streams' -cpu 2 -count 7 $(MEDIANS)

bench-redis: ## the figures of docs/FIGURES.md, beside other libraries; starts its own redis-server
	@$(BENCH) 'Redis|Cluster' -cpu 2 -count 9 -benchtime 300ms $(MEDIANS)

docs: ## write the plots and the pictures of the documents anew
	go test ./cmd/stint -run TestDocs -update
	go test ./planner/lab -run TestPageShots -update
	go test . -run TestDocs -update

# RELEASE is empty where a release is published, by .github/workflows/release.yml.
release: ## build what a release has into dist/: archives, packages, sums
	go run $(GORELEASER) release --clean $(RELEASE)

man: build ## write manual pages into bin/man
	bin/stint man bin/man

cross: ## compile for the other systems, and vet the library for them and for 32 bits; takes minutes the first time
	@for t in $(TARGETS); do echo $$t; export CGO_ENABLED=0 GOOS=$${t%/*} GOARCH=$${t#*/}; go build -o /dev/null ./cmd/stint && go vet ./... || exit 1; done
	@for d in $(LIBRARY); do echo linux/386 $$d; (cd $$d && CGO_ENABLED=0 GOARCH=386 go vet ./...) || exit 1; done

audit: ## known holes (govulncheck) and unsafe code (gosec, with written exceptions)
	@for d in $(WORK); do (cd $$d && go run $(GOLANGCI) run -c $(CURDIR)/.golangci-audit.yml ./... && go run $(VULNCHECK) ./...) || exit 1; done

tidy: ## tidy every go.mod (go mod tidy ignores go.work, so give it a replace for as long as it runs)
	go mod tidy
	@for d in $(filter-out $(CURDIR),$(WORK)); do (cd $$d && \
	  for m in $(LIBRARY) $(PROGRAM); do go mod edit -replace $(MODULE)$${m#.}=$(CURDIR)$${m#.} || exit 1; done; \
	  go mod tidy; status=$$?; \
	  for m in $(LIBRARY) $(PROGRAM); do go mod edit -dropreplace $(MODULE)$${m#.}; done; exit $$status) || exit 1; done

clean: ## remove what builds and tests leave behind
	rm -rf bin dist dist-files
	find . -path '*/testdata/rapid' -prune -exec rm -rf {} +
