"""What every benchmark does with its rows: print one table, keep one JSON file with date and machine."""

import datetime
import json
import os
import platform
from pathlib import Path
from typing import Any

import jax

RESULTS = Path(__file__).parent / "results"


def table(title: str, header: list[str], rows: list[list[Any]]) -> str:
    """A Markdown table with a title; numbers are printed to four significant digits."""
    text = [[f"{x:.4g}" if isinstance(x, float) else str(x) for x in row] for row in [header, *rows]]
    widths = [max(len(row[i]) for row in text) for i in range(len(header))]
    lines = ["| " + " | ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) + " |" for row in text]
    rule = "|" + "|".join("-" * (w + 1) + ":" for w in widths) + "|"
    return "\n".join([title, "", lines[0], rule, *lines[1:], ""])


def save(name: str, content: dict[str, Any]) -> Path:
    """Write `results/<name>.json` together with when and where it was measured."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    where = {
        "date": datetime.date.today().isoformat(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}",
        "python": platform.python_version(),
        "jax": jax.__version__,
    }
    path.write_text(json.dumps({"measured": where, **content}, indent=1) + "\n")
    return path
