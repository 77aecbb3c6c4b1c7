"""Privacy audits, each tested with leaky controls that it must catch."""
