"""Two plain pages for people: the repos that are here, and one repo with its files and README."""

from __future__ import annotations

from html import escape
from urllib.parse import quote

from hubtools.localhub.describe import readme
from hubtools.localhub.history import find_ref, get_blob, get_commit, walk
from hubtools.localhub.repos import PREFIX, check_gate, listed, readable
from hubtools.localhub.state import Answer, Call

_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width">
<style>body{{font:16px/1.5 system-ui;max-width:60rem;margin:2rem auto;padding:0 1rem}}
pre{{white-space:pre-wrap;background:#f4f4f4;padding:1rem}}td{{padding-right:2rem}}</style>
<p><a href="/">Embedded Hub</a>: for rehearsal, CI and demos; nothing here is public.</p>
<h1>{title}</h1>{body}</html>"""


def _page(title: str, body: str) -> Answer:
    return Answer(
        text=_PAGE.format(title=escape(title), body=body),
        media_type="text/html; charset=utf-8",
        headers={"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"},
    )


def index(call: Call) -> Answer:
    """GET /: every repo the caller may see."""
    body = ""
    with call.hub.database.reading() as connection:
        for type in PREFIX:
            repos = listed(connection, call.caller, type)
            lines = "".join(
                f'<li><a href="{escape(repo.page)}">{escape(repo.full_name)}</a>' for repo in repos
            )
            body += f"<h2>{type}s</h2><ul>{lines}</ul>" if repos else ""
    return _page("Repos", body or "<p>No public repos yet.")


def repo_page(call: Call) -> Answer:
    """GET /{owner}/{name}: files of `main` and the README as text."""
    with call.hub.database.reading() as connection:
        repo = readable(connection, call.caller, *call.repo_key)
        check_gate(call.caller, repo)
        head = find_ref(connection, repo.id, "refs/heads/main")
        rows, text = "", ""
        if head is not None:
            commit = get_commit(connection, head)
            text = readme(call.hub, connection, commit)
            for path, entry in walk(connection, commit.tree):
                if not entry.is_tree:
                    link = f"{repo.page}/resolve/main/{quote(path)}"
                    size = get_blob(connection, entry.oid).size
                    rows += f'<tr><td><a href="{escape(link)}">{escape(path)}</a><td>{size:,} bytes'
    title = repo.full_name
    commit_line = f"<p>main is at <code>{head}</code></p>" if head else ""
    readme_part = f"<h2>README.md</h2><pre>{escape(text)}</pre>" if text else ""
    return _page(title, f"{commit_line}<table>{rows}</table>{readme_part}")
