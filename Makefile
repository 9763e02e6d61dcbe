# The inner loop: `make run` and `make test`; `make check` before a change is done. Everything else is listed by `make help`.

# -s -w leaves the symbol table out, which nobody needs in a server that keeps its pclntab.
LDFLAGS := -s -w
# Nothing here needs C, and a program without the C library takes two mebibytes less memory.
export CGO_ENABLED := 0
# Tests check assertions. Linters have the same tags, so that no package is compiled twice.
TAGS := -tags invariants
# What kubectl says that it is; without this it warns of the skew between itself and the server.
KUBERNETES := 1.37.1
KUBECTL := -X k8s.io/component-base/version.gitVersion=v$(KUBERNETES) \
	-X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=37

# Where Kubernetes' own integration tests are, with what it takes to run them against a server in another process.
UPSTREAM_TESTS := ../shared/upstream-tests
# Some of their packages (packages.txt there), or all: make upstream PACKAGES="apply dryrun"
PACKAGES :=

# How long make fuzz spends on a target.
FUZZTIME ?= 5m

# A release: the URL of the project, or UNLICENSED=1 for a trial; some of the platforms, or all.
HOMEPAGE :=
UNLICENSED :=
PLATFORMS :=

.PHONY: fuzz-list release help run build cloud kubectl man test check race lint generate bench conformance upstream suites etcd languages nightly fuzz module site links pictures clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "%-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: build ## start the server with its data in plinth-data/
	bin/plinth serve

build: ## build bin/plinth
	@sh tools/compile.sh -tags grpcnotrace -ldflags "$(LDFLAGS)" -o bin/plinth ./cmd/plinth

cloud: ## build bin/plinth-cloud, the program for backups in object storages: a minute the first time
	@cd cloud && sh ../tools/compile.sh -trimpath -ldflags "$(LDFLAGS)" -o ../bin/plinth-cloud .

kubectl: ## build bin/kubectl, the real one, linked from its library
	cd tools && go build -ldflags "$(LDFLAGS) $(KUBECTL)" -o ../bin/kubectl ./kubectl

man: ## write the man pages to bin/man
	mkdir -p bin/man && go test ./cmd/plinth -run '^TestManPages$$' -man "$(CURDIR)/bin/man"

test: lint ## what one runs while working: lint and the tests of the product
	go test -vet=off $(TAGS) ./... # lint has vetted them

check: ## real clients, controllers and etcd, and what is recorded of kube-apiserver, against a spawned server, and a release for linux/amd64: twenty minutes
	cd tools && go build -o /dev/null ./kubectl
	cd tools && go test -count=1 ./module # the sources that it copies are none of the inputs that go test knows of
	cd tools/helm && go build -o /dev/null helm.sh/helm/v4/cmd/helm
	cd tools/site && go test -count=1 ./... # the pages are none of the inputs that go test knows of; Hugo is built the first time: minutes
	cd release && go test -count=1 ./... # the sources that it builds are none of the inputs that go test knows of
	cd cloud && go vet ./... && go test -count=1 ./... # the product's packages are in another module
	cd conformance && go run ./programs # kube-controller-manager, kube-scheduler, KWOK and etcd: minutes the first time
	cd conformance/monitoring && go test -count=1 ./...
	cd conformance && go test -count=1 -timeout 20m ./... # the server that they run is none of the inputs that go test knows of; client/outside builds the libraries of 2024 the first time

# The race detector is written in C.
race: export CGO_ENABLED := 1
race: ## the product's tests under the race detector
	go test -race ./...

lint: ## formatting, vet and static checks
	@test -z "$$(gofmt -l . | tee /dev/stderr)" || { echo 'run gofmt -w on the files above'; exit 1; }
	@sh tools/compile.sh -buildmode=archive $(TAGS) ./...
	go vet $(TAGS) ./...
	go tool staticcheck $(TAGS) ./...

release: ## all files of a release in bin/release (HOMEPAGE, or UNLICENSED=1 for a trial; PLATFORMS): see docs/releasing.md
	cd release && go run . -out ../bin/release -home "$(HOMEPAGE)" -platforms "$(PLATFORMS)" $(if $(UNLICENSED),-trial)

generate: ## bring generated files up to date (after bumping k8s.io/api, for one)
	go generate ./...

bench: ## drive the reference and Plinth side by side and print the budgets of docs/spec.md
	cd conformance && go run ./load/bench

conformance: ## the tests that need the reference: builds it first (minutes the first time)
	cd conformance && CONFORMANCE_REFERENCE=1 go test -count=1 -timeout 60m ./...

upstream: build ## Kubernetes' own integration tests against bin/plinth, where they are (UPSTREAM_TESTS, PACKAGES): an hour
	@sh tools/upstream.sh "$(UPSTREAM_TESTS)" bin/plinth $(PACKAGES)

suites: ## suites of controller-runtime, Cluster API and JobSet that run on envtest, the webhook servers of operators, aggregated API servers, and the policies of a library, on Plinth and on the reference
	cd conformance && ENVTEST_SUITES=1 go test -count=1 -timeout 180m ./client/envtest -run 'TestSuites|TestThreeWays' -v
	cd conformance && ENVTEST_SUITES=1 go test -count=1 -timeout 30m ./client/outside -run TestJobSet -v
	cd conformance && OPERATORS=1 go test -count=1 -timeout 60m ./client/operators -v
	cd conformance && AGGREGATION=1 go test -count=1 -timeout 30m ./client/aggregation -v
	cd conformance && POLICIES=1 go test -count=1 -timeout 60m ./client/policies -v

etcd: ## clients on a Plinth whose objects are in an etcd, and Plinth beside a real kube-apiserver on one etcd, for ten minutes
	cd conformance && CONFORMANCE_STORE=etcd go test -count=1 -timeout 90m ./client/apply ./client/clientgo ./client/collection ./client/kubectl ./http/requests
	cd conformance && CONFORMANCE_REFERENCE=1 go test -count=1 -timeout 90m ./store/etcd -beside 10m -frozen 1m -v
	cd conformance && go test -count=1 -timeout 20m ./store/replicas -duration 1m -v
	cd conformance && CONFORMANCE_REFERENCE=1 go test -count=1 -timeout 40m ./store/rolling -duration 2m -strict -v

languages: ## the Python and JavaScript clients read from Plinth, and the examples of docs/testing-other-languages.md; the clients are fetched from Debian and npm
	cd conformance && go run ./client/languages

nightly: ## the oracles of merges, patches, custom types and the past at length, mutants of the merge and of the rules, informers and loads, and fuzzing: hours
	cd conformance && go test -count=1 -timeout 3h ./oracle/merge -histories 100000 -seed "$$(date +%s)"
	cd conformance && go test -count=1 -timeout 3h ./oracle/merge -run TestHistories -histories 20000 -scattered 0.2 -seed "$$(date +%s)"
	cd conformance && go test -count=1 -timeout 1h ./oracle/merge -v -run 'TestUnreachable$$' -coverage
	cd conformance && go test -count=1 -timeout 1h ./oracle/merge -run Mutants -mutations -1
	cd conformance && go test -count=1 -timeout 3h ./mutants -all
	cd conformance && go test -count=1 -timeout 2h ./oracle/patches -cases 100000 -seed "$$(date +%s)"
	cd conformance && go test -count=1 -timeout 1h ./oracle/schema -cases 100000 -seed "$$(date +%s)"
	cd conformance && go test -count=1 -timeout 1h ./oracle/custom -schemas 2000 -seed "$$(date +%s)"
	go test -count=1 -timeout 2h -vet=off $(TAGS) ./internal/plane -run TestPastHistories -histories 10000 -seed "$$(date +%s)"
	go test -count=1 -timeout 2h -vet=off $(TAGS) ./internal/store/etcd -run TestSimulation -deviations 2 -simulations 200000 -seed "$$(date +%s)"
	cd conformance && go test -count=1 -timeout 1h ./store/replicas -duration 5m -seed "$$(date +%s)" -v
	cd conformance && go test -count=1 -timeout 1h ./store/rolling -run TestControllers -duration 10m -nodes 100 -pods 2000 -strict -v
	cd conformance && go test -count=1 -timeout 30m ./store/rolling -run 'TestControllers$$' -fault pod -v
	cd conformance && go test -count=1 -timeout 30m ./store/rolling -run 'TestControllers$$' -fault kill -v
	cd conformance && go test -count=1 -timeout 2h ./load/reading ./load/soak -full
	cd conformance && go run ./load/planes
	cd conformance && go test -count=1 -timeout 1h ./client/collection -run TestKill -kills 100
	go test -count=1 -timeout 1h -vet=off $(TAGS) ./internal/backup -run TestKillShipping -kills 100
	cd conformance && CONFORMANCE_TARGET=plane go test -count=1 -timeout 1h ./client/kubectl ./client/apply ./client/clientgo ./client/controllers ./client/collection ./client/cbor ./http/realcrds ./http/discovery ./http/tokens ./http/authentication
	cd conformance && go test -count=1 -timeout 1h ./client/planes -kills 50 -planes 100 -seed "$$(date +%s)" -v
	cd conformance && go test -count=1 -timeout 1h ./client/plinthtest -run TestYear -full
	cd conformance && go test -count=1 -timeout 1h ./client/plinthtest -run TestYear -year
	cd tools && go test -count=1 -timeout 3h ./module -run TestRenamedRepository -full
	cd release && go test -count=1 -timeout 3h . -run TestReproducible -full -v
	cd docs/examples/testcontainers && go vet ./...
	cd conformance && go test -count=1 -timeout 1h ./store/releases -last -v
	$(MAKE) fuzz

fuzz: ## every fuzz target that fuzz-list finds, for FUZZTIME each
	$(MAKE) -s fuzz-list | while read -r package target; do go test "$$package" -run none -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 20x || exit 1; done

fuzz-list:
	@grep -roE '^func Fuzz[A-Za-z0-9_]+' --include='*_test.go' --exclude-dir=conformance --exclude-dir=tools . | sed -E 's,/[^/]+:func , ,' | sort

module: ## give the module another path, here and in all that names it: make module MODULE=example.com/plinth
	cd tools && go run ./module .. "$(MODULE)"

pictures: ## write README's pictures of the console to docs/images, with a browser
	cd conformance && go test ./console -run TestReadmePictures -args -readme $(CURDIR)/docs/images

site: ## write the site of all Markdown, with search, to bin/site; open bin/site/index.html
	cd tools/site && go tool hugo --destination "$(CURDIR)/bin/site" --cleanDestinationDir --noBuildLock --panicOnWarning

links: ## ask the other sites that links lead to whether they have these pages
	cd tools/site && go test -count=1 -timeout 60m . -run TestExternalLinks -external

clean: ## remove what was built
	rm -rf bin
