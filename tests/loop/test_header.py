from manyheads.runner.loop.header import about


def test_what_the_user_says_of_a_run_is_shown_where_he_says_it():
    said = {"name": "first", "tags": ["baseline", "small"], "notes": "as in the paper\x1b[2J"}
    assert about(said) == {"name": "first", "tags": "baseline, small", "notes": "as in the paper\\x1b[2J"}
    assert about({"name": None, "tags": [], "notes": None}) == about({"seed": 1}) == {}
