"""The page of optimizers, schedules and losses is what the docstrings say."""

from tests.optim.names_page import PAGE, page


def test_the_page_is_up_to_date():
    assert PAGE.read_text("utf-8") == page(), "run: python -m tests.optim.names_page"
