"""One holder of all records: nothing more is claimed than without it, and nothing at all against the holder."""

from __future__ import annotations

import pytest

from sfumato import DpSgd, Everyone, OneHolder, Plain, Poisson, RealisedMean, Round, Unit
from sfumato.errors import UnsoundRound
from tests.helpers import dp_round


def test_the_world_pays_the_same_and_the_holder_is_trusted() -> None:
    local = DpSgd(3, Poisson(0.5), 40)
    sent, held = (
        Round(Everyone(), local, RealisedMean(), channel=channel, unit=Unit.RECORD)
        .derive(population=1, dimension=9)
        .primary
        for channel in (Plain(), OneHolder())
    )
    assert held.world == sent.world and sent.server is not None
    assert held.server is None and held.chooser is None and held.swapped is not None and held.swapped.server is None
    assert held.assumptions == (*sent.assumptions, "the holder of the records is trusted")


def test_it_hides_no_client() -> None:
    with pytest.raises(UnsoundRound, match="to hide it as a client would be to hide them all"):
        dp_round(channel=OneHolder())
