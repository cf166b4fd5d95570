# Each recipe does its own set-up: a virtual environment with the versions of constraints.txt.
PYTHON := .venv/bin/python
READY := .venv/ready

.PHONY: demo test format author reference

demo: $(READY)  ## tensor parallelism beside one device, on the real base model; then a sample class is graded
	$(PYTHON) exercises/lecture09/tensor_parallel.py --impl solutions
	rm -rf build/sample-class && $(PYTHON) -m grader sample build/sample-class
	$(PYTHON) -m grader grade build/sample-class/* --json build/sample-class.json || test $$? -eq 1

test: $(READY)  ## everything that must hold before a change lands
	$(PYTHON) -m ruff check . && $(PYTHON) -m ruff format --check . && $(PYTHON) -m mypy
	$(PYTHON) -m pytest tests/test_misconceptions.py & mistakes=$$!; \
	$(PYTHON) -m pytest --ignore tests/test_misconceptions.py || { kill $$mistakes; exit 1; }; wait $$mistakes

format: $(READY)
	$(PYTHON) -m ruff check --fix . && $(PYTHON) -m ruff format .

author: $(READY)  ## make stubs and fingerprints anew from solutions/ and tests/misconceptions/
	$(PYTHON) -m grader author

reference: $(READY)  ## the lecture programs' output with the solutions, into solutions/reference/
	$(PYTHON) -m grader reference

$(READY): pyproject.toml constraints.txt
	python3 -m venv .venv
	$(PYTHON) -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(READY)
