"""Trees of categorical variables, and what they are compared with: enumeration, sum-product."""

import itertools

import numpy as np
from scipy.special import logsumexp

import ngmp_compiler as ngmp
from ngmp_compiler import Categorical


def enumerate_states(sizes, tables):
    """Marginals, and log of the sum over all joint states, of exp of a sum of log-tables [(scope, table), ...]."""
    joint = np.zeros(sizes)
    for state in itertools.product(*map(range, sizes)):
        joint[state] = sum(table[tuple(state[i] for i in scope)] for scope, table in tables)
    log_z = logsumexp(joint)

    def marginal(scope):
        others = tuple(i for i in range(len(sizes)) if i not in scope)
        left = sorted(scope)
        return np.transpose(np.exp(joint - log_z).sum(others), [left.index(i) for i in scope])

    return marginal, log_z


def random_tree(rng, n, span=None):
    """The parent of every node but the first: any node before it, or one of the `span` before it (a deep tree)."""
    return np.array([0] + [int(rng.integers(max(0, i - span) if span else 0, i)) for i in range(1, n)])


def tree_model(parents, k):
    """A tree of classes with an observed outcome at every node."""

    def tree(y, transition, emission):
        z = [ngmp.sample("z", Categorical(probs=np.full(k, 1 / k)))]
        for i in range(1, len(parents)):
            z.append(ngmp.sample("z", Categorical(probs=ngmp.take(transition[i], z[parents[i]]))))
        for i in range(len(parents)):
            ngmp.sample("y", Categorical(probs=ngmp.take(emission, z[i])), obs=y[i])

    return tree


def tree_data(rng, n, k, outcomes=3):
    transition, emission = rng.dirichlet(np.ones(k), (n, k)), rng.dirichlet(np.ones(outcomes), k)
    return {"y": rng.integers(0, outcomes, n), "transition": transition, "emission": emission}
