"""Integrate: hyperparameters around a compiled program, whose evidence weighs the nodes."""
