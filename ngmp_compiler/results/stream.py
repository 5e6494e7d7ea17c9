"""Batches that arrive one after the other, of one size or of many."""

from collections.abc import Iterable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..passes.condition import Carry
from ..program import Program
from ..progress import bars
from .posterior import Posterior


def pad(batch: dict[str, Any], size: int, mask: str = "mask", names: Iterable[str] | None = None) -> dict[str, Any]:
    """A batch with its arrays padded to `size` rows, and a mask that is False on the rows added.

    A program is specialised on the shapes of its inputs; padded batches of changing sizes share one compilation. The
    last row is repeated, so that what is added is valid data, and masked out.

    Args:
        batch: inputs of the model by name. An existing mask is extended.
        size: the number of rows wanted, at least that of the batch.
        mask: the name of the model's mask input.
        names: the inputs to pad; by default every array with a leading axis.
    """
    rows = [k for k in (names or [k for k, x in batch.items() if np.ndim(x)]) if k != mask]
    unknown = [k for k in rows if k not in batch]
    if unknown:
        raise ValueError(f"pad: the batch has no {unknown}; it has {sorted(batch)}")
    lengths = {k: np.shape(batch[k])[:1] for k in rows}
    if len(set(lengths.values())) != 1 or () in lengths.values():
        works = "name the inputs that have one row for each element of the batch, names=('y', ...)"
        raise ValueError(f"pad: the inputs have leading sizes {lengths}; {works}")
    ((count,),) = set(lengths.values())
    if size < count:
        raise ValueError(f"pad: the batch has {count} rows, more than size={size}")
    seen = batch.get(mask)
    seen = jnp.ones(count, bool) if seen is None else jnp.broadcast_to(seen, (count, *np.shape(seen)[1:]))
    out = {**batch, mask: jnp.concatenate([seen, jnp.zeros((size - count, *seen.shape[1:]), bool)])}
    for k in rows:
        x = jnp.asarray(batch[k])
        # There is no row to repeat in an empty batch; zeros are as good, since all of it is masked.
        last = x[-1:] if count else jnp.zeros((1, *x.shape[1:]), x.dtype)
        out[k] = jnp.concatenate([x, jnp.broadcast_to(last, (size - count, *x.shape[1:]))])
    return out


def stream(
    program: Program,
    batches: Iterable[dict[str, Any]],
    carry: Carry | None = None,
    size: int | None = None,
    mask: str = "mask",
    progress: bool = False,
) -> Iterator[tuple[Carry, Posterior]]:
    """Filter an iterator of batches: `(carry, posterior)` after each of them.

    The pure form, for batches of one size that are all at hand, is `jax.lax.scan(program.update, carry, batches)`.

    Args:
        program: compiled with `carry=`.
        batches: inputs of the model by name, for one batch after the other. Without `size`, a batch of a new size
            compiles anew.
        carry: marginals to begin with, for example those a stream ended with; by default the declared priors.
        size: pad every batch to this many rows, so that sizes may change without compiling again. The model needs
            a mask input. Not for chains: their last state would be that of the padding.
        mask: the name of that input.
        progress: show a bar that counts batches, where tqdm is installed.
    """
    ends = [f"'{source}'" for name, source in program.carried.items() if name != source]
    if size is not None and ends:
        given = f"size={size} would pad the chain {', '.join(ends)}, whose last state is carried"
        raise ValueError(f"stream: {given}; leave size out, and let batches of a new size compile anew")
    return _stream(program, bars(batches, "batches", progress), carry, size, mask)


def _stream(program: Program, batches: Any, carry: Carry | None, size: int | None, mask: str) -> Iterator:
    # A generator of its own, so that wrong arguments are refused at the call and not at the first batch.
    for batch in batches:
        batch = batch if size is None else pad(batch, size, mask)
        carry = program.start(**batch) if carry is None else carry
        carry, post = program.update(carry, batch)
        yield carry, post
