"""The page at `/docs`: the description for people, whole, in one document that loads nothing."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem}"
    "h2{font:600 1.1rem ui-monospace,monospace;margin-top:2rem}td{padding:.1rem .8rem .1rem 0;vertical-align:top}"
    "@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}a{color:#8bf}}"
)


def docs_page(description: dict[str, Any]) -> str:
    """The page for an OpenAPI document."""
    info = description["info"]
    title = escape(info["title"])
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{_STYLE}</style><h1>{title} {escape(info['version'])}</h1>"
        f'<p>{escape(info["description"])} For programs: <a href="/openapi.json">/openapi.json</a>.</p>'
        f"{''.join(_operations(description))}</html>"
    )


def _operations(description: dict[str, Any]) -> Iterator[str]:
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            yield f"<h2>{method.upper()} {escape(path)}</h2><p>{escape(operation['description'])}</p><table>"
            for parameter in operation.get("parameters", ()):
                yield _row(parameter["name"], f"in the {parameter['in']}")
            if body := operation.get("requestBody"):
                yield _row("body", f"{', '.join(body['content'])}. {body.get('description', '')}")
            for status, response in operation["responses"].items():
                yield _row(status, f"{response['description']} ({', '.join(response['content'])})")
            yield "</table>"


def _row(name: str, text: str) -> str:
    return f"<tr><td>{escape(name)}<td>{escape(text)}"
