from __future__ import annotations

from collections.abc import Callable

import pytest
from card_builders import make_card

from hubtools.card.model import CardInput


@pytest.fixture
def card() -> Callable[..., CardInput]:
    """Builds the card of `plain/s4`; keyword arguments replace fields."""
    return make_card
