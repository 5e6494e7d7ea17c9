"""The gate of a class, in single precision, at data that leave no doubt of their class."""

import jax.numpy as jnp
import numpy as np
from scipy import stats

from ngmp_kernels.factors.gated import Gated
from ngmp_kernels.factors.poisson import PoissonRate
from ngmp_kernels.families import Categorical, Gamma


def test_a_message_is_heard_however_small_the_evidence():
    """53 counts where 0.5 are expected have a log-density of -200 and less; another class is less likely still."""
    counts, log_odds, rates = np.array([53.0]), 240.0, np.array([[0.3], [0.5], [0.8], [2.0]])
    base = PoissonRate(counts=jnp.asarray(counts, jnp.float32))  # type: ignore[call-arg]
    gate = Gated(base=base, k=jnp.array([[1.0, 0.0]], jnp.float32), parts=2)  # type: ignore[call-arg]
    cavities = (Gamma(jnp.zeros(1, jnp.float32), -jnp.ones(1, jnp.float32)),
                Categorical(jnp.array([[log_odds, 0.0]], jnp.float32)))  # fmt: skip
    found = gate.log_message(0, cavities)(jnp.asarray(rates, jnp.float32))
    exact = np.logaddexp(-log_odds, stats.poisson.logpmf(counts, rates))
    np.testing.assert_allclose(found, exact, rtol=1e-5)
    assert np.ptp(exact) > 50
