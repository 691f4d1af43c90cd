# What CI runs is `make test`. Every target sets up what it needs; `make help` lists them.
PYTHON ?= python3
BIN := .venv/bin
ARGS ?=
ONLY ?=
KILLS ?= 300
FRAMES ?= 1000000
CONNECTIONS ?= 10000
SEEDS ?= 0-99
JOBS ?= 2
MINUTES ?= 10
SEED ?=
KEEP ?=
RUNS ?=
JARS ?=

# Tests start hundreds of Pythons: without this, each would compile every module again where the environment says so.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: night watch-soak transactions-soak corruption coverage properties help cluster-soak migrate-soak demo java venv test dist style format contracts types imports tests soak clients-go clients-rust mutants bench bench-core bench-start bench-compaction bench-heartbeat bench-watch bench-tls bench-consumer-groups bench-transactions docs clean bench-records conformance spark-soak bench-spark spark-transactions-soak spark-committer spark-oldest spark-connector bench-pipeline pipeline-soak sim sim-soak bench-sim bench-code sample sample-soak sample-compare axe bench-page plan-calibration plan-sweep bench-pipeline-size pipeline-delta pipeline-iceberg

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: venv ## a two-minute guided run: members join, leave, crash and are redeployed; then a report (ARGS="--keep")
	@$(BIN)/coterie demo $(ARGS)

axe: ## the accessibility checks of the page's tests, with npm, into build/
	@npm install --no-audit --no-fund --no-package-lock --prefix build/axe axe-core@4.14.0

bench-page: venv ## open and pan a page of 10 000 partitions and 1 000 rebalances in Chromium
	@$(BIN)/python bench/page.py $(ARGS)

java: ## install Java for Spark with apt; needs root
	@sh tools/java.sh

venv: .venv/installed ## .venv with the package and its tools; .venv/bin/coterie runs

.venv/installed: pyproject.toml constraints.txt setup.py $(wildcard src/coterie/*/_fast_*.px[yi])
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip -c constraints.txt
	$(BIN)/python -m pip install --quiet --editable '.[dev]' -c constraints.txt --build-constraint constraints.txt
	@touch $@
	@$(BIN)/coterie --version

test: venv style ## everything CI runs: style, types, import contracts, all tests
	@$(MAKE) --no-print-directory -j 2 contracts tests

contracts: types imports ## mypy and the import contracts

style: venv ## ruff: check lint and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: venv ## ruff: format and fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: venv ## mypy --strict
	$(BIN)/mypy

imports: venv ## import contracts: which package may import which
	$(BIN)/lint-imports

# COTERIE_TEST_CLOCK=36000000,500 make test: the same, with brokers whose wall clock is 10 hours ahead and 500 ppm too fast
# (src/coterie/broker/io/clock.py).
tests: venv ## pytest, in random order, in six processes; compiled parts also in pure Python
	$(BIN)/pytest -n 6
	COTERIE_PURE=1 $(BIN)/pytest $(addprefix tests/protocol/test_,records.py fetched.py arrow.py twins.py commit_rows.py)

coverage: venv ## the tests, and how much of the code they run: a figure, and a page for each file; all tests, or ARGS=tests/coordinator
	@rm -rf build/coverage && mkdir -p build/coverage
	$(BIN)/coverage run -m pytest -n 2 $(ARGS); tests=$$?; \
	$(BIN)/coverage combine --quiet && $(BIN)/coverage html --quiet --directory build/coverage/html && \
	echo "coverage: $$($(BIN)/coverage report --format=total) % of the lines and branches of src/coterie; by file: build/coverage/html/index.html" && \
	exit $$tests

properties: venv ## the property tests with random cases, and the seed that repeats them; make test tries the same cases each time (SEED=, ARGS=tests/coordinator)
	@seed=$(or $(SEED),$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')); echo "property tests, seed $$seed"; \
	COTERIE_HYPOTHESIS=soak $(BIN)/pytest -n 2 -m hypothesis --timeout 7200 --hypothesis-seed=$$seed $(ARGS) || \
	{ echo "to repeat it: make properties SEED=$$seed"; exit 1; }

soak: venv properties ## make properties; kill -9 the broker 300 times under load, a million hostile frames, 10 000 connections, attacks beside a member, clients that authenticate again every 5 s, 135 000 that do not log in (KILLS=, FRAMES=, CONNECTIONS=, SEED=)
	PYTHONPATH=tests $(BIN)/python tests/soak/kill9.py --kills $(KILLS) $(if $(SEED),--seed $(SEED))
	PYTHONPATH=tests $(BIN)/python tests/soak/fuzz.py --frames $(FRAMES) $(if $(SEED),--seed $(SEED))
	PYTHONPATH=tests $(BIN)/python tests/soak/crowd.py --connections $(CONNECTIONS)
	PYTHONPATH=tests $(BIN)/python tests/soak/adversary.py
	COTERIE_SECURED_SOAK=1 $(BIN)/pytest tests/clients/test_secured.py -k authenticate_again
	PYTHONPATH=tests $(BIN)/python tests/soak/unauthenticated.py
	COTERIE_ALL_PYTHONS=1 $(BIN)/pytest tests/package/test_pythons.py

transactions-soak: venv ## kill -9 the broker 300 times in the middle of transactions, of raw requests and of librdkafka (KILLS=, SEED=)
	PYTHONPATH=tests $(BIN)/python tests/soak/transactions.py --kills $(KILLS) $(if $(SEED),--seed $(SEED))

night: venv ## a night of scripted misfortune with real clients on both brokers: is every rebalance explained, and nothing else (SEED=, ONLY="crash,pauses"); needs Java
	PYTHONPATH=tests $(BIN)/python tests/soak/night.py $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only $(ONLY)) $(ARGS)

watch-soak: venv ## kill coterie watch 30 times while groups commit and rebalance, on both brokers: its ledger has every record, once (KILLS=, SEED=); needs Java
	PYTHONPATH=tests $(BIN)/python tests/soak/watch_restarts.py --kills $(if $(filter 300,$(KILLS)),30,$(KILLS)) $(if $(SEED),--seed $(SEED)) $(ARGS)

plan-calibration: venv ## ten situations with real members on both brokers, and what coterie plan says about them; needs Java, takes ten minutes (RUNS=, ONLY="crash-eager,deploy-eager")
	for broker in coterie apache; do PYTHONPATH=tests $(BIN)/python tests/soak/plan_calibration.py --on $$broker --runs $(or $(RUNS),1) $(if $(ONLY),--only $(ONLY)) $(ARGS); done

plan-sweep: venv ## worlds of coterie plan on Spark: the rate on one core and on two, and the same rows while executors and Python workers are killed; needs Java, takes eight minutes (WORLDS=120, SEED=)
	PYTHONPATH=tests $(BIN)/python tests/soak/plan_sweep.py --worlds $(or $(WORLDS),120) $(if $(SEED),--seed $(SEED)) --json bench/results/plan_sweep.json $(ARGS)

corruption: venv ## every file of a data directory, damaged in every way, after a stop and after kill -9: each damage is repaired, refused or reported (SEED=)
	PYTHONPATH=tests $(BIN)/python tests/soak/corruption.py $(if $(SEED),--seed $(SEED))

sim: venv ## simulate 100 seeds of mixed workloads, and print what they covered (SEEDS=0-99, ARGS="--workload flapping")
	$(BIN)/coterie sim --seeds $(SEEDS) $(ARGS)

sim-soak: venv ## simulate 10 000 seeds of mixed workloads, two at a time: none may fail; the summary is kept in bench/results/sim_soak.txt (SEEDS=, JOBS=)
	@mkdir -p build; began=$$(git rev-parse --short HEAD); \
	$(BIN)/coterie sim --seeds $(if $(filter 0-99,$(SEEDS)),0-9999,$(SEEDS)) --jobs $(JOBS) > build/sim_soak.txt; failed=$$?; \
	{ echo "commit $$began, seeds $(if $(filter 0-99,$(SEEDS)),0-9999,$(SEEDS))"; cat build/sim_soak.txt; } | tee bench/results/sim_soak.txt; \
	exit $$failed

conformance: venv ## send the same requests to Apache Kafka 4.3.1 and Coterie, and compare (KEEP=1 keeps Kafka's answers, ONLY=); then live members on both
	PYTHONPATH=tests $(BIN)/python tests/conformance/record.py $(if $(KEEP),--keep) $(if $(ONLY),--only $(ONLY))
	$(if $(ONLY),,PYTHONPATH=tests $(BIN)/python tests/conformance/acls/record.py $(if $(KEEP),--keep))
	$(if $(ONLY),,PYTHONPATH=tests $(BIN)/python tests/conformance/consumer_groups/record.py $(if $(KEEP),--keep))
	$(if $(ONLY),,PYTHONPATH=tests $(BIN)/python tests/conformance/transactions/record.py $(if $(KEEP),--keep))
	$(if $(ONLY),,COTERIE_CONFORMANCE=1 $(BIN)/pytest tests/clients/test_scenarios.py tests/clients/test_our_commands.py tests/cli/test_live_page.py)

spark-soak: venv ## three members of a group, two of them Spark applications, that join, stop and are killed; then one on a standalone cluster (MINUTES=, KILLS=15, SEED=)
	COTERIE_SPARK_SOAK=1 $(BIN)/pytest tests/spark/test_ways_to_run.py tests/spark/test_secured_on_spark.py tests/spark/test_sweep.py tests/spark/test_pipeline_topics.py tests/spark/test_group_tables.py tests/spark/test_group_views.py tests/spark/test_transactional_sink.py tests/spark/test_batch_commits.py
	PYTHONPATH=tests $(BIN)/python tests/soak/spark_members.py --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))
	PYTHONPATH=tests $(BIN)/python tests/soak/spark_members.py --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) --on apache
	for broker in coterie apache; do PYTHONPATH=tests $(BIN)/python tests/soak/spark_cluster.py --on $$broker --minutes $(MINUTES) --kills $(if $(filter 300,$(KILLS)),15,$(KILLS)) $(if $(SEED),--seed $(SEED)) || exit 1; done

spark-transactions-soak: venv ## exactly once from Kafka through Spark to Kafka: 12 kill -9 of drivers, executors and members, on Coterie and on Apache Kafka (KILLS=12, SEED=)
	COTERIE_SPARK_SOAK=1 $(BIN)/pytest tests/spark/test_batch_commits.py tests/spark/test_transactional_sink.py
	for broker in coterie apache; do PYTHONPATH=tests $(BIN)/python tests/soak/spark_transactions.py --on $$broker --kills $(if $(filter 300,$(KILLS)),12,$(KILLS)) $(if $(SEED),--seed $(SEED)) || exit 1; done

migrate-soak: venv ## coterie migrate to three Apache Kafka brokers under load, killed twice; a group of three libraries moves; then Kafka to Kafka with TLS and SASL on Spark (KILLS=2, SEED=); needs Java
	PYTHONPATH=tests $(BIN)/python tests/soak/migrate.py --kills $(if $(filter 300,$(KILLS)),2,$(KILLS)) $(if $(SEED),--seed $(SEED))

cluster-soak: venv ## three Apache Kafka brokers restarted, killed, elected uncleanly; groups of four libraries lose nothing (MINUTES=, SEED=)
	PYTHONPATH=tests $(BIN)/python tests/soak/cluster.py --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

spark-committer: venv ## commits for a query on Spark's JVM source; Kafka's own tool shows its lag (Spark 4.0.0)
	$(PYTHON) -m venv .venv-spark-4.0
	.venv-spark-4.0/bin/python -m pip install --quiet 'pyspark==4.0.0' 'pyarrow<22' --editable .
	PYTHONPATH=tests $(BIN)/python tests/soak/spark_committer.py .venv-spark-4.0/bin/python

spark-connector: venv ## every option of Spark's own Kafka source and of Coterie's, one beside the other; writes the table of docs/spark.md
	COTERIE_SPARK_JARS=spark-kafka-4.2.0 COTERIE_WRITE_TABLE=1 $(BIN)/pytest -s tests/spark/test_connector.py

pipeline-soak: venv ## the pipeline on a live Apache Kafka; killed ten times during --follow (KILLS=10, SEED=)
	COTERIE_PIPELINE_SOAK=1 $(BIN)/pytest tests/spark/test_pipeline.py tests/spark/test_pipeline_on_kafka.py
	PYTHONPATH=tests $(BIN)/python tests/soak/pipeline_kill9.py --kills $(if $(filter 300,$(KILLS)),10,$(KILLS)) $(if $(SEED),--seed $(SEED))

clients-go: venv ## members with franz-go and kafka-go, and transactions with franz-go; needs Go, and a minute to build
	COTERIE_GO_CLIENTS=1 $(BIN)/pytest tests/clients/test_go.py

clients-rust: venv ## transactions with the crate rdkafka; needs Rust and a C compiler, and minutes to build
	COTERIE_RUST_CLIENTS=1 $(BIN)/pytest tests/clients/test_rust.py

sample: venv ## the sample project of tests of consumers, outside this clone with the wheel: 50 tests of three client libraries
	$(BIN)/python tests/soak/sample.py run

sample-soak: venv ## the sample project 200 times beside a busy process, in one process and in two: none may fail (RUNS=)
	$(BIN)/python tests/soak/sample.py soak --runs $(or $(RUNS),200)

sample-compare: venv ## ten tests with coterie.testing and with Apache Kafka 4.3.1: lines, seconds, failures in 20 runs; needs Java (RUNS=)
	PYTHONPATH=tests $(BIN)/python tests/soak/sample.py compare --runs $(or $(RUNS),20)

mutants: venv ## put defects into a copy, one by one: a test or one of 100 seeds must find each; ten minutes of CPU (ONLY="10 11" rules, ONLY=sim, JOBS=)
	PYTHONPATH=tests $(BIN)/python -m mutants --jobs $(JOBS) $(ARGS) $(ONLY)

bench: venv ## Coterie and Apache Kafka side by side: groups, loads, TLS, consumer groups; needs Java, takes an hour
	$(BIN)/python bench/next_to_kafka.py --json bench/results/next_to_kafka.json
	@$(MAKE) --no-print-directory bench-tls bench-consumer-groups

bench-core: venv ## CPU of a heartbeat, a commit and a rebalance in the group code, and memory per member
	$(BIN)/python bench/core.py --json bench/results/core.json

bench-code: venv ## files, lines, names that stand more than once, and the files that a request passes through
	$(BIN)/python bench/code.py --json bench/results/code.json

bench-sim: venv ## simulated hours of a group of ten per minute of CPU, and CPU per seed
	$(BIN)/python bench/sim.py --json bench/results/sim.json

bench-start: venv ## from exec of coterie serve to its first answer, and its memory
	$(BIN)/python bench/start.py --json bench/results/start.json

bench-compaction: venv ## a million commits of few offsets: the size of their log, and a start from it, compacted and not
	$(BIN)/python bench/compaction.py --json bench/results/compaction.json

bench-watch: venv ## CPU and memory of coterie watch with 1 000 groups of 50 partitions and 2 000 commits a second
	$(BIN)/python bench/watch.py --json bench/results/watch.json

bench-heartbeat: venv ## CPU per heartbeat at 1000 connections, compared with a minimal server
	$(BIN)/python bench/heartbeat.py --json bench/results/heartbeat.json

bench-tls: venv ## CPU per heartbeat over TLS, Coterie and Apache Kafka in one run; needs Java
	PYTHONPATH=tests $(BIN)/python bench/tls.py --json bench/results/tls.json

bench-consumer-groups: venv ## consumer groups (KIP-848) of Coterie and Apache Kafka in one run; needs Java, takes 10 minutes
	PYTHONPATH=tests $(BIN)/python bench/consumer_groups.py --json bench/results/consumer_groups.json

bench-transactions: venv ## CPU of a transaction with ten records and an offset, Coterie and Apache Kafka in one run; needs Java, takes 3 minutes
	PYTHONPATH=tests $(BIN)/python bench/transactions.py --json bench/results/transactions.json

bench-spark: venv ## Coterie's Spark source and sink compared with Spark's own; needs Java and Maven
	PYTHONPATH=tests $(BIN)/python bench/spark.py --json bench/results/spark.json

bench-records: venv ## CPU per million records: to objects, to Arrow, and written; compiled next to plain Python
	$(BIN)/python bench/records.py --json bench/results/records.json

bench-clients: venv ## producing and consuming 1 M records, next to kafka-python, aiokafka and confluent-kafka; half an hour
	$(BIN)/python bench/clients.py --json bench/results/clients.json

bench-pipeline-size: venv ## the size of the lag tables: 1 000 groups of 50 partitions, every minute, 30 days
	$(BIN)/python bench/pipeline_size.py --json bench/results/pipeline_size.json

# A Spark of another version beside the one of .venv, which has all else; its packages come by Maven (tests/spark_connector.py).
pipeline-delta: venv ## the tables of Delta Lake on Spark 4.2, the newest that Delta has a package for; values in Protobuf, if JARS has spark-protobuf (JARS="A.jar B.jar"); needs Java and Maven
	test -d build/spark-4.2 || $(BIN)/pip install -q --no-deps --target build/spark-4.2 pyspark==4.2.1
	PYTHONPATH=build/spark-4.2:tests COTERIE_SPARK_JARS="delta-4.2 $(JARS)" $(BIN)/pytest -p no:randomly tests/spark/test_spark_packages.py

spark-oldest: venv ## the source, the sink and members of groups on pyspark 4.2, the oldest that the extra allows; needs Java
	test -d build/spark-4.2 || $(BIN)/pip install -q --no-deps --target build/spark-4.2 pyspark==4.2.1
	PYTHONPATH=build/spark-4.2:tests $(BIN)/pytest -p no:randomly tests/spark/test_on_spark.py tests/spark/test_members_on_spark.py tests/spark/test_lookup.py

pipeline-iceberg: venv ## the tables of Iceberg, and values in Avro, on Spark 4.1, the newest that both have a package for; needs Java and Maven
	test -d build/spark-4.1 || $(BIN)/pip install -q --no-deps --target build/spark-4.1 pyspark==4.1.1
	PYTHONPATH=build/spark-4.1:tests COTERIE_SPARK_JARS="iceberg-4.1 spark-avro-4.1.1 spark-kafka-4.1.1" $(BIN)/pytest -p no:randomly -W ignore::pytest.PytestUnraisableExceptionWarning tests/spark/test_spark_packages.py  # 4.1 leaves sockets open

bench-pipeline: venv ## CPU per million records of __consumer_offsets decoded in Spark, 1 M and 10 M, and memory
	$(BIN)/python bench/pipeline.py --json bench/results/pipeline.json

docs: venv ## generate pages of docs/ from the code, and build all of them into build/docs/index.html
	$(BIN)/python docs/generate.py
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going docs build/docs

dist: venv ## the source distribution, and the wheel made from it, in dist/ (COTERIE_PURE=1: a wheel for every machine)
	$(BIN)/uv build --quiet --build-constraint constraints.txt --clear
	@ls dist

clean: ## remove what the other targets have made
	rm -rf .venv .venv-spark-4.0 build dist src/*.egg-info src/coterie/protocol/*.so .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
