"""The names of data sets that consist of domains: all of them, one of them, or all but one."""

from __future__ import annotations

OFFICE_DOMAINS = ("amazon", "caltech10", "dslr", "webcam")
DOMAINNET_DOMAINS = ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")
DOMAINNET_CLASSES = 345
FRUIT = ("apple", "banana", "blueberry", "grapes", "pear", "strawberry", "watermelon")


def _names(base: str, domains: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    one = {f"{base}-{domain}": (domain,) for domain in domains}
    others = {f"{base}-not-{domain}": tuple(one for one in domains if one != domain) for domain in domains}
    return {base: domains, **one, **others}


_OFFICE = _names("office-caltech10", OFFICE_DOMAINS)
_DOMAINNET = {**_names("domainnet", DOMAINNET_DOMAINS), **_names("domainnet-fruit", DOMAINNET_DOMAINS)}
OFFICE_NAMES, DOMAINNET_NAMES = tuple(_OFFICE), tuple(_DOMAINNET)


def chosen(name: str) -> tuple[str, ...]:
    """The domains of a data set.

    >>> chosen("office-caltech10-not-amazon")
    ('caltech10', 'dslr', 'webcam')
    """
    return {**_OFFICE, **_DOMAINNET}[name]
