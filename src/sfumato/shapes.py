"""Names for the shapes of tensors. With jaxtyping loaded, as in the tests, they are checked at run time."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING or "jaxtyping" in sys.modules:
    from jaxtyping import Float

    Row = Float[Tensor, "dim"]
    Rows = Float[Tensor, "clients dim"]
    Value = Float[Tensor, "*clients dim"]  # rows at the client, one row at the server
else:
    Row = Rows = Value = Tensor
