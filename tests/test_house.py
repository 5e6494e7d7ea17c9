"""The house rules, kept: how long files and functions are, who imports whose private names, what no library may switch.

Every exception of today stands here with its size and its reason. The lists may only shrink: an exception that has
grown fails, and so does one that is no longer needed.
"""

import ast
import functools
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import ngmp_compiler as ngmp

ROOT = Path(__file__).parents[1]
LIBRARY = ("ngmp_compiler", "kernels/ngmp_kernels", "models/ngmp_models")
TESTS = ("tests", "benchmarks", "notebooks", "docs")
SOURCE_LINES, TEST_LINES, FUNCTION_LINES = 300, 400, 50

LONG_FILES = {  # lines, and why
}
LONG_FUNCTIONS = {
    "ngmp_compiler/compiling.py:compile": (60, "of which 35 document its options"),
    "ngmp_compiler/linalg/banded.py:banded_gaussian": (59, "one elimination with its steps inside"),
    "ngmp_compiler/linalg/scalar_chain.py:_scan": (62, "two ends of a chain as lanes of one loop, its steps inside"),
    "benchmarks/neurons.py:by_hand": (63, "the paper's updates written out, to be read beside them"),
}
PRIVATE: dict[str, str] = {}
SWITCHES = {"models/ngmp_models/demo.py: jax.config.update": "a program of its own, `python -m ngmp_models`"}


def files(*folders: str) -> list[str]:
    return sorted(str(p.relative_to(ROOT)) for folder in folders for p in (ROOT / folder).rglob("*.py"))


@functools.cache
def parsed(path: str) -> tuple[ast.Module, int]:
    text = (ROOT / path).read_text().removeprefix("# SPDX-License-Identifier: Apache-2.0\n")  # it is no line of ours
    return ast.parse(text), len(text.splitlines())


def assert_bounded(found: dict[str, int], limit: int, exceptions: dict[str, tuple[int, str]]) -> None:
    """What is longer than the limit is in the list, no longer than it says there; and nothing else is in the list."""
    long = {name: n for name, n in found.items() if n > limit}
    grown = {name: n for name, n in long.items() if n > exceptions.get(name, (limit, ""))[0]}
    assert not grown, f"over {limit} lines, or longer than listed above: {grown}"
    done = [name for name in exceptions if name not in long]
    assert not done, f"no longer exceptions; take them off the list: {done}"


def test_source_files_are_short():
    assert_bounded({f: parsed(f)[1] for f in files(*LIBRARY)}, SOURCE_LINES, LONG_FILES)


def test_test_files_are_short():
    assert_bounded({f: parsed(f)[1] for f in files(*TESTS)}, TEST_LINES, {})


def test_functions_are_short():
    found: dict[str, int] = {}
    for path in files(*LIBRARY, *TESTS):
        for node in ast.walk(parsed(path)[0]):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                name = f"{path}:{node.name}"
                found[name] = max(found.get(name, 0), (node.end_lineno or 0) - node.lineno + 1)
    assert_bounded(found, FUNCTION_LINES, LONG_FUNCTIONS)


@pytest.mark.parametrize("folder", [*LIBRARY, "tests", "benchmarks"])
def test_every_file_and_room_says_what_it_is_for(folder):
    silent = [f for f in files(folder) if not ast.get_docstring(parsed(f)[0])]
    assert not silent
    rooms = {p.parent for p in (ROOT / folder).rglob("*.py")}
    assert folder in TESTS or not [r for r in rooms if not (r / "__init__.py").exists()]


def test_tests_mirror_the_rooms():
    rooms = {Path(f).parent.name for f in files("ngmp_compiler")} - {"ngmp_compiler", "gaussian", "discrete", "rules"}
    assert not [room for room in rooms if not list((ROOT / "tests" / room).glob("test_*.py"))]
    rooms = {Path(f).parent.name for f in files("kernels/ngmp_kernels")} - {"ngmp_kernels"}
    assert not [room for room in rooms if not list((ROOT / "tests" / "kernels" / room).glob("test_*.py"))]


def imported(path: str, package: list[str]) -> Iterator[str]:
    """The full names a file imports, `package` being the one it is in."""
    for node in ast.walk(parsed(path)[0]):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            for alias in node.names:
                yield ".".join([*base, *([node.module] if node.module else []), alias.name])
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_private_names_stay_in_their_room():
    """A name with an underscore is used in its own folder only; and never one of jax."""
    found = set()
    for folder in LIBRARY:
        for path in files(folder):
            package = [Path(folder).name, *Path(path).relative_to(folder).parent.parts]
            for full in imported(path, package):
                parts = full.split(".")
                private = [i for i, p in enumerate(parts) if p.startswith("_") and not p.startswith("__")]
                if private and parts[: len(package)] != package:
                    found.add(f"{path}: {full}")
    assert found == set(PRIVATE)


def test_a_star_import_brings_what_is_public_and_no_room():
    """`from ngmp_compiler import *` must not put our rooms (`numpyro`, `files`) in the place of the user's modules."""
    given: dict[str, object] = {}
    exec("from ngmp_compiler import *", given)
    assert {name for name, value in given.items() if inspect.ismodule(value)} == {"executors", "families", "plot"}
    public = {name for name, value in vars(ngmp).items() if not name.startswith("_") and not inspect.ismodule(value)}
    assert public == set(ngmp.__all__) - {"executors", "families", "plot"}


def test_the_glossary_has_at_most_thirty_terms():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    rows = text[text.index("## Glossary") : text.index("## Style")].splitlines()
    terms = [term.strip() for row in rows if row.startswith("| *") for term in row.split("|")[1].split(",")]
    assert 15 < len(terms) <= 30 and len(set(terms)) == len(terms)
    assert all(term.startswith("*") and term.endswith("*") for term in terms)


def test_what_must_be_read_is_as_short_as_it_says():
    """Every open set: the files to read, with their lines, and fewer than 300 of these in all."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    walks = text[text.index("[start:open]") : text.index("[end:open]")].split("\n- **")[1:]
    for walk in walks:
        named = re.findall(r"`([\w/]+\.py)` \((\d+)\)", walk)
        actual = {name: [parsed(f)[1] for f in files(*LIBRARY) if f.endswith(f"/{name}")] for name, _ in named}
        assert named and all(int(lines) in actual[name] for name, lines in named), (walk[:30], actual)
        assert sum(int(lines) for _, lines in named) < 300, walk[:30]


def test_every_room_is_listed():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    rooms = {p.parent.name for p in (ROOT / "ngmp_compiler").glob("*/__init__.py")}
    table = text[text.index("## Rooms") : text.index("## Glossary")]
    assert not [room for room in rooms if f"`{room}/`" not in table]


FORBIDDEN = ("gc.disable", "gc.freeze", "jax.config.update", "jax.config.jax_", "np.seterr", "np.random.seed")
FORBIDDEN += ("sys.setrecursionlimit", "os.environ.setdefault", "os.putenv", "warnings.filterwarnings")


def test_no_process_wide_switches():
    """What a library sets for itself it sets for its user: nothing of the process is touched."""
    found = set()
    for path in files(*LIBRARY):
        for node in ast.walk(parsed(path)[0]):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in FORBIDDEN:
                found.add(f"{path}: {ast.unparse(node.func)}")
            if isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.ctx, ast.Store):
                if ast.unparse(node).startswith(("os.environ", "jax.config")):
                    found.add(f"{path}: {ast.unparse(node)}")
    assert found == set(SWITCHES)


def test_long_cases_exist():
    """What `long.txt` leaves to `-m slow` are cases of tests that are there."""
    for case in (ROOT / "tests/long.txt").read_text().split():
        if "::" in case:
            path, name = case.split("[")[0].split("::")
            assert f"def {name}(" in (ROOT / path).read_text(), case
