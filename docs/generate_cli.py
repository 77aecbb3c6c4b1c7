"""Writes reference/cli.md from the commands themselves: `python docs/generate_cli.py`."""

from pathlib import Path

from onoff.cli import app

TARGET = Path(__file__).parent / "reference" / "cli.md"


def page() -> str:
    """The page as it should be."""
    text = app.generate_docs("markdown", heading_level=1, max_heading_level=4)
    text = text.replace("# onoff\n", "# Command line\n", 1)
    return "\n".join(line.rstrip() for line in text.splitlines()).strip() + "\n"


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
