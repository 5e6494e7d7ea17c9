"""Names that people bring from other libraries, and what they are called here."""

import difflib
from collections.abc import Iterable

NAMES = {
    # NumPyro and PyMC
    "MultivariateNormal": "MvNormal(mean, covariance=) or MvNormal(mean, precision=)",
    "MvGaussian": "MvNormal(mean, covariance=)", "Gaussian": "Normal(mean, std=)",
    "BernoulliLogits": "Bernoulli(logits=)", "BernoulliProbs": "Bernoulli(probs=)",
    "BinomialLogits": "Binomial(n, logits=)", "BinomialProbs": "Binomial(n, probs=)",
    "CategoricalLogits": "Categorical(logits=)", "CategoricalProbs": "Categorical(probs=)",
    "MultinomialProbs": "Multinomial(n, probs=)", "MultivariateStudentT": "MvStudentT(df, mean, covariance=)",
    "NegativeBinomial2": "NegativeBinomial(mean=, dispersion=)",
    "NegativeBinomialLogits": "NegativeBinomial(mean=exp(z), dispersion=)",
    "GammaPoisson": "NegativeBinomial(mean=, dispersion=)",
    "ZeroInflatedPoisson": "ZeroInflated(Poisson(rate), probability)",
    "ZeroInflatedBinomial": "ZeroInflated(Binomial(n, logits=), probability)",
    "ZeroInflatedNegativeBinomial": "ZeroInflated(NegativeBinomial(mean=, dispersion=), probability)",
    "ZeroInflatedDistribution": "ZeroInflated(distribution, probability)",
    "HurdlePoisson": "Hurdle(Poisson(rate), probability)",
    "TruncatedNormal": "Truncated(Normal(mean, std=), low, high)",
    "TruncatedDistribution": "Truncated(distribution, low, high)",
    "TruncatedCauchy": "Truncated(Cauchy(...), low, high)",
    "LeftTruncatedDistribution": "Truncated(distribution, low)",
    "Censored": "ngmp.sample(..., obs=y, censored='right')",
    "LKJ": "Wishart(df, scale=), a prior of precision matrices",
    "InverseWishart": "Wishart(df, scale=) of the precision",
    "LKJCholesky": "Wishart(df, scale=), a prior of precision matrices", "LKJCov": "Wishart(df, scale=)",
    "LKJCholeskyCov": "Wishart(df, scale=), a prior of precision matrices",
    "HalfStudentT": "HalfCauchy(scale=) or HalfNormal(std=), integrated",
    "HalfFlat": "HalfCauchy(scale=), integrated",
    "Flat": "Normal with a large variance", "ImproperUniform": "Normal with a large variance",
    "GaussianRandomWalk": "ngmp.scan with Normal(x, std=), or MvNormal(zeros, precision=tau * ngmp.rw1(n))",
    "AR": "ngmp.scan with Normal(phi * x, std=)",
    "ICAR": "MvNormal(zeros, precision=tau * ngmp.icar(adjacency))",
    "CAR": "MvNormal(zeros, precision=tau * ngmp.car(adjacency, rho))",
    "DiscreteUniform": "Categorical(probs=ones(k) / k)", "Wald": "LogNormal(mean, std=) is near it",
    "InverseGaussian": "LogNormal(mean, std=) is near it", "OrderedLogit": "OrderedLogistic",
    "LogitNormal": "ngmp.sigmoid of a Normal variable",
    "Kumaraswamy": "Beta(a, b)", "Chi2": "Gamma(df / 2, rate=0.5)",
    "ChiSquared": "Gamma(df / 2, rate=0.5)", "Geometric": "NegativeBinomial(mean=, dispersion=1.0)",
    "MixtureSameFamily": "take(parameters, z) with z Categorical",
    "MixtureGeneral": "take(parameters, z), z Categorical",
    "Mixture": "take(parameters, z) with z Categorical", "NormalMixture": "take(parameters, z) with z Categorical",
    "Potential": "ngmp.factor(name, log_density, *variables)",
    "Deterministic": "ngmp.deterministic(name, expression)",
    "Data": "an argument of the model function", "Model": "ngmp.compile(model)", "MCMC": "ngmp.compile(model)",
    "NUTS": "ngmp.compile(model)", "SVI": "ngmp.compile(model)", "ADVI": "ngmp.compile(model, method=ngmp.VMP())",
    "Predictive": "program.predict(post, site, **inputs)", "infer": "ngmp.compile(model)(**inputs)",
    # Stan
    "normal": "Normal(mean, std=)", "bernoulli_logit": "Bernoulli(logits=)", "poisson_log": "Poisson(exp(z))",
    "binomial_logit": "Binomial(n, logits=)", "neg_binomial_2": "NegativeBinomial(mean=, dispersion=)",
    "neg_binomial_2_log": "NegativeBinomial(mean=exp(z), dispersion=)", "student_t": "StudentT(df, mean, scale=)",
    "double_exponential": "Laplace(mean, scale=)", "inv_gamma": "InverseGamma(concentration, scale=)",
    "categorical_logit": "Categorical(logits=)",
    "multi_normal": "MvNormal(mean, covariance=)", "inv_logit": "ngmp.sigmoid",
    # RxInfer
    "NormalMeanVariance": "Normal(mean, variance=)", "NormalMeanPrecision": "Normal(mean, precision=)",
    "MvNormalMeanCovariance": "MvNormal(mean, covariance=)", "MvNormalMeanPrecision": "MvNormal(mean, precision=)",
    "GammaShapeRate": "Gamma(concentration, rate=)", "GammaShapeScale": "Gamma(concentration, scale=)",
    "NormalWeightedMeanPrecision": "Normal(mean, precision=)",
    "DirichletCollection": "a plate of Dirichlet variables",
    "GCV": "Normal(mean, precision=exp(z))",
    "Probit": "Bernoulli(probs=ngmp.Phi(z))", "TMixture": "take(parameters, z)",
}  # fmt: skip


def hint(name: str, known: Iterable[str]) -> str:
    """What the module says of a name that it does not have."""
    known = [k for k in known if not k.startswith("_")]
    text = f"module 'ngmp_compiler' has no attribute '{name}'"
    if name in NAMES:
        return f"{text}; here it is {NAMES[name]}"
    lower = {k.lower(): k for k in known}
    close = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.75)
    return f"{text}; did you mean {lower[close[0]]}?" if close else text
