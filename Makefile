# levee's commands. `make run` and `make test` need root; both install what is missing.
CARGO ?= cargo
export CARGO_TERM_COLOR ?= auto

.PHONY: help run crowd elsewhere units enforced test accreditation test-pure fuzz reference book pages advisories lint bench bench-full study build install uninstall packages packages-test reproducible clean mutants soak

help:
	@echo 'make run          bring up a multilevel server on this machine, use it at two levels, leave a report'
	@echo 'make crowd        a hundred people at a hundred workstations at a hundred levels, all at once: two minutes, 30 GB of disk for their stores'
	@echo 'make elsewhere    the same, but for the study, in a virtual machine with Debian 12: Linux 6.1, cgroup v2 alone; TESTS="partitions layers": these programs of tests there instead'
	@echo 'make units        a site by the systemd units, and people who log in by PAM and sit at its screen, in a virtual machine with Debian 12: some minutes'
	@echo 'make test         everything that CI runs'
	@echo 'make test-pure    the tests that need no privilege; z3 must be there'
	@echo 'make fuzz         every fuzz target for 60 s each, with libFuzzer'
	@echo 'make soak         a server of which one label is wholly hostile, for half an hour: what others lose, what grows'
	@echo 'make mutants      changes what decides, one place at a time, and shows what no test notices (CRATE=core/esp: of that one)'
	@echo 'make lint         formatting, clippy, licences'
	@echo 'make bench        the vault beside other user-mode tunnels, IKEv2 beside strongSwan, what the ledger costs, what a siege does: a quarter of an hour and more, out/bench/report.md, ike.jsonl, oneway.jsonl, ledger.jsonl, siege.jsonl'
	@echo 'make bench-full   the same with every variant in five rounds; Ctrl-C keeps what is measured'
	@echo 'make study        the MYSEA study in full, and our workloads beside other tools: an hour, out/study; Ctrl-C and again goes on'
	@echo 'make book         the book (docs/book) as pages for a browser, out/book; makes mdbook the first time'
	@echo 'make pages        pictures of every page of the book and of a report of the laboratory, wide and narrow, light and dark, to look at; out/pages'
	@echo 'make advisories   known faults of the crates that levee is built from; ADVISORIES=DIR for a copy of the database'
	@echo 'make install      programs, man pages, completions and units under PREFIX (/usr/local)'
	@echo 'make uninstall    removes what make install put there; keys, site files and logs stay'
	@echo 'make packages     .deb and .rpm for servers, workstations and the laboratory, and a bill of materials, in out/packages'
	@echo 'make reproducible  builds the last commit twice, in two places, and compares the programs: half an hour and more'
	@echo 'make accreditation  runs every test, and writes claims, evidence and what it gave here as an assessor reads them: out/accreditation.md'
	@echo 'make packages-test  installs, upgrades and removes them in clean roots of Debian 12 and 13 and Ubuntu 24.04'

run:
	@scripts/need run
	@CARGO=$(CARGO) scripts/build
	@scripts/demo target/release

crowd:
	@scripts/need run
	@CARGO=$(CARGO) scripts/build --workspace --bins
	@target/release/crowd

elsewhere:
	@scripts/need elsewhere
ifdef TESTS
	@scripts/elsewhere --tests '$(TESTS)'
else
	@CARGO=$(CARGO) scripts/build --workspace --bins
	@scripts/elsewhere target/release
endif

units:
	@scripts/need elsewhere
	@CARGO=$(CARGO) scripts/build --workspace --bins
	@scripts/units target/release

test:
	@scripts/need test
	@scripts/test

# The pack is written whatever the tests say: what failed is in it.
accreditation:
	@scripts/need test
	@mkdir -p out
	@scripts/test >out/test.log 2>&1 || echo 'some tests failed: out/test.log' >&2
	scripts/accreditation out/test.log >out/accreditation.md

test-pure:
	$(CARGO) test -p levee-policy -p levee-session -p levee-esp -p levee-ike -p levee-labelled -p levee-proofs

fuzz:
	@scripts/fuzz

soak:
	@CARGO=$(CARGO) scripts/build --workspace --bins
	@target/release/soak

mutants:
	@scripts/mutants $(CRATE)

# The page of docs that comes from what the parser of site files reads.
reference:
	$(CARGO) run --quiet -p levee --bin levee -- check --explain all --markdown >docs/site.md.new
	@mv docs/site.md.new docs/site.md

book:
	@scripts/book

# The report is the one of the last `make run`, if there is one.
pages: book
	scripts/pages out/pages out/book $(wildcard out/run/mysea/report.html)

advisories:
	@scripts/advisories $(ADVISORIES)

lint:
	@scripts/lint --clippy
	@scripts/licences

bench:
	@scripts/bench --quick
	@mkdir -p out/bench
	$(CARGO) bench --quiet -p levee-ike-interop --bench ike >out/bench/ike.jsonl
	@cat out/bench/ike.jsonl
	$(CARGO) bench --quiet -p levee-channel --bench wire >out/bench/oneway.jsonl
	@cat out/bench/oneway.jsonl
	@CARGO=$(CARGO) scripts/build
	$(CARGO) bench --quiet -p levee-system --bench ledger >out/bench/ledger.jsonl
	@cat out/bench/ledger.jsonl
	$(CARGO) bench --quiet -p levee-system --bench siege >out/bench/siege.jsonl
	@cat out/bench/siege.jsonl

bench-full:
	@scripts/bench --full

study:
	@scripts/need study
	@CARGO=$(CARGO) scripts/build --workspace --bins
	@scripts/study

build:
	@CARGO=$(CARGO) scripts/build

reproducible:
	@scripts/reproducible

# The programs find each other in one directory; only those that people call are on the path.
PREFIX ?= /usr/local
install: build
	scripts/install target/release "$(DESTDIR)" "$(PREFIX)"

uninstall:
	scripts/uninstall "$(DESTDIR)" "$(PREFIX)"

packages: build
	scripts/packages target/release out/packages

packages-test: build
	scripts/packages-test target/release

clean:
	$(CARGO) clean
