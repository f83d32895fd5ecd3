"""Settings of the whole test suite: property tests without deadlines, the same examples in CI, one thread a process.

The tiny model, the `byrote` command and a browser are here for every room; what they need is imported
when they are asked for.
"""

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.scan.scans import Command, TinyLab

SLOW_TESTS = Path(__file__).parent / "slow.txt"
SLOW_SECONDS = 2.0

# Shared cores make single examples slow at random; a property test is judged by what it finds.
settings.register_profile("all", deadline=None)
settings.register_profile("core", deadline=None, max_examples=20)
settings.register_profile("all_ci", settings.get_profile("all"), derandomize=True, print_blob=True)
settings.register_profile("core_ci", settings.get_profile("core"), derandomize=True, print_blob=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--core", action="store_true", help="leave out browsers, campaigns and what tests/slow.txt lists")
    parser.addoption("--record-slow", action="store_true", help=f"write tests over {SLOW_SECONDS} s to tests/slow.txt")


def pytest_configure(config: pytest.Config) -> None:
    tier = "core" if config.getoption("--core") else "all"
    settings.load_profile(f"{tier}_ci" if os.environ.get("CI") else tier)
    if config.getoption("--record-slow"):
        config.pluginmanager.register(_Durations())
    # Two workers on two cores: more threads would only wait for each other.
    torch.set_num_threads(1)
    hear_signals()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--core"):
        return
    slow = set(SLOW_TESTS.read_text(encoding="utf-8").splitlines())
    left_out = [
        item
        for item in items
        if item.nodeid.split("[")[0] in slow or item.get_closest_marker("slow") or item.get_closest_marker("browser")
    ]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in set(left_out)]


class _Durations:
    """The test functions that take long, set-up included; parametrised ones count together."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid.split("[")[0]] += report.duration

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not hasattr(session.config, "workerinput"):
            slow = sorted(name for name, seconds in self.seconds.items() if seconds >= SLOW_SECONDS)
            SLOW_TESTS.write_text("\n".join(slow) + "\n", encoding="utf-8")


def hear_signals() -> None:
    """A shell lets what it runs in the background ignore Ctrl-C, nohup hang-ups; so would every program we start."""
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
            signal.signal(number, usual)


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> "TinyLab":
    from tests.scan.scans import make_lab

    return make_lab(tmp_path_factory)


@pytest.fixture
def byrote(capsys: pytest.CaptureFixture[str]) -> "Command":
    from tests.scan.scans import make_command

    return make_command(capsys)


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    from tests.browsers import launched

    with launched() as browser:
        yield browser
