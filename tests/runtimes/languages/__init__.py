"""The languages that have a binding: how each is built, checked and driven. One module each."""

from tests.runtimes.languages import c, cpp, csharp, go, java, rust, swift
from tests.runtimes.languages.language import Language

__all__ = ["LANGUAGES", "Language"]

# In the order of the columns of the contract's table.
LANGUAGES: tuple[Language, ...] = (
    c.LANGUAGE,
    cpp.LANGUAGE,
    rust.LANGUAGE,
    go.LANGUAGE,
    java.LANGUAGE,
    csharp.LANGUAGE,
    swift.LANGUAGE,
)
