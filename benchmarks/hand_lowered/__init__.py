"""What a JAX expert writes by hand for single models: no compiler, no guard, no checks, one answer.

Every function iterates the same damped fixed point as the compiled program it is compared with and returns the same
marginals (and free energy where it is cheap to write down), so that a benchmark compares equal answers.
"""
