"""Quadrature: nodes, projections, tilted moments and predictive integrals."""
