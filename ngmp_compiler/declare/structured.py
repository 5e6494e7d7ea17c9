"""Latent vectors with a structured precision: declared as one normal factor for every row of the structure."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from ngmp_kernels import GenericDensity, MvNormal, Normal
from ngmp_kernels.factors.low_rank import root_of
from ngmp_kernels.families import MvGaussian

from ..graph.planes import Plane
from .affine import contract
from .frame import Site, refuse
from .functions import dot
from .structures import Scaled, Structure, is_sparse, solutions, structure


def _itself(x: Any) -> Any:
    return x


def is_structured(distribution: Any) -> bool:
    """Whether a distribution is a MvNormal with precision `tau * R`; a Gamma variable alone stands for `tau * I`."""
    if not isinstance(distribution, MvNormal):
        return False
    given = distribution.arguments.get("precision")
    if getattr(given, "kind", None) == "gamma" and not given.batch_shape:  # type: ignore[union-attr]
        (*_, size) = np.shape(distribution.arguments["mean"]) or (1,)
        distribution.arguments["precision"] = given = Scaled(given, Structure(np.eye(size), 0.0, "identity"))
    if is_sparse(given) or _is_singular(given):
        distribution.arguments["precision"] = given = structure(given)
    return isinstance(given, (Scaled, Structure))


def _is_singular(precision: Any) -> bool:
    """Whether a precision is a known matrix of less than full rank, of which a structure is made."""
    return isinstance(precision, np.ndarray | list) and root_of(precision) is not None


def declare(frame: Any, own: str, name: str, distribution: Any, obs: Any, deterministic: Any) -> Any:
    """The variable, and its factors.

    Args:
        frame: where to.
        own, name: of the site, without and with the prefix of its scope.
        distribution: as `is_structured` finds it.
        obs: observed values; a structure is for latent ones.
        deterministic: the function of that name, which imports this module.
    """
    given = distribution.arguments["precision"]
    tau, of = (given.tau, given.structure) if isinstance(given, Scaled) else (1.0, given)
    mean, constraint = distribution.arguments["mean"], distribution.constraint
    if obs is not None:
        works = "observe it through a likelihood; of independent entries, Normal(mean, precision=tau) is one for each"
        refuse(name, "obs", "a MvNormal with the precision tau * R is observed", works)
    if np.shape(mean)[-1:] != (of.size,):
        given = f"the mean has shape {np.shape(mean)}, and the precision is {of!r}"
        refuse(name, "argument mean", given, f"give a vector of {of.size}")
    basis = None if constraint is None else solutions(constraint, of.size)
    rows, log_det = of.rows, of.log_det
    if basis is not None:
        if np.ndim(mean) and np.any(np.asarray(mean) != 0.0):
            refuse(name, "argument mean", "a constraint and a mean that is not zero", "add the mean to what is sampled")
        rows, log_det = _constrained(rows @ basis, of)
    width = rows.shape[1]
    x = _allocate(frame, f"{name}_free" if basis is not None else name, width)
    residual = dot(rows, x) if basis is not None else dot(rows, x) - dot(rows, mean)
    normal = Normal(0.0, precision=tau)
    batch = (rows.shape[0],)
    arguments = {"out": residual, **normal.arguments}
    frame.sites.append(Site(name, normal, arguments, normal.event_ndims, None, batch, False))
    volume = GenericDensity(_itself, (0.5 * log_det,))
    normal.said = volume.said = f"{distribution.label}({of.name})"
    frame.sites.append(Site(f"{name}.volume", volume, dict(volume.arguments), volume.event_ndims, None, (), False))
    return x if basis is None else deterministic(own, expand(distribution, x))


def expand(distribution: Any, x: Any) -> Any:
    """The vector itself, `B u`, of what is free of a constrained one."""
    given = distribution.arguments["precision"]
    size = (given.structure if isinstance(given, Scaled) else given).size
    return contract(x.affine(), solutions(distribution.constraint, size), "matmul", (size,))


def _constrained(rows: Any, structure: Structure) -> tuple[Any, Any]:
    """Rows and volume of the structure among the solutions of the constraint."""
    if isinstance(rows, np.ndarray):
        values = np.linalg.eigvalsh(rows.T @ rows)
        return rows, float(np.log(values[values > 1e-9 * values[-1]]).sum())
    return rows, jnp.linalg.slogdet(rows.T @ rows)[1]  # traced ones (car, leroux) are of full rank


def _allocate(frame: Any, name: str, width: int) -> Any:
    plane = Plane(MvGaussian, (width,))
    return frame.variable(name, plane, (), frame.allocate(plane, ()))
