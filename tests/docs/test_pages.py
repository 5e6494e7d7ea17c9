"""The pages of the site: their Python blocks run in order, right-hand sides of "Coming from" tables too, and examples
are doctests; every public name has a place in the reference."""

import doctest
import inspect
import re
from pathlib import Path

import pytest

import ngmp_compiler as ngmp

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
PAIRS = re.compile(r'^<div class="pairs" markdown>\n(.*?)^</div>', re.DOTALL | re.MULTILINE)
FENCE = re.compile(r"^```\w+\n(.*?)^```", re.DOTALL | re.MULTILINE)
PAGES = [ROOT / "README.md", *sorted(p for p in DOCS.rglob("*.md") if p.parent.name not in ("gallery", "api"))]
HEAVY = ("docs/guides/hyperparameters", "docs/guides/hierarchies", "docs/guides/state-space", "docs/guides/rules")
MADE = ("gallery", "source")  # by the build: notebooks have their own test, and copies of sources are none


def named(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").as_posix()


def blocks(path: Path) -> list[str]:
    """The code of a page that runs as it stands: what is in the pairs of a table is none of it."""
    return BLOCK.findall(PAIRS.sub("", path.read_text())) if not set(MADE) & set(path.parts) else []


SLOW = {True: [pytest.mark.slow], False: []}
WITH_CODE = [pytest.param(p, id=named(p), marks=SLOW[named(p) in HEAVY]) for p in PAGES if blocks(p)]
TABLES = [pytest.param(p, id=named(p)) for p in PAGES if PAIRS.search(p.read_text())]


def run(path: Path) -> dict:
    names: dict = {"__name__": named(path)}
    for k, code in enumerate(blocks(path)):
        exec(compile(code, f"{named(path)}, block {k + 1}", "exec"), names)
    return names


@pytest.mark.parametrize("path", WITH_CODE)
def test_the_code_of_a_page_runs(path, tmp_path, monkeypatch, only64):
    monkeypatch.chdir(tmp_path)
    run(path)


@pytest.mark.parametrize("path", TABLES)
def test_right_hand_sides_run(path, only64):
    """What declares is lowered as the body of a model function; the rest runs with the names of the page."""
    names = run(path)
    for table in PAIRS.findall(path.read_text()):
        codes = FENCE.findall(table)
        assert codes and len(codes) % 2 == 0
        for code in codes[1::2]:
            try:
                if "ngmp.sample(" in code:
                    body = "def declared():\n" + "".join(f"    {line}\n" for line in code.splitlines())
                    local = dict(names)
                    exec(body, local)
                    ngmp.compile(local["declared"], integrate="auto").lower()
                else:
                    exec(code, dict(names))
            except Exception as error:
                error.add_note(f"the right-hand side is\n{code}")
                raise


REFERENCE = sorted((DOCS / "api").glob("*.md"))
EXAMPLE = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


@pytest.mark.parametrize("path", [pytest.param(p, id=p.stem) for p in REFERENCE])
def test_examples_of_the_reference(path, tmp_path, monkeypatch, only64):
    monkeypatch.chdir(tmp_path)
    text = re.sub(r"^```.*$", "", path.read_text(), flags=re.MULTILINE)  # a fence would be taken for output
    test = doctest.DocTestParser().get_doctest(text, {"__name__": "__main__"}, path.stem, str(path), 0)
    runner = doctest.DocTestRunner(optionflags=EXAMPLE)
    said: list[str] = []
    failed, tried = runner.run(test, out=said.append)
    assert tried and not failed, "".join(said)


def test_every_public_name_is_in_the_reference_with_an_example():
    text = "\n".join(p.read_text() for p in REFERENCE)
    shown = set(re.findall(r"^::: ngmp_compiler\.(\w+)", text, re.MULTILINE))
    examples = "\n".join(re.findall(r"^(?:>>>|\.\.\.) .*$", text, re.MULTILINE))
    public = set(ngmp.__all__)
    assert shown == public
    assert not sorted(n for n in public if not re.search(rf"\b{n}\b", examples))
    known = {n: getattr(ngmp, n) for n in public}
    assert not sorted(n for n, x in known.items() if (inspect.isclass(x) or inspect.isroutine(x)) and not x.__doc__)
