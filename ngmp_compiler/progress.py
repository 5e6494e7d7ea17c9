"""Progress of long runs, and what compiling them took: for people who wait."""

import contextlib
import math
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import numpy as np

_CHUNK = 0.25  # seconds between two looks at a run
_LATE = 1.0  # seconds that nothing is shown for


class Bar:
    """One line that is rewritten; of tqdm if that is installed. Nothing is shown in the first second."""

    def __init__(self, title: str, total: int | None = None):
        self._title, self._begin, self._shown = title, time.monotonic(), False
        try:
            from tqdm.auto import tqdm  # pyright: ignore[reportMissingImports, reportMissingModuleSource]
        except ImportError:
            self._bar = None
        else:
            self._bar: Any = tqdm(desc=title, total=total, delay=_LATE, leave=True, unit=" sweeps")

    def show(self, count: int, text: str) -> None:
        """So many in all, and what else there is to say."""
        if self._bar is not None:
            self._bar.set_postfix_str(text, refresh=False)
            self._bar.update(count - self._bar.n)
        elif time.monotonic() - self._begin > _LATE:
            self._shown = True
            sys.stderr.write(f"\r{self._title}: {count} sweeps, {text}\033[K")
            sys.stderr.flush()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
        elif self._shown:
            sys.stderr.write("\n")


def watched(advance: Callable[[Any, int], tuple[Any, Any]], state: Any, tol: float, title: str) -> Any:
    """The state at the end of a run that is done a few sweeps at a time.

    Args:
        advance: from a state and a number of sweeps in all to the state then, and whether there is more to do.
        state: where to begin.
        tol: the residual at which the run ends.
        title: of the bar.
    """
    bar, until, sweeps, more, history = Bar(title), 1, 0, True, []
    try:
        while more:
            before = time.monotonic()
            state, going = jax.block_until_ready(advance(state, until))
            now, sweeps, residual, more = time.monotonic(), int(state.sweeps), float(state.residual), bool(going)
            history.append((now, residual))
            bar.show(sweeps, f"residual {residual:.1e}{left(history, tol)}")
            done = max(until - (until // 2), 1)
            until = sweeps + max(1, min(int(done * _CHUNK / max(now - before, 1e-3)), 2 * done, 200))
    finally:
        bar.close()
    return state


def left(history: list[tuple[float, float]], tol: float) -> str:
    """About how long it will take, if residuals go on to fall as they did over the last half of the time."""
    recent = [(t, math.log(r)) for t, r in history[len(history) // 2 :] if 0 < r < math.inf]
    if len(recent) < 3:
        return ""
    t, logs = np.array(recent).T
    slope = np.polyfit(t - t[0], logs, 1)[0]
    if slope >= 0:
        return ", not falling"
    return f", about {max(logs[-1] - math.log(tol), 0) / -slope:.0f} s left"


def bars(items: Iterable[Any], title: str, progress: bool) -> Iterator[Any]:
    """The items, with a bar that counts them; plain ones where there is no tqdm or none was asked for."""
    if not progress:
        yield from items
        return
    try:
        from tqdm.auto import tqdm  # pyright: ignore[reportMissingImports, reportMissingModuleSource]
    except ImportError:
        yield from items
        return
    yield from tqdm(items, desc=title, delay=_LATE)


# -- compilation ------------------------------------------------------------------------------------------------------

_EVENTS = {
    "/jax/core/compile/jaxpr_trace_duration": "tracing",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lowering",
    "/jax/core/compile/backend_compile_duration": "XLA",
}
_current = threading.local()
_listening = threading.Lock()
_registered = False


def _heard(event: str, duration_secs: float, **_: Any) -> None:
    found = getattr(_current, "seconds", None)
    if found is not None and event in _EVENTS:
        kind = _EVENTS[event]
        total, count = found.get(kind, (0.0, 0))
        found[kind] = total + duration_secs, count + 1


@contextlib.contextmanager
def compiling() -> Iterator[dict[str, tuple[float, int]]]:
    """Seconds, and how often, of tracing, lowering and XLA in this thread, while the block runs."""
    global _registered
    with _listening:
        if not _registered:
            jax.monitoring.register_event_duration_secs_listener(_heard)
            _registered = True
    outer, _current.seconds = getattr(_current, "seconds", None), {}
    try:
        yield _current.seconds
    finally:
        _current.seconds = outer


@contextlib.contextmanager
def said(name: str, plan: Callable[[], Any]) -> Iterator[None]:
    """What a call compiles and how long it takes, printed afterwards."""
    start = time.perf_counter()
    with compiling() as seconds:
        yield
    print(_told(name, seconds, time.perf_counter() - start, plan()), file=sys.stderr)


def _told(name: str, seconds: dict[str, tuple[float, int]], took: float, plan: Any) -> str:
    """What a call took, in words."""
    xla = seconds.get("XLA", (0.0, 0))
    lines = [f"'{name}': {took:.2f} s"]
    if xla[1]:
        parts = [f"{kind} {seconds[kind][0]:.2f} s" for kind in ("tracing", "lowering", "XLA") if kind in seconds]
        lines[0] += f", of which compiling {', '.join(parts)} ({xla[1]} functions)"
    else:
        lines[0] += ", nothing was compiled"
    # Projected groups evaluate integrals in every sweep, conjugate ones are summed once.
    costly = sorted((g for g in plan.groups if g.projected), key=lambda g: -g.n * len(g.edges))
    for g in costly[:5]:
        lines.append(f"  every sweep projects {g.name}: {g.n} factors {g.factor.label} on {len(g.edges)} interfaces")
    lines += [f"  every sweep solves {e.name}" for e in (*plan.gaussian, *plan.discrete)][:5]
    return "\n".join(lines)
