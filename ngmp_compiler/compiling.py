"""`ngmp.compile`: a model function and its options, checked, as a program."""

from collections.abc import Callable, Sequence
from typing import Any

import optax

from .options import Options
from .passes.condition import as_sources
from .program import Program
from .solve.step import AbstractStep, as_step
from .validate import check_options


def compile(
    model: Callable[..., Any],
    *,
    method: Any = None,
    rules: dict[str, Any] | None = None,
    families: dict[str, Any] | None = None,
    factorise: list[str | tuple[Any, ...]] | None = None,
    joint: list[tuple[str, ...]] | bool | None = None,
    schedule: list[str | tuple[str, ...]] | None = None,
    executors: dict[str, str] | None = None,
    carry: Any = None,
    integrate: str | Sequence[str] = (),
    solver: optax.GradientTransformation | AbstractStep | None = None,
    max_sweeps: int | None = None,
    tol: float | None = None,
    max_specialisations: int = 128,
) -> Program:
    """Compile a model function to a program.

    Args:
        model: declares the model with `ngmp.sample`, `ngmp.scan`, `ngmp.factor`.
        method: the message rule of every interface without a conjugate kernel. By default `NGMP()`, but `EP()` on the
            kinds of factors that `describe` names with the reason (see `passes.rules`).
        rules: rules by site name, where they differ from `method`.
        families: by variable name, asserted against the model; "log-gaussian" makes a Gamma variable `exp(log_<name>)`.
        factorise: clusters that are independent of each other: `[("x", "tau")]` is q(x) q(tau), and a nested tuple
            keeps several names joint, `[(("z0", "z"), "tau")]`. A factor between clusters sends mean-field messages
            (NGMP becomes NCVMP there); under a mean-field rule, every variable that is not named is on its own.
        joint: variables whose interfaces are projected together wherever they share a factor, `[("m", "ls")]`: one
            edge, the joint Gaussian of up to six. By default the rule that `describe` prints; False for none.
        schedule: blocks of sites (`"y"`) or interfaces (`"y.tau"`) updated one after the other in a sweep, each at the
            newest marginals; by default all at once.
        executors: what solves the part of the core that a variable is in, where it is not to be what `describe` says:
            `{"z": "flooding"}`, `{"w": "dense"}`; which fit is said there, and all names in the error about another.
        carry: for filtering with `program.update`: names whose marginals become the next priors, `("v", "w")`; or a
            dictionary, `{"z0": "z"}`, where the last of the chain z becomes the prior of its start z0.
        integrate: names of sites that are integrated numerically around the program: numbers of any prior, which stand
            as such in the model; or "auto", which chooses them as `describe` says.
        solver: any `optax` transformation, or an `ngmp.AbstractStep`; it sees `eta - eta*` as the gradient. By default
            `ngmp.adaptive()`; an eager call that has not converged in `max_sweeps` sweeps then goes on with
            `ngmp.anderson()`, Newton's method and small steps, and begins anew by other rules (see `ladder`);
            `post.reason` says so. Under `jit` there is only the first.
        max_sweeps: give up, and say so, after this many sweeps; by default 500, of the first solver.
        tol: how far, in its standard deviations, an undamped sweep may still move a marginal of a run that has
            converged (see `solve.solver`); by default 1e-8 in float64, 1e-4 in float32.
        max_specialisations: how many compiled functions to keep, for inputs of as many shapes; the least recently used
            go first. `program.clear()` drops all.
    """
    check_options(model, method, rules or {}, families or {}, max_sweeps, tol, max_specialisations)
    if integrate and carry is not None:
        raise ValueError("integrate= and carry= do not go together: a filter carries the marginals of one run")
    clusters = [_together(c) for entry in factorise or [] for c in _together(entry)]
    blocks = None if schedule is None else [_together(b) for b in schedule]
    options = Options(
        method, dict(rules or {}), dict(families or {}), clusters, blocks, dict(executors or {}),
        as_sources(carry), as_step(solver), None if max_sweeps is None else int(max_sweeps), tol,
        int(max_specialisations), _clusters(joint), _names(integrate),
    )  # fmt: skip
    return Program(model, options)


def _names(integrate: Any) -> tuple[str, ...]:
    """`integrate=` as it is kept."""
    several = isinstance(integrate, (str, list, tuple, set, frozenset))
    if not several or not all(isinstance(name, str) for name in integrate):
        raise TypeError(f"integrate={integrate!r}: give names of sites, ('sd', 'phi'), or \"auto\"")
    return _together(integrate)


def _clusters(joint: Any) -> tuple[tuple[str, ...], ...] | bool | None:
    """`joint=` as it is kept."""
    if joint is None or isinstance(joint, bool):
        return None if joint is True else joint
    clusters = tuple(map(_together, joint)) if isinstance(joint, (list, tuple)) else ()
    if not clusters or any(len(c) < 2 or not all(isinstance(n, str) for n in c) for c in clusters):
        works = "give a list of tuples of two to six names of variables, [('m', 'ls')], or False"
        raise ValueError(f"joint={joint!r}: {works}")
    return clusters


def _together(entry: Any) -> tuple[Any, ...]:
    """One name, or several, as a tuple."""
    return (entry,) if isinstance(entry, str) else tuple(entry)
