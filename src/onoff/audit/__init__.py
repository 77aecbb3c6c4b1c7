"""Does it leak? Audits of privacy, each with controls that it must catch."""
