"""The pages in a real browser: light and dark, narrow and wide."""

import shutil
import subprocess
from html import escape
from pathlib import Path

import pytest
from PIL import Image

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--enable-logging=stderr",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
]
REPRODUCTION = Path(__file__).parents[2] / "docs" / "reproduction.html"
DARK = "--blink-settings=preferredColorScheme=0"
# The page in a frame of any width (a window has a least width) that its surroundings may measure.
FRAME = """<!doctype html><meta name="color-scheme" content="light dark"><title></title>
<iframe style="border: 0; width: {width}px; height: 1000px" srcdoc="{page}"></iframe>
<script>
addEventListener("load", () => {{
  const view = document.querySelector("iframe").contentWindow, page = view.document;
  const all = (selector) => [...page.querySelectorAll(selector)], style = (e) => view.getComputedStyle(e);
  const outside = all("main *").filter((e) => e.getBoundingClientRect().right > {width} + 0.5
    && (e.matches("#accuracy *, #claims *, #departures *") || !e.closest(".scroll, pre, .hidden")));
  const hinted = all(".scroll").every((e) => style(e).backgroundAttachment.includes("local"))
    && all(".scroll tbody th").every((e) => style(e).position === "sticky");
  document.title = [view.innerWidth, page.documentElement.scrollWidth, outside.length,
    style(page.body).backgroundColor, [...page.images].every((i) => i.naturalWidth > 0), hinted].join("|");
}});
</script>"""

pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")]


def browse(page: Path, profile: Path, *options: str) -> str:
    """What the browser prints; its console goes to stderr, where an error fails the test."""
    assert BROWSER is not None
    done = subprocess.run(
        [
            BROWSER,
            *OPTIONS,
            f"--user-data-dir={profile}",
            *options,
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "CONSOLE" not in done.stderr, done.stderr
    return done.stdout


@pytest.fixture(params=["report", "reproduction"])
def any_page(request: pytest.FixtureRequest) -> Path:
    """The report of small runs, or the page of the reproduction as it stands in the repository."""
    report: Path = request.getfixturevalue("page") if request.param == "report" else REPRODUCTION
    return report


@pytest.mark.parametrize("width", [360, 1400])
def test_the_page_fits_and_follows_the_colour_scheme(any_page: Path, tmp_path: Path, width: int) -> None:
    framed = tmp_path / "framed.html"
    framed.write_text(FRAME.format(width=width, page=escape(any_page.read_text(encoding="utf-8"))), encoding="utf-8")
    backgrounds = []
    for name, options in (("light", []), ("dark", [DARK])):
        shot = tmp_path / f"{name}.png"
        size = f"--window-size={width},1000"
        dom = browse(framed, tmp_path / f"{name} dom", *options, size, "--virtual-time-budget=2000", "--dump-dom")
        inner, scroll, outside, background, loaded, hinted = dom.split("<title>")[1].split("</title>")[0].split("|")
        assert inner == str(width)
        assert int(scroll) <= width, "the page scrolls sideways"
        assert outside == "0", "something reaches out of the page"
        assert loaded == "true"
        assert hinted == "true", "a table that goes on beyond the edge does not show it, or leaves its names behind"
        browse(any_page, tmp_path / f"{name} shot", *options, size, f"--screenshot={shot}")
        with Image.open(shot) as picture:
            assert picture.size[0] == width
            corner = picture.convert("RGB").getpixel((3, 3))
            assert len(picture.convert("RGB").getcolors(1 << 24) or []) > 10, "nothing was drawn"
        assert isinstance(corner, tuple)
        assert background == f"rgb{corner}"
        backgrounds.append(sum(corner))
    light, dark = backgrounds
    assert light > 3 * 200
    assert dark < 3 * 60
