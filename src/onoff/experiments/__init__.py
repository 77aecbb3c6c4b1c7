"""Experiments: families of chains, the paper reproduced, simulations and sweeps."""
