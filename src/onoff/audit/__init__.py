"""Does it leak? Judges of privacy that can really fail."""
