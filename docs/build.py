"""Build the site into `site/`: `python docs/build.py` runs every notebook; `--quick` leaves out what runs models.

What is made, and not kept: `docs/gallery/` from `notebooks/`, `docs/source/`, copies of the files that pages link to,
and the example of the explorer. The pictures of the front page are kept, and drawn anew by a full build.
"""

import argparse
import html
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urldefrag

ROOT = Path(__file__).resolve().parents[1]
DOCS, SITE = ROOT / "docs", ROOT / "site"
PATHS = {"PYTHONPATH": os.pathsep.join(str(ROOT / p) for p in (".", "kernels", "models", "docs"))}


def sources() -> None:
    """A page for every source file that is linked to, and the tables of the benchmarks."""
    pages = [p for p in DOCS.rglob("*.md") if "source" not in p.relative_to(DOCS).parts]
    linked = {m for p in pages for m in re.findall(r"source/([\w/]+)\.md", p.read_text())} - {"benchmarks", "SCALING"}
    for name in sorted(linked):
        code = (ROOT / f"{name}.py").read_text()
        write(DOCS / "source" / f"{name}.md", f"# `{name}.py`\n\n````python\n{code.rstrip()}\n````\n")
    for name, path in (("benchmarks", "README.md"), ("SCALING", "SCALING.md")):
        write(DOCS / "source" / f"{name}.md", (ROOT / "benchmarks" / path).read_text())


def write(path: Path, text: str) -> None:
    """Only where it changes: a builder that watches files need not build again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def pictures() -> None:
    """What the front page shows, and the page of the explorer; in a process of its own, for its precision."""
    code = f"""
import jax; jax.config.update("jax_enable_x64", True)
import numpy as np, ngmp_compiler as ngmp
from ngmp_models import coal_disasters, poisson_chain, demo
series = coal_disasters()
program = ngmp.compile(poisson_chain)
inputs = dict(y=series.counts, sigma2=0.02)
post = program(**inputs)
rate = demo.log_normal(np.asarray(post["z"].mean), np.asarray(post["z"].variance))
demo.plot(series, rate, r"{DOCS}/assets/rate.png")
program.lower(**inputs).draw(r"{DOCS}/assets/graph.svg")
program.explore(r"{DOCS}/assets/explorer.html", **inputs)
"""
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, **PATHS})


def gallery(quick: bool, only: list[str]) -> None:
    """A page for every notebook, each run in a process of its own, and the index of them all."""
    for path in sorted((ROOT / "notebooks").glob("*.py")):
        page = DOCS / "gallery" / f"{path.stem}.md"
        if (only and path.stem not in only) and page.exists():
            continue
        command = [sys.executable, str(DOCS / "notebook.py"), str(path), str(page), *(["--quick"] if quick else [])]
        subprocess.run(command, check=True, env={**os.environ, **PATHS})
    from notebook import index

    write(DOCS / "gallery" / "index.md", index(sorted((ROOT / "notebooks").glob("*.py")), DOCS / "gallery"))


def links() -> list[str]:
    """Links and pictures of the built pages that lead nowhere on this site; others are not followed."""
    broken, anchors = [], {}

    def ids(page: Path) -> set[str]:
        if page not in anchors:
            anchors[page] = set(re.findall(r'\bid="?([^"\s>]+)', page.read_text()))
        return anchors[page]

    for page in sorted(p for p in SITE.rglob("*.html") if p.name != "404.html" and "assets" not in p.parts):
        for link in set(re.findall(r'\b(?:href|src)="?([^"\s>]+)', page.read_text())):
            target, anchor = urldefrag(html.unescape(link))
            if re.match(r"[a-z]+:|//", target):
                continue
            where = (page.parent / unquote(target)).resolve() if target else page
            where = where / "index.html" if where.is_dir() else where
            missing = not where.exists() or (anchor and where.suffix == ".html" and unquote(anchor) not in ids(where))
            if missing and anchor not in ("__skip", "__comments"):
                broken.append(f"{page.relative_to(SITE)}: {link}")
    return broken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="run no notebook and draw no picture that is there")
    parser.add_argument("--only", nargs="*", default=[], help="the notebooks to run, by name, of those that have pages")
    options = parser.parse_args()
    sys.path.insert(0, str(DOCS))
    sources()
    if not options.quick or not (DOCS / "assets" / "explorer.html").exists():
        pictures()
    gallery(options.quick, options.only)
    builder = str(Path(sys.executable).parent / "zensical")
    if not Path(builder).exists():
        sys.exit('the site is built by zensical, which is not installed here: pip install -e ".[docs]"')
    subprocess.run([builder, "build", "--strict", "--clean"], check=True, cwd=ROOT, env={**os.environ, **PATHS})
    broken = links()
    print("\n".join(broken) if broken else f"every link within the site leads somewhere: {SITE}/index.html")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
