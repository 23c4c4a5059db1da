"""Pages in a headless Chromium: the document as it is after scripts have run."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess


def find_browser() -> str | None:
    """Return a Chromium, if there is one."""
    names = (os.environ.get("WEFT_CHROMIUM"), "chromium", "chromium-browser", "google-chrome")
    return next((found for name in names if name and (found := shutil.which(name))), None)


def dump_page(page: pathlib.Path, user: pathlib.Path, *options: str) -> str:
    """Return the document of a page, with a profile of its own in `user`."""
    command = [
        str(find_browser()), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", f"--user-data-dir={user}",
        *options, "--dump-dom", page.as_uri(),
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
