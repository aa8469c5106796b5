"""The table of feature rows is read whole, and a row's proof is recorded."""

from tests.support.suite.rows import FEATURES, rows_of


def test_every_row_of_the_table_is_seen():
    rows = rows_of(FEATURES.read_text())
    assert {"Q1", "R12", "L9", "P7", "G7", "S5", "C7", "U6"} <= rows.keys()
    assert len(rows) >= 65
    assert rows["U1"].startswith("`kraft up`: three nodes")
