"""What a line of a log looks like."""

LOG_LINE = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4} (INFO|WARNING|ERROR) [\w.]+: .*"
