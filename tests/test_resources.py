from __future__ import annotations

from pathlib import Path

import pytest

from hubtools import resources
from hubtools.errors import EnvironmentFailure

CHECKOUT = Path(__file__).parents[1]


def write(root: Path, **files: str) -> Path:
    for name, text in files.items():
        file = root / f"{name.replace('__', '/')}.md.j2"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return root


def test_the_checkout_comes_first() -> None:
    assert resources.bundled_templates() == CHECKOUT / "templates"


def fake_install(monkeypatch: pytest.MonkeyPatch, site: Path) -> Path:
    package = site / "hubtools"
    package.mkdir(parents=True)
    monkeypatch.setattr(resources, "__file__", str(package / "resources.py"))
    return package


def test_an_installed_copy_is_used_where_there_is_no_checkout(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = fake_install(monkeypatch, tmp_path)
    with pytest.raises(EnvironmentFailure) as caught:
        resources.bundled_templates()
    assert caught.value.id == "HT086"
    write(package / "_data" / "templates", checkpoint="x")
    write(tmp_path / "templates", checkpoint="of some other package")
    assert resources.bundled_templates() == package / "_data" / "templates"


def test_nearer_folders_override(tmp_path: Path) -> None:
    project, family = tmp_path / "project", tmp_path / "family"
    write(project / "templates", checkpoint="x")
    write(family / "templates", checkpoint="y")
    bundled = resources.bundled_templates()
    assert resources.template_roots(project, family) == (
        project / "templates",
        family / "templates",
        bundled,
    )
    assert resources.template_roots(tmp_path / "none", None) == (bundled,)
    assert resources.template_roots(CHECKOUT, CHECKOUT) == (bundled,)


def test_the_digest_covers_every_file_that_is_included(tmp_path: Path) -> None:
    own, bundled = tmp_path / "own", tmp_path / "bundled"
    write(own, card='{% extends "base/card.md.j2" %}{%- block x %}{% endblock %}')
    write(
        bundled,
        card="{% include 'partials/a.md.j2' %}",
        partials__a='{% include ["partials/gone.md.j2", "partials/b.md.j2"] %}',
        partials__b="b",
        other="unused",
    )
    roots = (own, bundled)
    assert set(resources.template_files("card.md.j2", roots)) == {
        "card.md.j2",
        "base/card.md.j2",
        "partials/a.md.j2",
        "partials/b.md.j2",
    }
    digests = {resources.template_digest("card.md.j2", roots)}
    write(bundled, other="still unused")
    assert resources.template_digest("card.md.j2", roots) in digests
    for change in (
        {"partials__b": "B"},
        {"card": "{% include 'partials/a.md.j2' %}!"},
        {"partials__gone": "here now"},
    ):
        write(bundled, **change)
        digests.add(resources.template_digest("card.md.j2", roots))
    write(own, partials__b="overridden")
    digests.add(resources.template_digest("card.md.j2", roots))
    assert len(digests) == 5


def test_a_computed_name_counts_every_template(tmp_path: Path) -> None:
    root = write(tmp_path, card="{% include card.kind %}", a="a", sub__b="b")
    assert set(resources.template_files("card.md.j2", (root,))) == {
        "card.md.j2",
        "a.md.j2",
        "sub/b.md.j2",
    }


def test_names_cannot_leave_their_folder(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x", encoding="utf-8")
    root = write(tmp_path / "t", card='{% include "../secret" %}{% include "/etc/passwd" %}')
    assert set(resources.template_files("card.md.j2", (root,))) == {"card.md.j2"}


@pytest.mark.parametrize("name", ["checkpoint.md.j2", "adapter.md.j2"])
def test_every_bundled_partial_belongs_to_a_card(name: str) -> None:
    root = resources.bundled_templates()
    used = set(resources.template_files(name, (root,)))
    partials = {str(p.relative_to(root)) for p in (root / "partials").iterdir()}
    assert partials <= used
