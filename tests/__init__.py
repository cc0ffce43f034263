from tests import checker as checker  # named in pyproject.toml
