"""`ngmp --version`, or `python -m ngmp_compiler --version`: the versions that a report of a problem should name."""

import argparse
import importlib.metadata
import platform
import sys
from collections.abc import Sequence

PACKAGES = ("ngmp-compiler", "jax", "jaxlib", "equinox", "optax", "numpy", "scipy")


def versions() -> str:
    """One line for each package, python and the machine."""
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"{name} (not installed)")
    return "\n".join([*found, f"python {platform.python_version()}", platform.platform()])


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="ngmp", description="Structured Bayesian inference as compiled JAX programs.")
    parser.add_argument("--version", action="store_true", help="print the versions of this package and what it runs on")
    options = parser.parse_args(arguments)
    if not options.version:
        parser.print_help()
        return 0
    print(versions())
    return 0


if __name__ == "__main__":
    sys.exit(main())
