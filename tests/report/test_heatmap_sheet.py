"""All heat maps of a needle test on one sheet."""

from evalkit.report.plots import heatmap_sheet
from tests.report.test_heatmap import run  # noqa: F401 - the fixture


def test_the_sheet_of_a_comparison_lies_in_the_run(run):  # noqa: F811
    files = heatmap_sheet.write(run, ["a", "b 1/4"], "a")
    assert [path.name for path in files] == ["heatmaps-needle.png", "heatmaps-needle.svg"]
    assert all(path.parent == run.path / "plots" and path.stat().st_size for path in files)
