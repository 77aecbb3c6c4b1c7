"""Privacy that can be switched ON and OFF."""

__version__ = "0.1.0"
