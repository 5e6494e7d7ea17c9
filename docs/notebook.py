"""Pages of the gallery from notebooks in percent format: text, code, what it printed, and its pictures.

A notebook opens with its title and says what it is about in the header of its first cell:

    # %% [markdown] field="Time series" picture=2 summary="When did accidents become rarer?"

Its code runs from top to bottom in one namespace. Every figure of matplotlib becomes a picture below the cell that made
it; `picture` is the number of the one that stands for the notebook in the index, from 1.
"""

import argparse
import contextlib
import io
import os
import re
import shlex
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

FIELDS = (
    "Regression", "Survival", "Hierarchies", "Psychometrics", "Time series", "Tracking", "Gaussian processes", "Space",
    "Epidemics", "Neuroscience", "Finance", "Ecology and genetics", "Mixtures", "Discrete", "Recommendation",
    "Learning", "Inside JAX",
)  # fmt: skip


class Cell(NamedTuple):
    """One cell: "markdown" or "code", its text, and what its header says."""

    kind: str
    text: str
    facts: dict[str, str]


def cells(source: str) -> list[Cell]:
    """The cells of a notebook in percent format."""
    found = []
    for part in re.split(r"^# %%", source, flags=re.MULTILINE)[1:]:
        head, _, body = part.partition("\n")
        facts = dict(word.split("=", 1) for word in shlex.split(head) if "=" in word)
        if "[markdown]" in head:
            body = re.sub(r"^# ?", "", body, flags=re.MULTILINE)
            found.append(Cell("markdown", body.strip("\n"), facts))
        else:
            found.append(Cell("code", body.strip("\n"), facts))
    return found


def title(cell: Cell) -> str:
    return cell.text.splitlines()[0].lstrip("# ")


def run(code: str, names: dict[str, Any], name: str) -> str:
    """What a cell prints."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(code, name, "exec"), names)
    return said.getvalue().rstrip()


def pictures(folder: Path, stem: str, count: int) -> list[str]:
    """The open figures, saved and closed, after the drawings that were written: their file names."""
    import matplotlib.pyplot as plt

    out = []
    for drawing in sorted(Path.cwd().glob("*.svg")):
        count += 1
        out.append(f"{stem}-{count}.svg")
        folder.mkdir(parents=True, exist_ok=True)
        shutil.move(drawing, folder / out[-1])
    for number in plt.get_fignums():
        count += 1
        out.append(f"{stem}-{count}.png")
        folder.mkdir(parents=True, exist_ok=True)
        plt.figure(number).savefig(folder / out[-1], dpi=110, facecolor="white")
    plt.close("all")
    return out


def page(path: Path, folder: Path, quick: bool) -> str:
    """The Markdown of a notebook, run unless it is to be quick."""
    out, names, count = [], {"__name__": "__main__", "__file__": str(path)}, 0
    began = time.process_time()
    for cell in cells(path.read_text()):
        if cell.kind == "markdown":
            out.append(cell.text)
            continue
        out.append(f"```python\n{cell.text}\n```")
        if quick:
            continue
        if said := run(cell.text, names, path.name):
            out.append(f"```text\n{said}\n```")
        made = pictures(folder / "pictures", path.stem, count)
        count += len(made)
        out += [f'<div class="picture" markdown>![](pictures/{name}){{ loading=lazy }}</div>' for name in made]
    if not quick:
        took = time.process_time() - began
        out.append(f"*The whole page took {took:.0f} s of processor time, compilation included.*")
    out.append(f"Source: `notebooks/{path.name}`. [All of the gallery](index.md)")
    return "\n\n".join(out) + "\n"


def index(paths: list[Path], folder: Path) -> str:
    """Thumbnails by field."""
    by_field: dict[str, list[str]] = {}
    for path in paths:
        first = cells(path.read_text())[0]
        found = sorted((folder / "pictures").glob(f"{path.stem}-{first.facts.get('picture', 1)}.*"))
        shown = f'<img src="pictures/{found[0].name}" alt="" loading="lazy">' if found else ""
        entry = f'<a href="{path.stem}/">{shown}<b>{title(first)}</b>{first.facts.get("summary", "")}</a>'
        by_field.setdefault(first.facts.get("field", FIELDS[-1]), []).append(entry)
    unknown = set(by_field) - set(FIELDS)
    if unknown:
        raise ValueError(f"fields that are not in the list of notebook.py: {sorted(unknown)}")
    parts = [f"## {f}\n\n<div class=\"gallery\">\n{chr(10).join(by_field[f])}\n</div>" for f in FIELDS if f in by_field]
    what = "Each page asks a question, declares a model, fits it, checks the answer against an exact one or long runs\n"
    what += "of NUTS, and says what was learned. All run in seconds, on data that are typed in or simulated there."
    return f"---\nhide: [toc]\n---\n\n# Gallery\n\n{what}\n\n" + "\n\n".join(parts) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notebook", type=Path)
    parser.add_argument("page", type=Path)
    parser.add_argument("--quick", action="store_true", help="do not run it; a page that is there stays")
    options = parser.parse_args()
    if options.quick and options.page.exists():
        return 0
    import matplotlib

    matplotlib.use("agg")
    notebook, target = options.notebook.resolve(), options.page.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:  # for what the notebook writes
        os.chdir(folder)
        target.write_text(page(notebook, target.parent, options.quick))
        os.chdir("/")
    return 0


if __name__ == "__main__":
    sys.exit(main())
