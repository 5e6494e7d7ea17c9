"""Schedule: an executor for every connected part of the conjugate core."""
