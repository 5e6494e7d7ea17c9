"""What a model reports, where other numbers are integrated: mixtures over the nodes."""

import numpy as np

import ngmp_compiler as ngmp


def test_a_reported_exponential_is_a_mixture_over_the_nodes():
    def model(y):
        u = ngmp.sample("u", ngmp.Normal(0.0, std=1.0))
        s = ngmp.sample("s", ngmp.HalfNormal(std=1.0))
        ngmp.deterministic("rate", ngmp.exp(u))
        ngmp.sample("y", ngmp.Normal(u, std=s), obs=y)

    post = ngmp.compile(model, integrate=("s",))(y=np.array([0.3, 0.9, -0.2, 0.5]))
    grid = np.linspace(-8.0, 8.0, 4001)
    density = np.asarray(post["u"].density(grid))
    weights = density / density.sum()
    mean = np.sum(weights * np.exp(grid))
    np.testing.assert_allclose(post["rate"].mean, mean, rtol=1e-6)
    np.testing.assert_allclose(post["rate"].std, np.sqrt(np.sum(weights * (np.exp(grid) - mean) ** 2)), rtol=1e-5)
